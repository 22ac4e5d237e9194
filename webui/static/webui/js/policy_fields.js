/** The fields of a policy as a person reads and writes them: in groups, with units; what is typed as REST takes it. */

import { element, rate } from "./format.js";

/** Fields by what they are about; one that is in none of them comes last. */
const GROUPS = {
  "Profile": ["profile"],
  "Bounds": ["enabled", "minSegments", "maxSegments", "maxDagDepth", "maxActionsPerTick"],
  "A segment is split above": ["splitMsgRateInThreshold", "splitBytesRateInThreshold", "splitMsgRateOutThreshold", "splitBytesRateOutThreshold"],
  "Neighbours are merged below": ["mergeMsgRateInThreshold", "mergeBytesRateInThreshold", "mergeMsgRateOutThreshold", "mergeBytesRateOutThreshold"],
  "Pace": ["autoScaleIntervalSeconds", "splitCooldownSeconds", "mergeCooldownSeconds", "mergeWindowSeconds", "loadReportIntervalSeconds", "rateWindowSeconds"],
  "How it splits": ["maxSplitChildren", "splitTargetShare", "loadBalancedSplit", "isolateDominantKey", "dominantKeyShare", "lookAheadSeconds"],
  "How it merges": ["minMergeSegments", "maxMergeSegments", "mergeTargetShare", "mergePeakSeconds", "mergeMinAgeSeconds", "mergeRepeatSeconds", "mergeKeepsConsumers", "mergeMakesRoom"],
  "Entry buckets": ["entryBucketLane", "rebucketCooldownSeconds", "splitVsRebucketMinMsgRateInThreshold"],
};
const FEW = new Set(["profile", "enabled", "minSegments", "maxSegments", "splitMsgRateInThreshold", "mergeMsgRateInThreshold", "autoScaleIntervalSeconds"]);

/** @typedef {{policy: Record<string, any>, sources: Record<string, string>, violations: string[]}} Effective */
/** @typedef {Record<string, string>} Draft what is typed, by field; a field that is not there is inherited */

/** All fields of a policy in groups. @param {Effective} effective @returns {[string, string[]][]} */
export function grouped(effective) {
  const left = new Set(Object.keys(effective.policy));
  const groups = Object.entries(GROUPS).map(([name, fields]) => /** @type {[string, string[]]} */ ([name, fields.filter((one) => left.delete(one))]));
  return [...groups, /** @type {[string, string[]]} */ (["Other", [...left]])].filter(([, fields]) => fields.length);
}

/** Whether a field is worth a line when not all are shown: the main ones, and those that somebody set. @param {string} name @param {Effective} effective */
export const matters = (name, effective) => FEW.has(name) || !["default", "profile"].includes(effective.sources[name]);

/** @param {string} name */
export function unitOf(name) {
  if (name.endsWith("Seconds")) return "s";
  if (/BytesRate/.test(name)) return "bytes/s";
  return /MsgRate/.test(name) ? "messages/s" : "";
}

/** A value as a person reads it. @param {any} value */
export function plain(value) {
  if (typeof value === "boolean") return value ? "yes" : "no";
  return Number.isInteger(value) ? rate(value) : String(value ?? "–");
}

/** The same with its unit. @param {string} name @param {any} value */
export const shown = (name, value) => `${plain(value)} ${typeof value === "number" ? unitOf(name) : ""}`.trim();

/** What is typed for an override. @param {Record<string, any>} override @returns {Draft} */
export const draftOf = (override) => Object.fromEntries(Object.entries(override).map(([name, value]) => [name, String(value)]));

/** The override that a draft stands for; what is no number goes as it is, so that the server says what is wrong. @param {Draft} draft @param {Record<string, any>} known values by which a field's type is told */
export function overrideOf(draft, known) {
  const typed = Object.entries(draft).filter(([, text]) => text.trim() !== "");
  return Object.fromEntries(typed.map(([name, text]) => [name, read(text.trim(), known[name])]));
}

function read(text, known) {
  if (typeof known === "boolean") return text === "true";
  if (typeof known === "string") return text;
  const number = Number(text);
  return Number.isFinite(number) ? number : text;
}

/** In what two overrides differ, in words. @param {Record<string, any>} before @param {Record<string, any>} after */
export function differences(before, after) {
  const say = (name, one) => (Object.hasOwn(one, name) ? shown(name, one[name]) : "inherited");
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  return names.filter((name) => before[name] !== after[name]).map((name) => `${name} was ${say(name, before)}, is now ${say(name, after)}`);
}

/**
 * A control for one field.
 * @param {string} name @param {string} text what is typed @param {any} value that holds, by which the type is told @param {string[]} profiles
 */
export function control(name, text, value, profiles) {
  const attributes = { name, id: `policy-field-${name}`, "aria-describedby": `policy-source-${name}` };
  if (typeof value !== "boolean" && name !== "profile")
    return element("input", { ...attributes, value: text, inputmode: "decimal", autocomplete: "off", spellcheck: "false" });
  const choices = name === "profile" ? profiles.map((one) => [one, one]) : [["true", "yes"], ["false", "no"]];
  const made = /** @type {HTMLSelectElement} */ (element("select", attributes, element("option", { value: "" }, "inherited"),
    ...choices.map(([key, label]) => element("option", { value: key }, label))));
  made.value = text;
  return made;
}
