/** The nodes page: who is alive, and which topics each node leads, read again at an interval. */

import { ApiError, get } from "./api.js";
import { ago, duration, element, moment, rate } from "./format.js";
import { Freshness } from "./freshness.js";
import { renew } from "./renew.js";

const PAGE = 50;
const LED_PAGE = 20;
const TICK_MS = 500;
const COLUMNS = 5;
const NODES = "/admin/v2/nodes";

/** @typedef {{nodeId: string, url: string, startedAtMs: number, heartbeatAgeMs: number, alive: boolean, topicsLed: number}} Node */
/** @typedef {{topic: string, term: number, sinceMs: number|null}} Led */

const interval = /** @type {HTMLSelectElement} */ (document.getElementById("interval"));
const place = document.getElementById("rows");
const fresh = new Freshness(document.getElementById("as-of"), document.getElementById("banner"));
/** Opened nodes: where their page of led topics begins. @type {Map<string, number>} */
const opened = new Map();
/** @type {Map<string, Led[]>} */
let led = new Map();
let answer = null;
let offset = 0;
let readAt = 0;
let reading = false;
let again = false;

async function read() {
  if (reading) return void (again = true);
  reading = true;
  try {
    const body = await get(`${NODES}?limit=${PAGE}&offset=${offset}`);
    if (offset && !body.nodes.length) {
      offset = Math.max(0, offset - PAGE);
      again = true;
    }
    led = await readLed(body.nodes);
    answer = body;
    draw();
    fresh.took();
  } catch (error) {
    fresh.missed(error);
  } finally {
    readAt = Date.now();
    reading = false;
  }
  if (again) {
    again = false;
    read();
  }
}

/** The led topics of the opened nodes in sight; a node that went meanwhile leads none. @param {Node[]} nodes */
async function readLed(nodes) {
  const wanted = nodes.filter((one) => opened.has(one.nodeId));
  const found = await Promise.all(wanted.map(async (one) => {
    const query = `limit=${LED_PAGE}&offset=${opened.get(one.nodeId)}`;
    const body = await get(`${NODES}/${encodeURIComponent(one.nodeId)}/topics?${query}`).catch(ifGone);
    return /** @type {[string, Led[]]} */ ([one.nodeId, body.topics]);
  }));
  return new Map(found);
}

function ifGone(error) {
  if (error instanceof ApiError && error.status === 404) return { topics: [] };
  throw error;
}

function draw() {
  renew(place, answer.nodes.flatMap(rows));
  const dead = answer.nodes.filter((one) => !one.alive).length;
  const summary = answer.total > answer.nodes.length ? `${answer.total} nodes` : `${answer.nodes.length - dead} alive${dead ? `, ${dead} without a heartbeat` : ""}`;
  if (document.getElementById("summary").textContent !== summary) document.getElementById("summary").textContent = summary;
  document.getElementById("empty").hidden = answer.total > 0;
  document.getElementById("nodes").hidden = answer.total === 0;
  const last = Math.min(answer.total, offset + PAGE);
  document.getElementById("page").textContent = answer.total ? `${offset + 1}–${last} of ${answer.total}` : "";
  disable("previous", offset === 0);
  disable("next", last >= answer.total);
}

/** @param {Node} node */
function rows(node) {
  const open = opened.has(node.nodeId);
  const toggle = element("button", { type: "button", class: "quiet small toggle", "data-role": "toggle", "aria-expanded": String(open), onclick: () => turn(node.nodeId, open ? null : 0) }, node.url);
  const late = `No heartbeat for more than ${duration(answer.timeoutMs)}: what it led is free for others`;
  const state = element("span", { class: `state ${node.alive ? "live" : "gone"}`, title: node.alive ? null : late }, node.alive ? "alive" : "dead");
  const row = element("tr", { "data-key": node.nodeId, "data-node": node.nodeId, class: node.alive ? null : "dead", title: `Node ${node.nodeId}` },
    element("td", {}, toggle),
    element("td", { "data-role": "state" }, state),
    element("td", { class: "number" }, ago(node.heartbeatAgeMs)),
    element("td", { title: moment(node.startedAtMs) }, `${moment(node.startedAtMs)}, ${duration(Date.now() - node.startedAtMs)} ago`),
    element("td", { class: "number" }, rate(node.topicsLed)));
  return open ? [row, element("tr", { class: "details", "data-key": `${node.nodeId}/`, "data-node": node.nodeId }, element("td", { colspan: COLUMNS }, ...topics(node)))] : [row];
}

/** The page of topics that an opened node leads. @param {Node} node */
function topics(node) {
  const found = led.get(node.nodeId);
  const from = opened.get(node.nodeId);
  if (!found) return [element("p", { class: "note" }, "Reading…")];
  if (!found.length && !from) return [element("p", { class: "note" }, node.alive ? "Leads no topic. One is led once a consumer asks for its leader." : "Leads no topic any more.")];
  const table = element("table", { class: "list inner" },
    element("thead", {}, element("tr", {}, element("th", {}, "Topic led"), element("th", { class: "number" }, "Term"), element("th", {}, "Since"))),
    element("tbody", {}, ...found.map((one) => element("tr", {},
      element("td", { class: "wraps" }, element("a", { href: address(one.topic) }, one.topic.replace("topic://", ""))),
      element("td", { class: "number" }, String(one.term)),
      element("td", {}, one.sinceMs == null ? "–" : `${moment(one.sinceMs)}, for ${duration(Date.now() - one.sinceMs)}`)))));
  return from || found.length === LED_PAGE ? [table, turner(node, from, found.length)] : [table];
}

/** Buttons to turn the page of topics. @param {Node} node @param {number} from @param {number} shown */
function turner(node, from, shown) {
  const button = (role, text, to, off) =>
    element("button", { type: "button", class: "small", "data-role": role, disabled: off, "aria-label": `${text} topics of ${node.url}`, onclick: () => turn(node.nodeId, to) }, text);
  return element("div", { class: "pages" }, button("back", "Previous", Math.max(0, from - LED_PAGE), !from),
    shown ? `${from + 1}–${from + shown}` : "no more", button("on", "Next", from + LED_PAGE, shown < LED_PAGE));
}

const address = (topic) => `/topics/${topic.replace("topic://", "").split("/").map(encodeURIComponent).join("/")}`;

function disable(id, off) {
  /** @type {HTMLButtonElement} */ (document.getElementById(id)).disabled = off;
}

/** Open a node at a page of its topics, or shut it (`null`). @param {string} id @param {number|null} from */
function turn(id, from) {
  led.delete(id);
  if (from === null) opened.delete(id);
  else opened.set(id, from);
  draw();
  read();
}

function move(by) {
  offset = Math.max(0, offset + by);
  read();
}

function tick() {
  const everyMs = Number(interval.value);
  if (everyMs && !document.hidden && Date.now() - readAt >= everyMs) read();
}

document.getElementById("previous").addEventListener("click", () => move(-PAGE));
document.getElementById("next").addEventListener("click", () => move(PAGE));
document.getElementById("refresh").addEventListener("click", () => read());
interval.addEventListener("change", tick);
read();
setInterval(tick, TICK_MS);
