// The page in a headless browser: content, interaction, accessibility, no error, no request, a picture per view.
// node tests/page/check.mjs PAGE.html PICTURES [CHROMIUM]: exit 0 when everything holds. `make page` runs it.
import { resolve } from "node:path";
import { open, poorContrast } from "./browser.mjs";

const [, , page, folder, browser = "chromium"] = process.argv;
const BUDGET = 300; // milliseconds for one click, drawing included
const { send, run, until, picture, holds, close, errors, requests } = await open(browser, folder);
const timed = click => run(`(async () => { const t = performance.now(); ${click}; document.body.offsetHeight; return performance.now() - t; })()`);

await send("Page.navigate", { url: "file://" + resolve(page) });
await until(`document.readyState === "complete" && document.querySelectorAll("#cards > *").length > 0`);

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
for (const scheme of ["light", "dark"]) {
  await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
  const poor = await run(poorContrast);
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
close();
