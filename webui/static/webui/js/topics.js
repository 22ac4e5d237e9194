/** The topic list: one page at a time, filtered, sorted and counted by the server; what is asked for stands in the address. */

import { ApiError, call, get, topicPath } from "./api.js";
import { ask, changing } from "./dialogs.js";
import { element, moment, rate, verdict } from "./format.js";
import { Freshness } from "./freshness.js";
import { renew } from "./renew.js";

const PAGE = 50;
const REFRESH_MS = 10000;
const MOST_PROPERTIES = 6;
const MOST_CHARACTERS = 120;
/** What the server sorts by, and which way is asked for first. */
const SORTS = { name: false, segments: true, rate: true, created: true };

/** @typedef {{search: string, property: string[], sort: string, descending: boolean, offset: number}} Asked */

const root = document.getElementById("topics");
const [tenant, namespace] = root.dataset.namespace.split("/");
const filter = /** @type {HTMLFormElement} */ (document.getElementById("filter"));
const field = (name) => /** @type {HTMLInputElement} */ (filter.elements.namedItem(name));
const fresh = new Freshness(document.getElementById("as-of"), document.getElementById("banner"));
const address = (name) => `/topics/${[tenant, namespace, name].map(encodeURIComponent).join("/")}`;
let asked = fromAddress();
let reads = 0;
let reading = false;
let typing = false;

/** @returns {Asked} */
function fromAddress() {
  const given = new URLSearchParams(location.search);
  const sort = Object.hasOwn(SORTS, given.get("sort") ?? "") ? given.get("sort") : "name";
  const offset = Math.max(0, Number.parseInt(given.get("offset") ?? "0", 10) || 0);
  return { search: given.get("search") ?? "", property: given.getAll("property").filter(Boolean), sort, descending: given.get("descending") === "true", offset };
}

/** The same as a query: only what differs from the plain list. @param {Asked} wanted */
function query({ search, property, sort, descending, offset }) {
  const parts = [...property.map((one) => ["property", one])];
  if (search) parts.push(["search", search]);
  if (sort !== "name" || descending) parts.push(["sort", sort], ["descending", String(descending)]);
  if (offset) parts.push(["offset", String(offset)]);
  return parts;
}

/** Ask for something else, and let the way back lead to what was asked before. @param {Partial<Asked>} change @param {boolean} [again] part of the same change */
function wish(change, again = false) {
  asked = { ...asked, offset: 0, ...change };
  const shown = new URLSearchParams([["namespace", root.dataset.namespace], ...query(asked)]);
  history[again ? "replaceState" : "pushState"](null, "", `?${shown}`);
  show();
  load();
}

/** Let fields and headers say what is asked for. */
function show() {
  if (field("search").value.trim() !== asked.search) field("search").value = asked.search;
  for (const head of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("th[data-sort]"))) {
    if (head.dataset.sort === asked.sort) head.setAttribute("aria-sort", asked.descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
  renew(document.getElementById("chosen"), asked.property.map((one) => element("button",
    { type: "button", class: "chip chosen", "data-key": one, "aria-label": `Without ${one}`, title: "Take this filter away", onclick: () => wish({ property: asked.property.filter((other) => other !== one) }) }, `${shortened(one)} ✕`)));
}

function shortened(text) {
  const characters = [...text];
  return characters.length > MOST_CHARACTERS ? `${characters.slice(0, MOST_CHARACTERS).join("")}…` : text;
}

function row(one) {
  const properties = Object.entries(one.properties).map(([key, value]) => `${key}=${value}`);
  const chips = properties.slice(0, MOST_PROPERTIES).map((each) => element("button",
    { type: "button", class: "chip", "data-key": each, title: `Only topics with ${each}`, onclick: () => choose(each) }, shortened(each)));
  const more = properties.length > MOST_PROPERTIES ? [element("span", { class: "note" }, `and ${properties.length - MOST_PROPERTIES} more`)] : [];
  const reshaping = one.state === "RESHAPING" ? [element("span", { class: "state", title: "A split, merge or rebucket is under way" }, "reshaping")] : [];
  const number = (text) => element("td", { class: "number" }, text);
  return element("tr", { "data-key": one.name },
    element("td", { class: "wraps" }, element("a", { href: address(one.name), title: one.name }, one.name),
      ...(chips.length || reshaping.length ? [element("div", { class: "chips" }, ...reshaping, ...chips, ...more)] : [])),
    number(String(one.activeSegments)), messagesIn(one),
    number(String(one.sealedSegments)), number(String(one.epoch)),
    element("td", {}, one.lastDecision ? verdict(one.lastDecision) : "–"),
    element("td", {}, moment(one.createdAtMs)));
}

/** The messages in; of a load that is not known, the list tells by the last decision alone. */
function messagesIn({ msgRateIn, lastDecision }) {
  const unknown = lastDecision?.explanation.heldBy?.some(({ guard }) => guard === "LOAD_UNKNOWN");
  if (!unknown) return element("td", { class: "number" }, rate(msgRateIn));
  const title = "At the last decision there was no recent load report";
  return element("td", { class: "number", title }, "unknown");
}

function choose(property) {
  if (!asked.property.includes(property)) wish({ property: [...asked.property, property] });
}

function empty(total) {
  const box = document.getElementById("empty");
  box.hidden = total > 0;
  const wanted = [...(asked.search ? [`“${asked.search}” in its name`] : []), ...asked.property];
  box.textContent = wanted.length
    ? `No topic of ${tenant}/${namespace} has ${wanted.join(" and ")}.`
    : `${tenant}/${namespace} has no topics yet. Create one here, or load the demo with “./run demo”.`;
}

function draw(body) {
  renew(document.getElementById("rows"), body.topics.map(row));
  empty(body.total);
  const last = Math.min(body.total, asked.offset + PAGE);
  document.getElementById("page").textContent = body.total ? `${asked.offset + 1}–${last} of ${body.totalExact ? "" : "at least "}${rate(body.total)}` : "";
  disable("previous", asked.offset === 0);
  disable("next", last >= body.total && body.totalExact);
}

function disable(id, off) {
  /** @type {HTMLButtonElement} */ (document.getElementById(id)).disabled = off;
}

/** Read the page that is asked for; an answer that was overtaken by another question is not shown. */
async function load() {
  const number = ++reads;
  reading = true;
  const wanted = new URLSearchParams([["limit", String(PAGE)], ...query(asked)]);
  try {
    const body = await get(`/admin/v2/scalable-topics/${[tenant, namespace].map(encodeURIComponent).join("/")}?${wanted}`);
    if (number !== reads) return;
    if (asked.offset && !body.topics.length && body.totalExact) return void wish({ offset: Math.max(0, Math.floor((body.total - 1) / PAGE) * PAGE) }, true);
    draw(body);
    fresh.took();
  } catch (error) {
    if (number !== reads) return;
    fresh.missed(error);
    if (error instanceof ApiError && !error.passes) clear();
    if (!fresh.atMs) document.getElementById("empty").hidden = true;
  } finally {
    if (number === reads) reading = false;
  }
}

/** What was asked for is refused: nothing else may stand there as its answer. */
function clear() {
  document.getElementById("rows").replaceChildren();
  document.getElementById("empty").hidden = true;
  document.getElementById("page").textContent = "";
}

document.getElementById("previous").addEventListener("click", () => wish({ offset: Math.max(0, asked.offset - PAGE) }));
document.getElementById("next").addEventListener("click", () => wish({ offset: asked.offset + PAGE }));
for (const head of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("th[data-sort]")))
  head.querySelector("button").addEventListener("click", () => {
    const { sort } = head.dataset;
    wish({ sort, descending: sort === asked.sort ? !asked.descending : SORTS[sort] });
  });
field("search").addEventListener("input", () => {
  wish({ search: field("search").value.trim() }, typing);
  typing = true;
});
field("search").addEventListener("blur", () => (typing = false));
filter.addEventListener("submit", (event) => {
  if (field("namespace").value !== root.dataset.namespace) return void field("property").removeAttribute("name");
  event.preventDefault();
  const property = field("property").value.trim();
  field("property").value = "";
  if (property) choose(property);
  else load();
});
addEventListener("popstate", () => {
  asked = fromAddress();
  show();
  load();
});
changing(/** @type {HTMLButtonElement} */ (document.getElementById("create"))).addEventListener("click", () =>
  ask(/** @type {HTMLDialogElement} */ (document.getElementById("create-dialog")), async (form) => {
    const name = form.elements["name"].value;
    await call("PUT", `${topicPath(tenant, namespace, name)}?numInitialSegments=${form.elements["segments"].value}`, {});
    location.assign(address(name));
  }));
show();
load();
setInterval(() => document.hidden || reading || load(), REFRESH_MS);
