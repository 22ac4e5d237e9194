/** Load as colour: 0 at the merge threshold, 1 at the split threshold, on a logarithmic scale, drawn in viridis. */

const STOPS = [
  [68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142],
  [31, 158, 137], [53, 183, 121], [109, 205, 89], [180, 222, 44], [253, 231, 37],
];

/** The load fields and the policy fields that each is measured by. */
export const METRICS = [
  ["msgRateIn", "splitMsgRateInThreshold", "mergeMsgRateInThreshold"],
  ["bytesRateIn", "splitBytesRateInThreshold", "mergeBytesRateInThreshold"],
  ["msgRateOut", "splitMsgRateOutThreshold", "mergeMsgRateOutThreshold"],
  ["bytesRateOut", "splitBytesRateOutThreshold", "mergeBytesRateOutThreshold"],
];

/** @param {number} level 0..1 @returns {string} */
export function ramp(level) {
  const at = Math.min(1, Math.max(0, level)) * (STOPS.length - 1);
  const low = Math.min(STOPS.length - 2, Math.floor(at));
  const mix = STOPS[low].map((value, index) => Math.round(value + (STOPS[low + 1][index] - value) * (at - low)));
  return `rgb(${mix.join(", ")})`;
}

/** How far a rate is between two thresholds. @param {number} rate @param {number} split @param {number} merge */
export function level(rate, split, merge) {
  if (!(split > 0)) return 0;
  const low = Math.log1p(Math.max(0, merge));
  return Math.min(1, Math.max(0, (Math.log1p(rate) - low) / (Math.log1p(split) - low)));
}

/**
 * The highest level of a load over the four metrics, and the metric that gives it.
 * @param {Record<string, number>|undefined} load @param {Record<string, number>} policy
 * @returns {{level: number, metric: string, share: number}|null} share: rate over split threshold; null when unknown
 */
export function heat(load, policy) {
  if (!load) return null;
  let found = { level: 0, metric: "msgRateIn", share: 0 };
  for (const [metric, split, merge] of METRICS) {
    const share = policy[split] > 0 ? load[metric] / policy[split] : 0;
    if (share > found.share) found = { level: level(load[metric], policy[split], policy[merge]), metric, share };
  }
  return found;
}
