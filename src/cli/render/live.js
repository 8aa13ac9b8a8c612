// The served page: asks the scheduler that it came from, every few seconds, with a token that is kept nowhere.
const PERIOD = 5000;
let token = "", where = "", last = "", timer, found = new Map(), asking = new Set();

const who = el("form", {class: "row"},
  el("label", {for: "token"}, "Token"), el("input", {id: "token", type: "password", autocomplete: "off", "aria-describedby": "token-about"}),
  el("label", {for: "namespace"}, "Namespace"), el("input", {id: "namespace", autocomplete: "off", placeholder: "all", "aria-describedby": "namespace-about"}),
  el("button", {}, "Show the cluster"),
  el("span", {class: "dim", id: "token-about"}, "kubectl create token ACCOUNT makes a token; it is kept until the page is closed."),
  el("span", {class: "dim", id: "namespace-about"}, "With a namespace, its pods must be yours to list; what else you may not see has numbers for names."));
const state = el("p", {id: "state", role: "alert", class: "bad"});
document.querySelector("header").append(who, state);
document.title = "Berth, live";
// Nothing is known yet, which is not the same as an empty cluster.
const main = document.querySelector("main");
main.hidden = true;
$("summary").textContent = "The running scheduler shows what you may see of the cluster.";
who.addEventListener("submit", event => { event.preventDefault(); token = $("token").value.trim(); $("token").value = ""; where = $("namespace").value.trim(); last = ""; found.clear(); poll(); });

// The answer of the scheduler, or the words of its no.
async function asked(response) {
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) throw Object.assign(new Error(answer.message || "the scheduler answers " + response.status), {code: response.status});
  return answer;
}
const with_token = () => ({headers: {Authorization: "Bearer " + token}, cache: "no-store", credentials: "omit", redirect: "error"});

async function poll() {
  clearTimeout(timer);
  const mine = token;
  if (mine === "") return;
  try {
    const next = await asked(await fetch("/v1/snapshot" + (where ? "?namespace=" + encodeURIComponent(where) : ""), with_token()));
    if (mine !== token) return;
    state.textContent = "";
    who.hidden = true;
    const text = JSON.stringify(next);
    if (text !== last) { last = text; renew(next); }
  } catch (error) {
    if (mine !== token) return;
    // What is shown stays, and is said to be old.
    state.textContent = (last === "" ? "" : "What is shown is not new any more: ") + error.message + ".";
    if (error.code === 401 || error.code === 403) { who.hidden = false; token = ""; $("token").focus(); return; }
  }
  timer = setTimeout(poll, document.hidden ? 6 * PERIOD : PERIOD);
}
document.addEventListener("visibilitychange", () => { if (!document.hidden) poll(); });

// Shows newer data where the reader is: same topology, place and focus.
function renew(next) {
  const focus = focused(), chosen = $("topology").value, open = path, shown = limit;
  doc = next;
  main.hidden = false;
  const names = Object.keys(doc.topologies).length ? Object.keys(doc.topologies) : [""];
  $("topology").replaceChildren(...names.map(name => el("option", {value: name}, name || "none")));
  if (names.includes(chosen)) $("topology").value = chosen;
  build();
  path = [];
  for (let at = root; path.length < open.length && at.below.has(open[path.length]);) { at = at.below.get(open[path.length]); path.push(at.name); }
  limit = path.length === open.length ? shown : PAGE;
  lists();
  show();
  refocus(focus);
}
// Which button has the focus, as the how-manieth of which list; and the same button of the list made anew.
function focused() {
  return ["cards", "crumbs", "waiting"].map(id => [id, [...$(id).querySelectorAll("button, .found")].indexOf(document.activeElement)]).find(pair => pair[1] >= 0);
}
function refocus(focus) {
  const found = focus && $(focus[0]).querySelectorAll("button, .found")[focus[1]];
  if (found) found.focus({preventScroll: true});
}

// What would help is looked for when somebody wants to know: it costs the scheduler's machine some work.
help = gang => {
  const key = gang.id.join("/"), known = found.get(key);
  if (known && known.why === gang.reasons.join("\n")) return [el("p", {class: "found " + (known.bad ? "bad" : "good"), tabindex: "-1"}, known.text), el("ul", {}, ...known.fixes.map(fix => el("li", {}, fix)))];
  return [el("p", {}, el("button", {click: () => look(gang, key), "aria-disabled": asking.has(key) ? "true" : null}, asking.has(key) ? "Trying changes ..." : "What would help?"))];
};
function again() { const focus = focused(); lists(); refocus(focus); }
async function look(gang, key) {
  if (asking.has(key)) return;
  asking.add(key);
  again();
  const why = gang.reasons.join("\n");
  try {
    const answer = await asked(await fetch("/v1/explain/" + gang.id.map(encodeURIComponent).join("/PodGroup/"), with_token()));
    const fixes = answer.podGroups.flatMap(found => found.remedies.map(remedy => remedy.message));
    found.set(key, {why, fixes, text: fixes.length ? "Each of these was tried on a copy of the cluster, and helps:" : "No single change was found that helps."});
  } catch (error) {
    found.set(key, {why, fixes: [], bad: true, text: error.message + "."});
  }
  asking.delete(key);
  again();
}
