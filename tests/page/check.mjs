// The page in a headless browser: content, interaction, accessibility, no error, no request, a picture per view.
// node tests/page/check.mjs PAGE.html PICTURES [CHROMIUM]: exit 0 when everything holds. `make page` runs it.
import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";

const [, , page, folder, browser = "chromium"] = process.argv;
const BUDGET = 300; // milliseconds for one click, drawing included
mkdirSync(folder, { recursive: true });
const chrome = spawn(browser, ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1100,1400", "--remote-debugging-pipe", "about:blank"], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
let next = 1, buffer = "";
const waiting = new Map(), errors = [], requests = [];
chrome.stdio[4].on("data", data => {
  buffer += data;
  const parts = buffer.split("\0");
  buffer = parts.pop();
  for (const part of parts) {
    const message = JSON.parse(part);
    if (message.id) waiting.get(message.id)?.(message);
    if (message.method === "Runtime.exceptionThrown") errors.push(message.params.exceptionDetails.exception?.description ?? message.params.exceptionDetails.text);
    if (message.method === "Log.entryAdded" && message.params.entry.level === "error") errors.push(message.params.entry.text);
    if (message.method === "Runtime.consoleAPICalled" && message.params.type === "error") errors.push(JSON.stringify(message.params.args));
    if (message.method === "Network.requestWillBeSent") requests.push(message.params.request.url);
  }
});
let session;
const send = (method, params = {}) => new Promise(done => {
  const id = next++;
  waiting.set(id, done);
  chrome.stdio[3].write(JSON.stringify({ id, method, params, sessionId: session }) + "\0");
});
const run = async expression => {
  const { result } = await send("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
  if (result.exceptionDetails) throw new Error(expression + ": " + result.exceptionDetails.exception?.description);
  return result.result.value;
};
let failed = 0, passed = 0;
const holds = (what, is) => { if (is) passed++; else { failed++; console.error("does not hold: " + what); } };
const picture = async name => {
  const { result } = await send("Page.captureScreenshot", { format: "png" });
  writeFileSync(resolve(folder, name + ".png"), Buffer.from(result.data, "base64"));
};
const timed = click => run(`(async () => { const t = performance.now(); ${click}; document.body.offsetHeight; return performance.now() - t; })()`);

const limit = setTimeout(() => { console.error("the browser did not answer"); chrome.kill(); process.exit(1); }, 90000);
const { result: { targetId } } = await send("Target.createTarget", { url: "about:blank" });
session = (await send("Target.attachToTarget", { targetId, flatten: true })).result.sessionId;
for (const domain of ["Page", "Runtime", "Log", "Network"]) await send(domain + ".enable");
await send("Page.navigate", { url: "file://" + resolve(page) });
for (let i = 0; i < 200 && !(await run(`document.readyState === "complete" && document.querySelectorAll("#cards > *").length > 0`)); i++) await new Promise(done => setTimeout(done, 50));

// The page of a fabric has hosts and links where that of a cluster has nodes, room and gangs.
const fabric = await run(`doc.fabric === true`);
const summary = fabric ? /^\d+ hosts?, links .*[^;]\.$/ : /^\d+ nodes?, \d+ of \d+ /;
holds("the summary counts nodes", summary.test(await run(`document.getElementById("summary").textContent`)));
holds("what waits has sentences", await run(`[...document.querySelectorAll("#waiting article")].every(a => a.querySelectorAll("p").length >= 2)`));
holds("gangs are listed", fabric || await run(`document.querySelectorAll("#gangs tr").length > 0`));
holds("what is not there is not shown", !fabric || await run(`!document.getElementById("gangs").offsetParent && !document.getElementById("queues").offsetParent && !document.getElementById("waiting").offsetParent`));
holds("what was found is listed", !fabric || await run(`document.querySelectorAll("#notes li").length > 0`));
await picture("cluster-light");
let depth = 0, slowest = 0;
while (await run(`!!document.querySelector("#cards > button")`)) {
  slowest = Math.max(slowest, await timed(`document.querySelector("#cards > button").click()`));
  depth++;
  holds("a click opens the domain", (await run(`document.querySelectorAll("#crumbs button").length`)) === depth + 1);
  holds("the focus follows", await run(`document.activeElement === document.querySelector("#crumbs button:last-child")`));
}
holds("the deepest domain shows nodes", await run(`document.querySelectorAll("#cards > div").length > 0`));
await picture("nodes-light");
slowest = Math.max(slowest, await timed(`document.querySelector("#crumbs button").click()`));
for (const colour of ["queue", "use", "gang"]) slowest = Math.max(slowest, await timed(`{ const s = document.getElementById("colour"); s.value = "${colour}"; s.dispatchEvent(new Event("change")); }`));
slowest = Math.max(slowest, await timed(`{ const f = document.getElementById("find"); f.value = "no such gang"; f.dispatchEvent(new Event("input")); }`));
holds("finding nothing lists nothing", (await run(`document.querySelectorAll("#gangs tr").length`)) === 0);
await run(`{ const f = document.getElementById("find"); f.value = ""; f.dispatchEvent(new Event("input")); }`);
holds(`the slowest click took ${Math.round(slowest)} ms, of ${BUDGET}`, slowest < BUDGET);
// By keyboard alone: every control can be reached and bears a name.
holds("controls have names", await run(`[...document.querySelectorAll("button, select, input")].every(c => c.hidden || c.textContent.trim() || c.labels?.length)`));
holds("ids are unique", await run(`(ids => new Set(ids).size === ids.length)([...document.querySelectorAll("[id]")].map(e => e.id))`));
holds("one first heading, a language, a title", await run(`document.querySelectorAll("h1").length === 1 && document.documentElement.lang === "en" && document.title !== ""`));
holds("the map has words", (await run(`document.getElementById("canvas").getAttribute("aria-label")`)).startsWith("Map of "));
holds("table heads have a scope", await run(`[...document.querySelectorAll("th")].every(h => h.scope)`));
const contrast = `(() => {
  const light = c => { const [r, g, b] = c.match(/\\d+(\\.\\d+)?/g).map(Number).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = e => { for (let at = e; at; at = at.parentElement) { const c = getComputedStyle(at).backgroundColor; if (!c.startsWith("rgba(0, 0, 0, 0")) return c; } return "rgb(255, 255, 255)"; };
  const poor = [...document.querySelectorAll("p, b, span, td, th, h1, h2, li, button, code")].filter(e => e.textContent.trim() && e.offsetParent).filter(e => {
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5;
  });
  return poor.slice(0, 3).map(e => e.outerHTML.slice(0, 80)).join(" ");
})()`;
for (const scheme of ["light", "dark"]) {
  await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
  const poor = await run(contrast);
  holds(`contrast in ${scheme}: ${poor}`, poor === "");
}
await run(`window.dispatchEvent(new Event("resize"))`);
await picture("cluster-dark");
await send("Emulation.setDeviceMetricsOverride", { width: 390, height: 844, deviceScaleFactor: 1, mobile: true });
holds("a narrow window does not scroll sideways", await run(`document.documentElement.scrollWidth <= 390`));
await picture("narrow-dark");
holds("no error: " + errors.join("; "), errors.length === 0);
holds("no request but the page: " + requests.join(" "), requests.every(url => url.startsWith("file://" + resolve(page))));
console.log(`slowest click ${Math.round(slowest)} ms`);
console.log(`${passed} passed, ${failed} failed`);
clearTimeout(limit);
chrome.kill();
process.exit(failed ? 1 : 0);
