/** Decisions of the autoscaler in words: what was done, what held it back, how near it was. */

import { bytes, clock, duration, element, moment, rate, verdict } from "./format.js";

/** What each kind of operation is called. */
export const NAMES = { SPLIT: "Split", MERGE: "Merge", REBUCKET: "Rebucket" };

/** What was decided, why, and what held it back. @param {any} decision @returns {Node[]} */
export function decisionParts(decision) {
  const what = decision.action ? actionsOf(decision).join("; ") : "No change";
  const { fired, heldBy = [], margins = [], nextEligibleAtMs, flaps, refused = [] } = decision.explanation;
  const next = nextEligibleAtMs ? [element("p", { class: "note" }, `Next possible at ${clock(nextEligibleAtMs)}.`)] : [];
  return [
    element("p", {}, element("b", {}, what), ` · ${verdict(decision).replace(/^no change, /, "")}`, element("span", { class: "note" }, ` · ${moment(decision.atMs)}`)),
    ...(flaps ? [element("p", { class: "banner error" }, "This takes back what was done shortly before: the thresholds may be too near each other.")] : []),
    ...list("Fired", fired ? [fired] : [], margin),
    ...list("Refused", refused, (one) => one.reason),
    ...list("Held back by", heldBy, guard),
    ...list("Nearest to acting", margins, margin),
    ...next,
  ];
}

/** Each action of a decision in words; older entries of the journal name only the first. */
function actionsOf({ action, segmentIds, explanation }) {
  const all = explanation.actions?.length ? explanation.actions : [{ action, segmentIds }];
  return all.map((one) => {
    const parts = one.cuts?.length > 1 ? ` into ${one.cuts.length + 1}` : one.bucketCount ? ` to ${one.bucketCount} entry buckets` : "";
    return `${NAMES[one.action]} of ${one.segmentIds.join(", ")}${parts}`;
  });
}

/** A line of the journal: when, what, and why or what held it back. */
export function entry(decision) {
  const { heldBy = [], fired, flaps } = decision.explanation;
  const why = decision.action ? fired ? margin(fired) : decision.rule : heldBy.length ? heldBy.map(guard).join("; ") : decision.rule;
  return element("li", { "data-key": decision.id }, element("span", { class: "note" }, `${moment(decision.atMs)} `),
    decision.action ? element("b", {}, actionsOf(decision).join("; ")) : "no change", ` · ${why}${flaps ? " · takes back an earlier change" : ""}`);
}

function list(title, items, sentence) {
  if (!items.length) return [];
  return [element("div", { class: "note" }, title), element("ul", { class: "guards" }, ...items.map((one) => element("li", {}, sentence(one))))];
}

const where = (one) => (one.segmentIds.length ? ` (segment${one.segmentIds.length > 1 ? "s" : ""} ${one.segmentIds.join(", ")})` : "");
const ruleOf = (one) => (one.rule === "all" ? "every rule" : one.rule);
const IN_SECONDS = /COOLDOWN|WINDOW|TOO_YOUNG/;

/** What a guard or a margin measures, with its unit: guards of time count seconds, margins rates or consumers. */
function amount({ guard = "", metric = "", rule = "" }, value) {
  if (IN_SECONDS.test(guard)) return duration(value * 1000);
  if (guard && !/PEAK/.test(guard)) return rate(value);
  const measured = metric || rule;
  if (/bytes/i.test(measured)) return `${bytes(value)}/s`;
  return /msg/i.test(measured) ? `${rate(value)}/s` : rate(value);
}

/** The numbers of a guard or a margin; what lets nothing pass has none to compare. */
function against(one) {
  if (one.current == null || one.threshold === 0) return "";
  return `: ${amount(one, one.current)}${one.threshold == null ? "" : ` against ${amount(one, one.threshold)}`}`;
}

const INSTANT = /\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)/g;

/** What else a guard or a margin tells, with its instants as the rest of the page writes them. */
const detail = (one) => (one.detail ? `, ${one.detail.replace(INSTANT, (instant) => moment(Date.parse(instant)))}` : "");

const margin = (one) => `${one.rule === one.metric ? one.rule : `${one.rule}, ${one.metric}`}${against(one)}${where(one)}${detail(one)}`;

function guard(one) {
  const until = one.nextEligibleAtMs ? `, until ${clock(one.nextEligibleAtMs)}` : "";
  return `${ruleOf(one)}: ${one.guard.toLowerCase().replaceAll("_", " ")}${against(one)}${where(one)}${until}${detail(one)}`;
}
