// The served page in a headless browser: token, live data, what would help on demand, trouble that is said, no foreign request.
// node tests/page/live.mjs PAGE.html PICTURES [CHROMIUM]: PAGE.html is a page of the same cluster as a file; its data are what
// the scheduler is imitated with. `make page` runs it.
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { open, poorContrast } from "./browser.mjs";

const [, , file, folder, browser = "chromium"] = process.argv;
const source = name => readFileSync(new URL("../../src/cli/render/" + name, import.meta.url), "utf8");
const html = source("page.html").replace("/*LIVE*/", () => source("live.js")).replace("img-src data:", "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'");
const cluster = JSON.parse(readFileSync(file, "utf8").match(/^const DATA = (.*);$/m)[1])[0];
for (const gang of cluster.gangs) gang.fixes = [];

// The scheduler: what it is asked with which token, and what it answers at the moment.
const seen = [];
let broken = false;
const server = createServer((request, response) => {
  const token = request.headers.authorization ?? "";
  seen.push([request.url, token]);
  const answer = (code, value, type = "application/json") => { response.writeHead(code, { "content-type": type }); response.end(type === "text/html" ? value : JSON.stringify(value)); };
  if (request.url === "/") return answer(200, html, "text/html");
  if (request.url === "/favicon.ico") return answer(204, {});
  if (token !== "Bearer right") return answer(401, { message: "a bearer token is needed" });
  if (broken) return answer(503, { message: "this process stands by" });
  if (request.url === "/v1/snapshot?namespace=team") return answer(200, cluster);
  if (request.url.startsWith("/v1/explain/")) return answer(200, { podGroups: [{ remedies: [{ message: "free <b>one</b> node" }] }] });
  answer(404, { message: "no" });
}).listen(0, "127.0.0.1");
await new Promise(done => server.on("listening", done));
const origin = `http://127.0.0.1:${server.address().port}/`;

const { send, run, until, picture, holds, close, errors, requests } = await open(browser, folder);
await send("Page.navigate", { url: origin });
await until(`document.readyState === "complete"`);
holds("without a token nothing is asked", seen.every(([url]) => !url.startsWith("/v1/")));
holds("without a token no cluster is shown", await run(`document.querySelector("main").offsetParent === null && !document.getElementById("summary").textContent.includes("0 nodes")`));
holds("the token has a label", await run(`document.getElementById("token").labels.length === 1`));
await picture("asks-for-a-token");
const enter = token => run(`document.getElementById("token").value = ${JSON.stringify(token)}; document.querySelector("form button").click()`);
await enter("wrong");
holds("a wrong token is said", await until(`document.getElementById("state").textContent.includes("bearer token is needed")`));
holds("and asked for again", await run(`document.querySelector("form").offsetParent !== null && document.activeElement.id === "token"`));
await run(`document.getElementById("namespace").value = "team"`);
await enter("right");
holds("the cluster is shown", await until(`document.getElementById("summary").textContent.startsWith("${cluster.nodes.length} node")`) && await run(`document.querySelector("main").offsetParent !== null`));
holds("the form goes, the trouble too", await run(`document.querySelector("form").offsetParent === null && document.getElementById("token").value === "" && document.getElementById("state").textContent === ""`));
holds("the token is kept nowhere", await run(`document.cookie === "" && localStorage.length === 0 && sessionStorage.length === 0 && !location.href.includes("right")`));

// What would help, on demand.
const waits = cluster.gangs.filter(gang => gang.reasons.length > 0);
holds("something waits, or this proves nothing", waits.length > 0);
await run(`document.querySelector("#waiting button").focus(); document.querySelector("#waiting button").click()`);
holds("what helps is listed as text", await until(`document.querySelector("#waiting li")?.textContent === "free <b>one</b> node"`));
holds("it was asked by namespace and name", seen.some(([url]) => url === "/v1/explain/" + waits[0].id.join("/PodGroup/")));
holds("the focus stays there", await run(`document.querySelector("#waiting").contains(document.activeElement)`));

// Newer data: the reader stays where they are.
await run(`document.querySelector("#cards > button").click()`);
const place = await run(`document.querySelector("#crumbs").textContent`);
cluster.nodes.push({ ...cluster.nodes[0], n: "a-new-node" });
holds("newer data come by themselves", await until(`document.getElementById("summary").textContent.startsWith("${cluster.nodes.length} node")`));
holds("the place stays", (await run(`document.querySelector("#crumbs").textContent`)) === place);
holds("the focus stays", await run(`document.getElementById("crumbs").contains(document.activeElement)`));
holds("what helped stays", await run(`document.querySelector("#waiting li")?.textContent === "free <b>one</b> node"`));
await picture("live-light");
const foreseen = errors.length;
broken = true;
holds("old data are said to be old", await until(`document.getElementById("state").textContent.startsWith("What is shown is not new any more: this process stands by")`));
holds("and stay", await run(`document.querySelectorAll("#gangs tr").length > 0`));
for (const scheme of ["light", "dark"]) {
  await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
  const poor = await run(poorContrast);
  holds(`contrast in ${scheme}: ${poor}`, poor === "");
}
await picture("trouble-dark");
holds("controls have names", await run(`[...document.querySelectorAll("button, select, input")].every(c => c.hidden || c.textContent.trim() || c.labels?.length)`));
// The browser notes answers that are a no as errors; nothing else is one.
holds("no error: " + errors.join("; "), errors.every(text => /status of (401|503)/.test(text)) && foreseen >= 1);
holds("no request elsewhere: " + requests.join(" "), requests.every(url => url.startsWith(origin)));
server.close();
close();
