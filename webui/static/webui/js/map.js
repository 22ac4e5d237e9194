/**
 * The map of a topic: x = time, y = hash range, each segment a rectangle from creation to sealing.
 *
 * A ground lies below, which shows where segments were pruned, remembered or not: those that are kept cover it elsewhere.
 * A canvas holds colour (tiles where a minute was reported, else the segment's last load; without any a sealed
 * segment is grey, for it takes no writes, an active one hatched: its load is unknown, and a pruned one shows
 * the ground). Where no load is known now, active segments are hatched since the last report. An SVG above holds
 * what can be pointed at, focused and spoken: rectangles, edges, marks.
 */

import { heat, level, ramp } from "./colour.js";
import { clock, drawing, duration, element, hex, instant, range } from "./format.js";
import {
  active, edges, lastLoadOf, lineage, loadKnown, loadless, loadOf, marks, neighbour, policyOf, running,
} from "./model.js";
import { renew } from "./renew.js";
import { box, hashAt, hashTicks, KEYSPACE, MARGIN, timeAt, timeStep, timeTicks, x, y } from "./scale.js";

const SHORTEST_MS = 2000;
const PARTS = 32;
const MINUTE_MS = 60000;
const LABEL_WIDTH = 26;
const LABEL_HEIGHT = 14;
const THIN_HEIGHT = 7;
const LEAST_UNKNOWN = 6;
const SEALED_COLOUR = "#8a93a3";
const SHAPES = { split: [[-7, 0], [3, -5], [3, 5]], merge: [[7, 0], [-3, -5], [-3, 5]], rebucket: [[-5, 0], [0, -6], [5, 0], [0, 6]] };

export class Map {
  /** @param {HTMLElement} place @param {HTMLElement} legend @param {(id: number) => void} onSelect */
  constructor(place, legend, onSelect) {
    this.place = place;
    this.onSelect = onSelect;
    this.canvas = element("canvas", { "aria-hidden": "true" });
    this.svg = drawing("svg", { role: "application", "aria-label": "Map of segments: hash range over time" });
    this.ground = element("div", { class: "ground", "aria-hidden": "true" });
    place.append(this.ground, this.canvas, this.svg);
    this.topic = null;
    this.bornMs = Infinity;
    this.knownMs = null;
    this.tiles = new globalThis.Map();
    this.selected = null;
    this.spanMs = 0;
    this.sinceMs = Infinity;
    this.zoom = null;
    this.legend(legend);
    this.listen();
    new ResizeObserver(() => this.draw()).observe(place);
  }

  /** @param {import("./model.js").Topic} topic */
  show(topic) {
    this.topic = topic;
    this.draw();
  }

  /** Say since when the topic exists: what was pruned reaches back to then. @param {number} ms since the epoch */
  setBirth(ms) {
    this.bornMs = ms;
    this.draw();
  }

  /**
   * Say until when the load was known that is not known now.
   * @param {number|null} ms since the epoch; null: it never was
   */
  setKnownUntil(ms) {
    this.knownMs = ms;
    this.draw();
  }

  /** @param {{segmentId: number, minuteMs: number, mean: number[], max: number[]}[]} tiles */
  setTiles(tiles) {
    this.tiles = new globalThis.Map();
    for (const tile of tiles) {
      if (!this.tiles.has(tile.segmentId)) this.tiles.set(tile.segmentId, []);
      this.tiles.get(tile.segmentId).push(tile);
    }
    this.draw();
  }

  select(id) {
    this.selected = id;
    this.draw();
  }

  setSpan(ms) {
    this.spanMs = ms;
    this.reset();
  }

  reset() {
    this.zoom = null;
    this.sinceMs = Infinity;
    this.draw();
  }

  /** The instants in sight. @returns {[number, number]} */
  window() {
    const view = this.view(Date.now());
    return [view.fromMs, view.toMs];
  }

  view(nowMs) {
    const { clientWidth: width, clientHeight: height } = this.place;
    if (this.zoom) return { width, height, ...this.zoom };
    const oldest = this.topic ? Math.min(nowMs - SHORTEST_MS, this.oldest()) : nowMs - MINUTE_MS;
    const fromMs = Math.min(this.sinceMs, this.spanMs ? nowMs - this.spanMs : oldest);
    return { width, height, fromMs, toMs: nowMs + (nowMs - fromMs) * 0.02, low: 0, high: KEYSPACE };
  }

  /** When the oldest segment that is kept was made. */
  oldest() {
    return Math.min(...[...this.topic.segments.values()].filter((one) => one.state !== "PRUNED").map((one) => one.createdAtMs));
  }

  draw() {
    if (!this.topic || !this.place.clientWidth || this.dragging) return;
    const nowMs = Date.now();
    const view = this.view(nowMs);
    const policy = policyOf(this.topic);
    const shown = [...this.topic.segments.values()]
      .map((one) => ({ one, box: box(view, one, nowMs), found: heat(loadOf(this.topic, one.segmentId), policy) })).filter((pair) => pair.box)
      .sort((a, b) => a.one.createdAtMs - b.one.createdAtMs || a.one.start - b.one.start);
    this.layGround(view, nowMs);
    this.paint(view, shown, nowMs);
    this.trace(view, shown, nowMs);
  }

  /** All that the topic ever covered, in sight. */
  layGround(view, nowMs) {
    const area = box(view, { createdAtMs: Math.min(this.bornMs, this.oldest()), state: "ACTIVE", start: 0, end: KEYSPACE - 1 }, nowMs);
    this.ground.hidden = !area;
    if (!area) return;
    Object.assign(this.ground.style, { left: `${area.x}px`, top: `${area.y}px`, width: `${area.width}px`, height: `${area.height}px` });
  }

  /** Colours, on the canvas. */
  paint(view, shown, nowMs) {
    const dots = globalThis.devicePixelRatio || 1;
    this.canvas.width = view.width * dots;
    this.canvas.height = view.height * dots;
    const pen = this.canvas.getContext("2d");
    pen.scale(dots, dots);
    const policy = policyOf(this.topic);
    const ended = !loadKnown(this.topic) && this.knownMs !== null;
    for (const { one, box: area, found } of shown) {
      const last = ended ? heat(lastLoadOf(this.topic, one.segmentId), policy) : found;
      pen.fillStyle = last ? ramp(last.level) : loadless(one) ? SEALED_COLOUR : hatch(pen);
      if (one.state !== "PRUNED") pen.fillRect(area.x, area.y, area.width, area.height);
      pen.save();
      pen.beginPath();
      pen.rect(area.x, area.y, area.width, area.height);
      pen.clip();
      for (const tile of this.tiles.get(one.segmentId) ?? []) this.paintTile(pen, view, one, tile, policy);
      if (ended && !loadless(one)) this.paintUnknown(pen, view, nowMs);
      pen.restore();
    }
  }

  /** From the last report until now, wide enough to be seen. */
  paintUnknown(pen, view, nowMs) {
    const left = Math.max(0, Math.min(x(view, this.knownMs), x(view, nowMs) - LEAST_UNKNOWN));
    pen.fillStyle = hatch(pen);
    pen.fillRect(left, 0, view.width - left, view.height);
  }

  /** One minute of one segment: each part's rate as if the whole segment ran at it, so that it compares with the thresholds. */
  paintTile(pen, view, one, tile, policy) {
    const left = x(view, tile.minuteMs);
    const width = x(view, tile.minuteMs + (tile.spanMs ?? MINUTE_MS)) - left;
    const height = (one.end - one.start + 1) / PARTS;
    for (let part = 0; part < tile.mean.length; part += 1) {
      const rate = tile.mean[part] * PARTS;
      pen.fillStyle = ramp(level(rate, policy.splitMsgRateInThreshold, policy.mergeMsgRateInThreshold));
      const top = y(view, one.start + (part + 1) * height);
      pen.fillRect(left, top, width + 0.5, y(view, one.start + part * height) - top + 0.5);
    }
  }

  /** Everything that can be pointed at. */
  trace(view, shown, nowMs) {
    const related = this.selected !== null && this.topic.segments.has(this.selected) ? lineage(this.topic, this.selected) : new Set();
    const entry = this.entry(shown.map((pair) => pair.one));
    this.svg.setAttribute("viewBox", `0 0 ${view.width} ${view.height}`);
    renew(this.svg, [...this.axes(view), ...shown.flatMap((pair) => this.segment(pair, related, entry, nowMs)),
      ...this.edgePaths(view, related), ...this.markShapes(view), ...this.busy(view, nowMs)]);
  }

  segment({ one, box: area, found }, related, entry, nowMs) {
    const label = this.label(one, found, nowMs);
    const states = [one.state.toLowerCase(), related.has(one.segmentId) ? "related" : "", one.segmentId === this.selected ? "selected" : "", area.height < THIN_HEIGHT ? "thin" : ""];
    const shape = drawing("rect", {
      ...area, class: `segment ${states.join(" ")}`, "data-key": `segment ${one.segmentId}`, "data-segment": one.segmentId, "data-state": one.state,
      "data-colour": found ? ramp(found.level) : loadless(one) ? one.state.toLowerCase() : "unknown", role: "button",
      tabindex: one.segmentId === entry ? 0 : -1, "aria-label": label,
    });
    shape.append(drawing("title", {}, label));
    if (area.width < LABEL_WIDTH || area.height < LABEL_HEIGHT) return [shape];
    return [shape, drawing("text", { x: area.x + 5, y: area.y + area.height / 2 + 4, class: `label ${one.state.toLowerCase()}`, "data-key": `label ${one.segmentId}`, "aria-hidden": "true" }, String(one.segmentId))];
  }

  label(one, found, nowMs) {
    const until = one.state === "ACTIVE" ? `active for ${duration(nowMs - one.createdAtMs)}` : `sealed after ${duration(one.sealedAtMs - one.createdAtMs)}`;
    const load = found ? `${Math.round(found.share * 100)} % of the split threshold (${found.metric})` : "load unknown";
    return [`Segment ${one.segmentId}`, range(one), until, ...(one.state === "PRUNED" ? ["pruned"] : []), ...(found || !loadless(one) ? [load] : [])].join(", ");
  }

  /** The id of the one rectangle in the tab order: the selected one, else the active one with the lowest range, of those in sight. */
  entry(shown) {
    const ids = new Set(shown.map((one) => one.segmentId));
    if (ids.has(this.selected)) return this.selected;
    return (active(this.topic).find((one) => ids.has(one.segmentId)) ?? shown[0])?.segmentId;
  }

  edgePaths(view, related) {
    const middle = (one) => y(view, (one.start + one.end + 1) / 2);
    const reach = Math.min(14, (view.width - MARGIN.left) / 40);
    return edges(this.topic).filter(([, child]) => child.createdAtMs >= view.fromMs && child.createdAtMs <= view.toMs).map(([parent, child]) => {
      const at = x(view, child.createdAtMs);
      const both = related.has(parent.segmentId) && related.has(child.segmentId);
      return drawing("path", {
        d: `M${Math.max(MARGIN.left, at - reach)},${middle(parent)} C${at},${middle(parent)} ${at},${middle(child)} ${at + reach},${middle(child)}`,
        class: `edge ${both ? "related" : ""}`, "data-key": `edge ${parent.segmentId} ${child.segmentId}`, "data-parent": parent.segmentId, "data-child": child.segmentId,
      });
    });
  }

  markShapes(view) {
    return marks(this.topic).filter((mark) => mark.atMs >= view.fromMs && mark.atMs <= view.toMs && mark.hash >= view.low && mark.hash <= view.high)
      .map((mark) => {
        const left = x(view, mark.atMs);
        const top = y(view, mark.hash);
        const points = SHAPES[mark.kind];
        const shape = drawing("polygon", {
          points: points.map(([dx, dy]) => `${left + dx},${top + dy}`).join(" "), class: `mark ${mark.kind}`, "data-key": `${mark.kind} ${mark.children[0]} ${mark.hash}`,
          "data-mark": mark.kind, "data-parents": mark.parents.join(" "), "data-children": mark.children.join(" "), "data-segment": mark.children[0],
        });
        shape.append(drawing("title", {}, `${mark.kind} of ${mark.parents.join(", ")} into ${mark.children.join(", ")} at ${clock(mark.atMs)}`));
        return shape;
      });
  }

  /** A moving outline around segments that an unfinished operation works on. */
  busy(view, nowMs) {
    const ids = running(this.topic).flatMap((one) => one.plan.parentIds);
    return ids.map((id) => this.topic.segments.get(id)).filter(Boolean)
      .map((one) => [one, box(view, one, nowMs)]).filter(([, area]) => area).map(([one, area]) => drawing("rect", { ...area, class: "busy", "data-key": `busy ${one.segmentId}` }));
  }

  axes(view) {
    const parts = [];
    for (const hash of hashTicks(view)) {
      const at = y(view, hash);
      parts.push(drawing("line", { x1: MARGIN.left - 4, x2: MARGIN.left, y1: at, y2: at, class: "grid" }),
        drawing("text", { x: MARGIN.left - 8, y: at + 4, "text-anchor": "end" }, `0x${hex(Math.min(hash, KEYSPACE - 1))}`));
    }
    const label = instant(timeStep(view), view.toMs - view.fromMs);
    for (const ms of timeTicks(view))
      parts.push(drawing("text", { x: x(view, ms), y: view.height - 6, "text-anchor": "middle" }, label(ms)));
    return parts;
  }

  listen() {
    this.svg.addEventListener("click", (event) => {
      const id = event.target.closest("[data-segment]")?.dataset.segment;
      if (id !== undefined) this.onSelect(Number(id));
    });
    this.svg.addEventListener("keydown", (event) => this.key(event));
    this.place.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.svg.addEventListener("pointerdown", (event) => this.press(event));
  }

  key(event) {
    if (event.key.toLowerCase() === "r") return this.reset();
    if (event.key === "Escape") return this.onSelect(null);
    const here = this.topic?.segments.get(Number(document.activeElement?.dataset.segment));
    if (!here) return undefined;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      return this.onSelect(here.segmentId);
    }
    if (!event.key.startsWith("Arrow")) return undefined;
    event.preventDefault();
    const next = neighbour(this.topic, here, event.key);
    if (next) this.walk(next.segmentId);
    return undefined;
  }

  walk(id) {
    this.onSelect(id);
    const shape = () => this.svg.querySelector(`.segment[data-segment="${id}"]`);
    if (!shape()) this.reset();
    const one = this.topic.segments.get(id);
    if (one.state === "PRUNED" && !this.zoom) this.reachBack(one.createdAtMs);
    shape()?.focus({ preventScroll: true });
  }

  /** Show an instant though it may lie before the chosen span, until the next reset. */
  reachBack(ms) {
    this.sinceMs = Math.min(this.sinceMs, ms);
    this.draw();
  }

  wheel(event) {
    if (!event.ctrlKey && !event.shiftKey && !this.zoom && document.activeElement?.ownerSVGElement !== this.svg) return;
    event.preventDefault();
    const view = this.view(Date.now());
    const factor = event.deltaY > 0 ? 1.25 : 0.8;
    const at = timeAt(view, event.offsetX);
    const hash = hashAt(view, event.offsetY);
    this.zoom = clampZoom({ fromMs: at - (at - view.fromMs) * factor, toMs: at + (view.toMs - at) * factor,
      low: hash - (hash - view.low) * factor, high: hash + (view.high - hash) * factor });
    this.draw();
  }

  /** A drag brushes a rectangle; letting go zooms into it. */
  press(event) {
    if (event.button !== 0) return;
    const view = this.view(Date.now());
    const start = [event.offsetX, event.offsetY];
    const brush = drawing("rect", { class: "brush" });
    const frame = this.svg.getBoundingClientRect();
    const ends = ["pointerup", "pointercancel"];
    const at = (move) => [move.clientX - frame.left, move.clientY - frame.top];
    const move = (moved) => {
      const end = at(moved);
      if (!this.dragging && Math.hypot(end[0] - start[0], end[1] - start[1]) < 8) return;
      this.dragging = true;
      if (!brush.parentNode) this.svg.append(brush);
      const sides = { x: Math.min(start[0], end[0]), y: Math.min(start[1], end[1]), width: Math.abs(end[0] - start[0]), height: Math.abs(end[1] - start[1]) };
      for (const [name, value] of Object.entries(sides)) brush.setAttribute(name, String(value));
    };
    const drop = (dropped) => {
      for (const kind of ends) removeEventListener(kind, drop);
      removeEventListener("pointermove", move);
      brush.remove();
      if (!this.dragging) return;
      this.dragging = false;
      if (dropped.type === "pointercancel") return void this.draw();
      const end = at(dropped);
      const times = [timeAt(view, start[0]), timeAt(view, end[0])].sort((a, b) => a - b);
      const hashes = [hashAt(view, start[1]), hashAt(view, end[1])].sort((a, b) => a - b);
      this.zoom = clampZoom({ fromMs: times[0], toMs: times[1], low: hashes[0], high: hashes[1] });
      this.draw();
    };
    addEventListener("pointermove", move);
    for (const kind of ends) addEventListener(kind, drop);
  }

  legend(place) {
    const bar = element("span", { class: "ramp" });
    bar.style.background = `linear-gradient(90deg, ${[0, 0.2, 0.4, 0.6, 0.8, 1].map(ramp).join(", ")})`;
    const sealed = element("span", { class: "hatch sealed" });
    sealed.style.background = SEALED_COLOUR;
    place.append(element("span", {}, "merge threshold or below ", bar, " split threshold or above"),
      element("span", {}, element("span", { class: "hatch" }), " load unknown"),
      element("span", {}, sealed, " sealed, no load told"),
      element("span", {}, element("span", { class: "hatch pruned" }), " pruned"),
      element("span", {}, element("b", { class: "split" }, "◀"), " split   ", element("b", { class: "merge" }, "▶"), " merge   ", element("b", { class: "rebucket" }, "◆"), " rebucket"),
      element("span", {}, "Drag: zoom in · Ctrl + wheel: zoom · R: reset"));
  }
}

function clampZoom(zoom) {
  const low = Math.max(0, zoom.low);
  const high = Math.min(KEYSPACE, Math.max(low + 16, zoom.high));
  const toMs = Math.max(zoom.fromMs + SHORTEST_MS, zoom.toMs);
  return { fromMs: zoom.fromMs, toMs, low, high };
}

let pattern = null;

function hatch(pen) {
  if (pattern) return pattern;
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const brush = tile.getContext("2d");
  brush.fillStyle = "#8a93a3";
  brush.fillRect(0, 0, 8, 8);
  brush.strokeStyle = "#c9ced6";
  brush.lineWidth = 2;
  for (const shift of [-8, 0, 8]) {
    brush.beginPath();
    brush.moveTo(shift, 8);
    brush.lineTo(shift + 8, 0);
    brush.stroke();
  }
  pattern = pen.createPattern(tile, "repeat");
  return pattern;
}
