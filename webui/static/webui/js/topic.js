/** The topic page: one watch feeds the map, the tables and the panels. */

import { get, topicPath } from "./api.js";
import { Map as TopicMap } from "./map.js";
import { active, loadOf } from "./model.js";
import { Watch } from "./live.js";
import { figures, Panels } from "./panels.js";
import { Subscriptions } from "./subscriptions.js";
import { hex, rate } from "./format.js";

const TILES_MS = 15000;
const HOUR_MS = 3600000;
const { tenant, namespace, topic: name } = document.getElementById("topic").dataset;
const path = topicPath(tenant, namespace, name);
const map = new TopicMap(document.getElementById("map"), document.getElementById("legend"), select);
const panels = new Panels(path, select);
const subscriptions = new Subscriptions(path);
let topic = null;
let tilesAt = 0;

function select(id, spoken = true) {
  map.select(id);
  panels.select(id);
  if (spoken && topic?.segments.has(id)) document.getElementById("spoken").textContent = sentence(topic.segments.get(id));
}

function sentence(segment) {
  const load = loadOf(topic, segment.segmentId);
  const known = load ? `${rate(load.msgRateIn)} messages a second in` : "load unknown";
  const next = segment.childIds.length ? `, children ${segment.childIds.join(", ")}` : "";
  const from = segment.parentIds.length ? `, parents ${segment.parentIds.join(", ")}` : "";
  return `Segment ${segment.segmentId}, ${segment.state.toLowerCase()}, 0x${hex(segment.start)} to 0x${hex(segment.end)}, ${known}${from}${next}`;
}

async function refreshTiles() {
  if (document.hidden || Date.now() - tilesAt < TILES_MS) return;
  tilesAt = Date.now();
  const [fromMs, toMs] = map.window();
  const answer = await get(`${path}/tiles?fromMs=${Math.max(0, Math.floor(fromMs) - HOUR_MS)}&toMs=${Math.ceil(toMs)}`).catch(() => null);
  if (answer) map.setTiles(answer.tiles);
}

/** When this life of the name began: frames tell only of segments that are kept. */
async function readBirth(incarnation) {
  const answer = await get(path).catch(() => null);
  if (answer?.incarnation === incarnation) map.setBirth(answer.createdAtMs);
}

function onTopic(next) {
  if (next.incarnation !== topic?.incarnation) readBirth(next.incarnation);
  topic = next;
  map.show(next);
  panels.show(next);
  figures(next, active(next));
  subscriptions.read();
}

function onState(state, text) {
  const place = document.getElementById("live");
  place.className = `state ${state}`;
  place.textContent = state === "gone" ? "stopped" : text;
  const banner = document.getElementById("banner");
  banner.hidden = state === "live";
  const lost = topic ? "The connection is lost; what you see is old." : "The node does not answer.";
  banner.textContent = state === "gone" ? text : `${lost} It is tried again by itself.`;
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
}, 1000);
