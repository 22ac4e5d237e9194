/** The topic page: one watch feeds the map, the tables and the panels. */

import { ApiError, endChanges, get, topicPath } from "./api.js";
import { Deletion } from "./delete_topic.js";
import { Map as TopicMap } from "./map.js";
import { active, loadKnown, loadless, loadOf } from "./model.js";
import { Watch } from "./live.js";
import { clock, hex, rate } from "./format.js";
import { trouble } from "./freshness.js";
import { Lifetimes } from "./lifetimes.js";
import { figures, Panels } from "./panels.js";
import { Past } from "./past.js";
import { Policy } from "./policy.js";
import { Subscriptions } from "./subscriptions.js";

const TILES_MS = 15000;
const HOUR_MS = 3600000;
const { tenant, namespace, topic: name } = document.getElementById("topic").dataset;
const path = topicPath(tenant, namespace, name);
const map = new TopicMap(document.getElementById("map"), document.getElementById("legend"), select);
const panels = new Panels(path, select);
const subscriptions = new Subscriptions(path, heard("subscriptions"));
const policy = new Policy({ level: "topic", name, path: `${path}/autoScalePolicy`, preview: `${path}/decisions/preview`, epoch: () => topic?.epoch });
const lifetimes = new Lifetimes(`${path}/lifetimes`);
const past = new Past(path, showSegments, heard("past"));
let topic = null;
/** The topic with its pruned segments, as far as they are known. */
let whole = null;
let tilesAt = 0;
/** What the watch says of itself, and why reads beside it failed, by what is read: the watch does not tell when the database is away. */
let watched = { state: "connecting", text: "connecting…" };
const missed = new Map();
let knownAt = 0;

new Deletion(name, path, () => topic, () => subscriptions.stats);

function select(id, spoken = true) {
  map.select(id);
  panels.select(id);
  if (spoken && whole?.segments.has(id)) document.getElementById("spoken").textContent = sentence(whole.segments.get(id));
}

function sentence(segment) {
  const load = loadOf(topic, segment.segmentId);
  const known = load ? `, ${rate(load.msgRateIn)} messages a second in` : loadless(segment) ? "" : ", load unknown";
  const next = segment.childIds.length ? `, children ${segment.childIds.join(", ")}` : "";
  const from = segment.parentIds.length ? `, parents ${segment.parentIds.join(", ")}` : "";
  return `Segment ${segment.segmentId}, ${segment.state.toLowerCase()}, 0x${hex(segment.start)} to 0x${hex(segment.end)}${known}${from}${next}`;
}

async function refreshTiles() {
  if (document.hidden || Date.now() - tilesAt < TILES_MS) return;
  tilesAt = Date.now();
  const [fromMs, toMs] = map.window();
  if (topic && !loadKnown(topic)) readKnownUntil();
  try {
    const answer = await get(`${path}/tiles?fromMs=${Math.max(0, Math.floor(fromMs) - HOUR_MS)}&toMs=${Math.ceil(toMs)}`);
    map.setTiles(answer.tiles);
    heard("tiles")(null);
  } catch (error) {
    heard("tiles")(error);
  }
}

/** Until when the load was known that is not known now: the watch does not tell. */
async function readKnownUntil() {
  const answer = await get(`${path}/loads`).catch(() => null);
  if (answer) map.setKnownUntil(answer.watermarkMs);
}

/** When this life of the name began: frames tell only of segments that are kept. */
async function readBirth(incarnation) {
  const answer = await get(path).catch(() => null);
  if (answer?.incarnation === incarnation) map.setBirth(answer.createdAtMs);
}

function onTopic(next) {
  if (next.incarnation !== topic?.incarnation) {
    readBirth(next.incarnation);
    lifetimes.read();
  }
  const wasKnown = topic?.incarnation !== next.incarnation || loadKnown(topic);
  topic = next;
  if (loadKnown(next)) map.setKnownUntil(null);
  else if (wasKnown) readKnownUntil();
  past.follow(next);
  showSegments();
  policy.show(next.detail?.policy);
  figures(next, active(next));
  subscriptions.read();
}

function showSegments() {
  whole = past.joined(topic);
  map.show(whole);
  panels.show(whole);
}

function onState(state, text) {
  watched = { state, text };
  if (state === "live") knownAt = Date.now();
  if (state === "gone") endChanges(text);
  showState();
}

/**
 * Take note of how the reads of one thing go: none may succeed while the watch is silent, and what succeeds does not
 * make up for what fails beside it.
 * @param {string} what is read
 * @returns {(error: unknown) => void} takes null for one that succeeded
 */
function heard(what) {
  return (error) => {
    if (error && (!(error instanceof ApiError) || error.passes)) missed.set(what, error);
    else missed.delete(what);
    if (!error && !missed.size && watched.state === "live") knownAt = Date.now();
    showState();
  };
}

function showState() {
  const { state, text } = watched;
  const [failure] = missed.values();
  const old = state === "live" && missed.size > 0;
  const place = document.getElementById("live");
  place.className = `state ${old ? "lost" : state}`;
  place.textContent = state === "gone" ? "stopped" : old ? `old, of ${clock(knownAt)}` : text;
  const banner = document.getElementById("banner");
  banner.hidden = state === "connecting" || (state === "live" && !old);
  const lost = topic ? "The connection is lost; what you see is old." : "The node does not answer.";
  const said = state === "gone" ? text : old ? `What you see is old, of ${clock(knownAt)}. ${trouble(failure)} It is tried again by itself.` : `${lost} It is tried again by itself.`;
  if (banner.textContent !== said) banner.textContent = said;
  document.getElementById("topic").classList.toggle("absent", state === "gone" && !topic);
}

document.getElementById("span").addEventListener("change", (event) => {
  map.setSpan(Number(event.target.value));
  tilesAt = 0;
  refreshTiles();
});
document.getElementById("reset").addEventListener("click", () => map.reset());
document.addEventListener("themechange", () => map.draw());
new Watch(`/ws/v2/scalable/lookup/${[tenant, namespace, name].map(encodeURIComponent).join("/")}`, onTopic, onState, () => get(`${path}/autoScalePolicy/effective`));
setInterval(() => {
  if (document.hidden) return;
  map.draw();
  refreshTiles();
  past.refresh();
}, 1000);
