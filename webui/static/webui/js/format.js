/** Numbers, times and ranges as people read them; small helpers to build elements. */

const DAY_MS = 864e5;
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/** @param {number|undefined|null} value */
export const rate = (value) => (value == null ? "–" : value >= 100 ? whole.format(value) : short.format(value));

/** @param {number|undefined|null} value bytes a second */
export function bytes(value) {
  if (value == null) return "–";
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (value < 1000 || unit === "GB") return `${short.format(value)} ${unit}`;
    value /= 1000;
  }
  return "–";
}

/** @param {number} hash */
export const hex = (hash) => hash.toString(16).padStart(4, "0");

/** @param {{start: number, end: number}} range */
export const range = (range) => `${hex(range.start)}–${hex(range.end)}`;

/** @param {number} ms */
export function duration(ms) {
  const seconds = Math.max(0, ms) / 1000;
  if (seconds < 1) return `${Math.round(ms)} ms`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

/** How long ago, in one unit for what is read every second. @param {number} ms */
export const ago = (ms) => (ms < 10000 ? `${(Math.max(0, ms) / 1000).toFixed(1)} s ago` : `${duration(ms)} ago`);

/** @param {number} ms since the epoch */
export const clock = (ms) => new Date(ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });

/** @param {number} ms since the epoch */
export const moment = (ms) => new Date(ms).toLocaleString([], { dateStyle: "medium", timeStyle: "medium", hour12: false });

/** How to write instants that are `stepMs` apart in a picture of `spanMs`: as short as tells them apart. @param {number} stepMs @param {number} spanMs @returns {(ms: number) => string} */
export function instant(stepMs, spanMs) {
  const day = { month: "short", day: "numeric" };
  const time = { hour: "2-digit", minute: "2-digit", hour12: false };
  if (stepMs >= DAY_MS) return (ms) => new Date(ms).toLocaleDateString([], day);
  return spanMs > DAY_MS ? (ms) => new Date(ms).toLocaleString([], { ...day, ...time }) : clock;
}

/** What came of a decision, in words: the rule that fired, or the guard that held it back. @param {{action: string|null, rule: string}} decision */
export function verdict({ action, rule }) {
  if (action) return `${action.toLowerCase()} by ${rule}`;
  return rule === rule.toUpperCase() ? `held by ${rule.toLowerCase().replaceAll("_", " ")}` : `no change, ${rule}`;
}

/**
 * An element with attributes and children; text stays text.
 * @param {string} tag @param {Record<string, any>} [attributes] @param {...(Node|string)} children
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (name.startsWith("on")) made[name] = value;
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

/** @param {string} tag @param {Record<string, any>} [attributes] @param {string} [text] */
export function drawing(tag, attributes = {}, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (text !== undefined) made.textContent = text;
  return made;
}

/** A name like splitMsgRateInThreshold, so that it breaks between its words and not within one. @param {string} name */
export const words = (name) => name.split(/(?=[A-Z])/).flatMap((word, at) => (at ? [element("wbr"), word] : [word]));
