/** Where hash and time lie on the picture: pure arithmetic, shared by drawing and by tests. */

export const KEYSPACE = 65536;
export const MARGIN = { left: 52, right: 14, top: 8, bottom: 24 };

/**
 * @typedef {{fromMs: number, toMs: number, width: number, height: number, low: number, high: number}} View
 * low, high: the hash range in sight, high exclusive
 */

/** @param {View} view @param {number} ms */
export const x = (view, ms) =>
  MARGIN.left + ((ms - view.fromMs) / (view.toMs - view.fromMs)) * (view.width - MARGIN.left - MARGIN.right);

/** @param {View} view @param {number} hash upwards: 0x0000 below, 0xffff above */
export const y = (view, hash) =>
  view.height - MARGIN.bottom - ((hash - view.low) / (view.high - view.low)) * (view.height - MARGIN.top - MARGIN.bottom);

/** @param {View} view @param {number} at */
export const timeAt = (view, at) =>
  view.fromMs + ((at - MARGIN.left) / (view.width - MARGIN.left - MARGIN.right)) * (view.toMs - view.fromMs);

/** @param {View} view @param {number} at */
export const hashAt = (view, at) =>
  view.low + ((view.height - MARGIN.bottom - at) / (view.height - MARGIN.top - MARGIN.bottom)) * (view.high - view.low);

/**
 * The rectangle of a segment, cut to what is in sight; null when out of sight.
 * @param {View} view @param {import("./model.js").Segment} one @param {number} nowMs
 * @returns {{x: number, y: number, width: number, height: number}|null}
 */
export function box(view, one, nowMs) {
  const from = Math.max(view.fromMs, one.createdAtMs);
  const to = Math.min(view.toMs, one.state === "ACTIVE" ? nowMs : one.sealedAtMs);
  const low = Math.max(view.low, one.start);
  const high = Math.min(view.high, one.end + 1);
  const endsBefore = to < from || (to === from && one.createdAtMs < from);
  if (endsBefore || high <= low) return null;
  const left = x(view, from);
  const top = y(view, high);
  return { x: left, y: top, width: Math.max(1, x(view, to) - left), height: Math.max(1, y(view, low) - top) };
}

const DAY_MS = 864e5;
const LABEL_HALF = 40;
const STEPS_MS = [1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 432e5, 864e5];

/** How far round instants are from each other, so that their labels do not meet. @param {View} view */
export function timeStep(view) {
  const room = Math.max(2, Math.floor((view.width - MARGIN.left) / 110));
  const span = view.toMs - view.fromMs;
  return STEPS_MS.find((one) => span / one <= room) ?? Math.ceil(span / room / DAY_MS) * DAY_MS;
}

/** Round instants to label, but for those whose label would be cut off. @param {View} view @returns {number[]} */
export function timeTicks(view) {
  const step = timeStep(view);
  const last = Math.min(view.toMs, timeAt(view, view.width - LABEL_HALF));
  const ticks = [];
  for (let at = Math.ceil(view.fromMs / step) * step; at <= last; at += step) ticks.push(at);
  return ticks;
}

/** Round hashes to label. @param {View} view @returns {number[]} */
export function hashTicks(view) {
  let step = 0x4000;
  while ((view.high - view.low) / step < 3 && step > 1) step /= 2;
  const ticks = [];
  for (let at = Math.ceil(view.low / step) * step; at <= view.high; at += step) ticks.push(at);
  return ticks;
}
