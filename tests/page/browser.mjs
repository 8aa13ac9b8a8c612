// A headless browser over its pipe: one page, what went wrong in it, and what it asked for.
import { spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";

export async function open(browser, folder) {
  mkdirSync(folder, { recursive: true });
  const chrome = spawn(browser, ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1100,1400", "--remote-debugging-pipe", "about:blank"], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
  const limit = setTimeout(() => { console.error("the browser did not answer"); chrome.kill(); process.exit(1); }, 90000);
  let next = 1, buffer = "", session;
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
  const until = async expression => {
    for (let i = 0; i < 200; i++) {
      if (await run(expression)) return true;
      await new Promise(done => setTimeout(done, 50));
    }
    return false;
  };
  const picture = async name => {
    const { result } = await send("Page.captureScreenshot", { format: "png" });
    writeFileSync(resolve(folder, name + ".png"), Buffer.from(result.data, "base64"));
  };
  let failed = 0, passed = 0;
  const holds = (what, is) => { if (is) passed++; else { failed++; console.error("does not hold: " + what); } };
  const close = () => {
    console.log(`${passed} passed, ${failed} failed`);
    clearTimeout(limit);
    chrome.kill();
    process.exit(failed ? 1 : 0);
  };
  const { result: { targetId } } = await send("Target.createTarget", { url: "about:blank" });
  session = (await send("Target.attachToTarget", { targetId, flatten: true })).result.sessionId;
  for (const domain of ["Page", "Runtime", "Log", "Network"]) await send(domain + ".enable");
  return { send, run, until, picture, holds, close, errors, requests };
}

// Texts that are hard to read, as the start of their markup.
export const poorContrast = `(() => {
  const light = c => { const [r, g, b] = c.match(/\\d+(\\.\\d+)?/g).map(Number).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = e => { for (let at = e; at; at = at.parentElement) { const c = getComputedStyle(at).backgroundColor; if (!c.startsWith("rgba(0, 0, 0, 0")) return c; } return "rgb(255, 255, 255)"; };
  const poor = [...document.querySelectorAll("p, b, span, td, th, h1, h2, li, button, code")].filter(e => e.textContent.trim() && e.offsetParent).filter(e => {
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) < 4.5;
  });
  return poor.slice(0, 3).map(e => e.outerHTML.slice(0, 80)).join(" ");
})()`;
