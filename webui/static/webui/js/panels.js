/** Tables and panels beside the map: active segments, operations with their steps, the last decision, the selection. */

import { call } from "./api.js";
import { heat } from "./colour.js";
import { decisionParts, NAMES } from "./decisions.js";
import { changing, confirm } from "./dialogs.js";
import { bytes, duration, element, moment, range, rate } from "./format.js";
import { Journal } from "./journal.js";
import { active, loadKnown, loadOf, policyOf } from "./model.js";
import { renew } from "./renew.js";

const NO_REPORT = "There is no recent load report";
const PHASES = ["PLANNED", "CHILDREN_CREATED", "TERMINATING", "PARENTS_TERMINATED", "COMMITTED", "NOTIFIED"];
const SOME_PORTS = ["CHILDREN_CREATED", "TERMINATING", "PARENTS_TERMINATED"];

/** @param {import("./model.js").Topic} topic @param {import("./model.js").Segment[]} segments */
export function figures(topic, segments) {
  const loads = segments.map((one) => loadOf(topic, one.segmentId)).filter(Boolean);
  const sum = (field) => loads.reduce((total, load) => total + load[field], 0);
  // The known part of a sum is a lower bound; one of nothing tells nothing.
  const all = loads.length === segments.length;
  const partly = (total) => (all ? rate(total) : total > 0 ? `≥ ${rate(total)}` : "unknown");
  const put = (id, text) => (document.getElementById(`figure-${id}`).textContent = text);
  put("active", String(segments.length));
  put("sealed", String(topic.segments.size - segments.length));
  put("epoch", String(topic.epoch));
  put("leader", topic.leaderUrl ?? "none");
  document.getElementById("figure-leader").title = topic.leaderUrl ? "The node that leads this topic's consumers" : "A topic is led once a consumer asks";
  put("term", String(topic.term));
  put("in", partly(sum("msgRateIn")));
  put("out", partly(sum("msgRateOut")));
  const why = loadKnown(topic) ? "" : NO_REPORT;
  for (const id of ["figure-in", "figure-out"]) document.getElementById(id).title = why;
}

export class Panels {
  /** @param {string} path @param {(id: number) => void} onSelect */
  constructor(path, onSelect) {
    this.path = path;
    this.onSelect = onSelect;
    this.topic = null;
    this.selected = null;
    this.chosen = new Set();
    this.journal = new Journal(path);
    document.getElementById("merge").addEventListener("click", () => this.askMerge());
  }

  /** @param {import("./model.js").Topic} topic */
  show(topic) {
    this.topic = topic;
    this.drawSegments();
    this.drawOperations();
    this.drawDecision();
    this.journal.show(topic.detail?.decision?.id ?? null);
    this.drawSelected();
  }

  select(id) {
    this.selected = id;
    for (const row of document.querySelectorAll("#segment-rows tr")) row.classList.toggle("selected", Number(row.dataset.segment) === id);
    this.drawSelected();
  }

  drawSegments() {
    const list = active(this.topic);
    const ids = new Set(list.map((one) => one.segmentId));
    this.chosen = new Set([...this.chosen].filter((id) => ids.has(id)));
    renew(document.getElementById("segment-rows"), list.map((one) => this.row(one)));
    this.drawMergeButton();
  }

  row(one) {
    const load = loadOf(this.topic, one.segmentId);
    const found = heat(load, policyOf(this.topic));
    const label = `Select segment ${one.segmentId} for a merge`;
    const box = element("input", { type: "checkbox", "aria-label": label, "data-role": "box", onchange: (event) => this.choose(one.segmentId, event.target.checked) });
    const split = element("button", { type: "button", class: "small", "data-role": "split", onclick: () => this.askSplit(one) }, "Split…");
    split.disabled = one.start === one.end;
    if (split.disabled) split.title = "One hash wide: it cannot be split";
    const rebucket = element("button", { type: "button", class: "small", "data-role": "rebucket", onclick: () => this.askRebucket(one) }, "Rebucket…");
    const number = (text) => element("td", { class: "number" }, text);
    const why = load ? null : loadKnown(this.topic) ? "Nothing was reported of this segment yet" : NO_REPORT;
    const measured = (text) => element("td", { class: "number", title: why }, text);
    const row = element("tr", { "data-key": one.segmentId, "data-segment": one.segmentId, class: one.segmentId === this.selected ? "selected" : null },
      element("td", {}, box),
      element("td", { class: "number" }, element("button", { type: "button", class: "quiet small", "data-role": "pick", onclick: () => this.onSelect(one.segmentId) }, String(one.segmentId))),
      element("td", { class: "code" }, range(one)),
      number(`${(((one.end - one.start + 1) / 65536) * 100).toFixed(1)} %`),
      measured(rate(load?.msgRateIn)), measured(bytes(load?.bytesRateIn)),
      measured(rate(load?.msgRateOut)), measured(bytes(load?.bytesRateOut)),
      element("td", { title: why }, gauge(found)),
      number(String(one.entryBucketSplits.length + 1)),
      element("td", {}, one.parentIds.join(", ") || "–"),
      element("td", { title: moment(one.createdAtMs) }, duration(Date.now() - one.createdAtMs)),
      element("td", { class: "actions" }, changing(split), changing(rebucket)));
    return row;
  }

  choose(id, on) {
    if (on) this.chosen.add(id);
    else this.chosen.delete(id);
    this.drawMergeButton();
  }

  drawMergeButton() {
    const button = document.getElementById("merge");
    const picked = active(this.topic).filter((one) => this.chosen.has(one.segmentId));
    const adjacent = picked.every((one, index) => index === 0 || picked[index - 1].end + 1 === one.start);
    button.disabled = picked.length < 2 || !adjacent;
    button.title = picked.length < 2 ? "Select two or more neighbours" : adjacent ? "" : "Only neighbours in the hash range merge";
    button.textContent = picked.length > 1 ? `Merge ${picked.length} selected…` : "Merge selected…";
    changing(button);
  }

  askSplit(one) {
    const middle = one.start + Math.floor((one.end - one.start) / 2);
    this.confirm(`Split segment ${one.segmentId}?`, "Split", [
      `${range(one)} is sealed and becomes ${range({ start: one.start, end: middle })} and ${range({ start: middle + 1, end: one.end })}.`,
      "Producers and consumers go on; readers finish the parent before its children.",
    ], `/split/${one.segmentId}`);
  }

  askMerge() {
    const picked = active(this.topic).filter((one) => this.chosen.has(one.segmentId));
    const ids = picked.map((one) => one.segmentId);
    this.confirm(`Merge segments ${ids.join(", ")}?`, "Merge", [
      `They are sealed and become one segment ${range({ start: picked[0].start, end: picked.at(-1).end })}.`,
      "Its readers wait until all of them are drained.",
    ], "/merge", { segmentIds: ids });
  }

  askRebucket(one) {
    const buckets = one.entryBucketSplits.length + 1;
    const input = /** @type {HTMLInputElement} */ (element("input", { type: "number", name: "bucketCount", min: "1", value: String(buckets * 2), required: true }));
    this.confirm(`Rebucket segment ${one.segmentId}?`, "Rebucket", [
      `${range(one)} is sealed; a segment of the same range goes on with another number of entry buckets, ${buckets} now.`,
      "Key-shared consumers of a segment own whole entry buckets, so this is how many of them can read it together.",
      element("label", {}, "Entry buckets", input),
    ], () => `/rebucket/${one.segmentId}?bucketCount=${input.value}`);
    input.select();
  }

  /** Ask once, then send with the epoch that the person saw. */
  confirm(title, verb, sentences, action, body) {
    const epoch = this.topic.epoch;
    const address = () => {
      const path = typeof action === "string" ? action : action();
      return `${this.path}${path}${path.includes("?") ? "&" : "?"}expectedEpoch=${epoch}`;
    };
    confirm({ title, verb, says: sentences }, () => call("POST", address(), body, { Prefer: "respond-async" }));
  }

  drawOperations() {
    const all = this.topic.detail?.operations ?? [];
    renew(document.getElementById("operations"),
      all.length ? all.map((one) => operation(one)) : [element("p", { class: "note" }, "None yet. A split, merge or rebucket shows its steps here.")]);
  }

  drawDecision() {
    const decision = this.topic.detail?.decision;
    const parts = decision ? decisionParts(decision) : [element("p", { class: "note" }, "The autoscaler has not looked at this topic yet.")];
    if (this.topic.detail && !this.topic.detail.loadKnown)
      parts.push(element("p", { class: "note" }, "The load is not known: there is no recent load report. Load rules hold still."));
    renew(document.getElementById("decision"), parts);
  }

  drawSelected() {
    const one = this.topic?.segments.get(this.selected);
    const pairs = !one ? [element("p", { class: "note" }, "Choose a segment in the map or the table.")] : [element("dl", { class: "pairs" },
      ...[["Id", one.segmentId], ["Hash range", range(one)], ["Entry buckets", one.entryBucketSplits ? one.entryBucketSplits.length + 1 : "–"], ["State", one.state], ["Created", `${moment(one.createdAtMs)}, epoch ${one.createdAtEpoch}`],
        ["Sealed", one.state !== "ACTIVE" ? `${moment(one.sealedAtMs)}, epoch ${one.sealedAtEpoch}` : "–"],
        ["Parents", one.parentIds.join(", ") || "–"], ["Children", one.childIds.join(", ") || "–"], ["Served by", one.nodeUrl ?? "–"],
      ].flatMap(([name, value]) => [element("dt", {}, String(name)), element("dd", {}, String(value))]))];
    renew(document.getElementById("selected"), pairs);
  }
}

function gauge(found) {
  if (!found) return element("span", { class: "note" }, "unknown");
  const percent = Math.round(found.share * 100);
  const bar = element("i", {});
  bar.style.width = `${Math.min(100, percent)}%`;
  return element("span", { title: `${found.metric}: ${percent} % of the split threshold` },
    element("span", { class: `gauge ${found.share > 1 ? "over" : ""}` }, bar), ` ${percent} %`);
}

/** The steps that were taken, then those to come: the first of them is under way. One commit takes those of SOME_PORTS. */
function stepsOf(one) {
  const reached = PHASES.indexOf(one.phase);
  const passed = PHASES.filter((phase, index) => index === reached || (index < reached && phase in (one.timings ?? {})));
  const byPhases = passed.some((phase) => SOME_PORTS.includes(phase));
  const ahead = one.outcome ? [] : PHASES.slice(reached + 1).filter((phase) => byPhases || !SOME_PORTS.includes(phase));
  return [...passed.map((phase) => [phase, "done"]), ...ahead.map((phase, index) => [phase, index ? "" : "now"])];
}

function operation(one) {
  const steps = stepsOf(one).map(([phase, state]) => {
    const taken = one.timings?.[phase];
    return element("li", { class: state }, phase.toLowerCase().replaceAll("_", " ") + (taken == null ? "" : ` ${duration(taken)}`));
  });
  return element("div", { class: "operation", "data-key": one.operationId, "data-operation": one.operationId },
    element("b", {}, `${NAMES[one.kind]} ${one.plan.parentIds.join(", ")} → ${one.plan.children.map((child) => child.segmentId).join(", ")}`), " ",
    element("span", { class: `outcome ${one.outcome ?? ""}` }, one.outcome ? one.outcome.toLowerCase() : `running for ${duration(Date.now() - one.createdAtMs)}`),
    element("div", { class: "note" }, `${one.actor} · ${one.reason} · ${moment(one.createdAtMs)}`),
    element("ol", { class: "steps" }, ...steps),
    ...(one.error ? [element("div", { class: "banner error" }, one.error.reason ?? JSON.stringify(one.error))] : []));
}
