/** The jobs page: what runs on Spark and how far it is, read again as long as something is under way. */

import { ApiError, call, get } from "./api.js";
import { changing } from "./dialogs.js";
import { duration, element, moment, rate } from "./format.js";
import { Freshness } from "./freshness.js";

const PAGE = 25;
const BUSY_MS = 1000;
const IDLE_MS = 5000;
const TICK_MS = 250;
const JOBS = "/admin/v2/jobs";
const NAMES = { daily_report: "daily report", compact: "compaction", policy_replay: "policy replay" };
const LOOKS = { QUEUED: "", RUNNING: "live", SUCCEEDED: "", FAILED: "gone", CANCELLED: "lost" };
const OPEN = new Set(["QUEUED", "RUNNING"]);

/** @typedef {{done: number, total: number}} Counts */
/** @typedef {{jobId: string, kind: string, state: string, options: any, actor: string, createdAtMs: number, startedAtMs: number|null, endedAtMs: number|null, cancelRequested: boolean, stages: Counts, tasks: Counts, result: any, error: string}} Job */

const form = /** @type {HTMLFormElement} */ (document.getElementById("start"));
const go = /** @type {HTMLButtonElement} */ (document.getElementById("go"));
const place = document.getElementById("rows");
const fresh = new Freshness(document.getElementById("as-of"), document.getElementById("banner"));
/** The rows that are shown: a job that goes on keeps its row, so that nothing moves under a click. @type {Map<string, Row>} */
let rows = new Map();
let offset = 0;
let readAt = 0;
let reading = false;
let busy = true;
/** Whether the banner tells of a read: the next one that succeeds takes only that away, not why an action was refused. */
let stale = false;

/** @typedef {{row: HTMLElement, state: HTMLElement, bar: HTMLProgressElement, counts: HTMLElement, when: HTMLElement, result: HTMLElement, cancel: HTMLButtonElement, shown: string}} Row */

async function read() {
  if (reading) return;
  reading = true;
  try {
    const { jobs } = await get(`${JOBS}?limit=${PAGE + 1}&offset=${offset}`);
    draw(jobs);
    fresh.took(stale);
    stale = false;
  } catch (error) {
    stale = true;
    fresh.missed(error);
  } finally {
    readAt = Date.now();
    reading = false;
  }
}

/** @param {Job[]} jobs */
function draw(jobs) {
  const shown = jobs.slice(0, PAGE);
  busy = shown.some((job) => OPEN.has(job.state));
  const kept = new Map(shown.map((job) => [job.jobId, rows.get(job.jobId) ?? made(job)]));
  for (const [id, row] of rows) if (!kept.has(id)) row.row.remove();
  rows = kept;
  shown.forEach((job, index) => {
    const row = rows.get(job.jobId);
    if (place.children[index] !== row.row) place.insertBefore(row.row, place.children[index] ?? null);
    update(row, job);
  });
  const running = shown.filter((job) => OPEN.has(job.state)).length;
  const summary = running ? `${running} under way` : "nothing under way";
  if (document.getElementById("summary").textContent !== summary) document.getElementById("summary").textContent = summary;
  document.getElementById("empty").hidden = shown.length > 0 || offset > 0;
  document.getElementById("jobs").hidden = shown.length === 0;
  document.getElementById("page").textContent = shown.length ? `${offset + 1}–${offset + shown.length}` : "";
  disable("previous", offset === 0);
  disable("next", jobs.length <= PAGE);
}

/** @param {Job} job @returns {Row} */
function made(job) {
  const parts = {
    state: element("span", { class: "state" }),
    bar: /** @type {HTMLProgressElement} */ (element("progress", { max: 1, value: 0, "aria-label": "Tasks done" })),
    counts: element("span", { class: "note" }),
    when: element("td", { class: "when", "data-label": "Started" }),
    result: element("td", { "data-role": "result" }),
    cancel: /** @type {HTMLButtonElement} */ (element("button", { type: "button", class: "small", "data-role": "cancel", onclick: () => cancel(job.jobId) }, "Cancel")),
  };
  const row = element("tr", { "data-job": job.jobId, title: `Job ${job.jobId}` },
    element("td", {}, NAMES[job.kind] ?? job.kind), element("td", { "data-role": "state" }, parts.state),
    element("td", { "data-role": "progress" }, parts.bar, parts.counts), element("td", { "data-label": "Of" }, told(job.options)),
    element("td", { "data-label": "By" }, job.actor), parts.when, parts.result, element("td", { class: "actions" }, parts.cancel));
  changing(parts.cancel);
  return { row, ...parts, shown: "" };
}

/** What was asked for, in a few words. @param {any} options */
function told({ day, lastDay, before, namespace, policies }) {
  const days = lastDay ? `${day} to ${lastDay}` : day ?? (before ? `before ${before}` : "");
  return [days, namespace, ...Object.keys(policies ?? {})].filter(Boolean).join(", ") || "–";
}

/** @param {Row} row @param {Job} job */
function update(row, job) {
  const text = JSON.stringify(job);
  if (row.shown === text) return;
  row.shown = text;
  const waits = OPEN.has(job.state);
  row.state.className = `state ${LOOKS[job.state]}`;
  row.state.textContent = waits && job.cancelRequested ? "ending" : job.state.toLowerCase();
  row.bar.hidden = !job.tasks.total || !waits;
  row.bar.max = Math.max(1, job.tasks.total);
  row.bar.value = job.tasks.done;
  row.counts.textContent = counted(job);
  row.when.textContent = job.startedAtMs ? `${moment(job.startedAtMs)}${job.endedAtMs ? `, took ${duration(job.endedAtMs - job.startedAtMs)}` : ""}` : "–";
  row.result.replaceChildren(...result(job));
  row.cancel.hidden = !waits || job.cancelRequested;
}

/** How far a job is, or was when it ended; one that did all of it only says how much that was. @param {Job} job */
function counted({ state, tasks, stages }) {
  if (!tasks.total) return state === "RUNNING" ? "Spark starts" : "";
  if (state === "SUCCEEDED") return `${tasks.done} tasks in ${stages.done} stage${stages.done === 1 ? "" : "s"}`;
  return `${tasks.done} of ${tasks.total} tasks, ${stages.done} of ${stages.total} stages`;
}

/** Links to what a job wrote, what it counted, or why it failed. @param {Job} job @returns {(Node|string)[]} */
function result({ jobId, result: found, error }) {
  if (error) return [element("span", { class: "note", title: error }, error.length > 160 ? `${error.slice(0, 160)}…` : error)];
  if (!found) return [];
  const written = Array.isArray(found.files) ? found.files : [];  // a compaction counts its files, and writes none to show
  const files = written.flatMap((name) => [element("a", { href: `${JOBS}/${jobId}/files/${encodeURIComponent(name)}`, target: name.endsWith(".html") ? "_blank" : null, rel: "noopener" }, name), " "]);
  const compared = (found.policies ?? []).map((one) => element("div", { class: "note" }, `${one.policy}: violations ${hundredths(one.violation_percent)} %, ${hundredths(one.segments_over_clairvoyant)} times the least segments, ${numbered(one.actions, "actions")}`));
  const counts = Object.entries(found).filter(([, value]) => typeof value === "number").map(([name, value]) => numbered(value, name));
  const sums = written.length ? [] : [counts.join(", ")];
  const damaged = found.unreadable?.length ? [element("div", { class: "note", title: found.unreadable.join("\n") }, `${numbered(found.unreadable.length, "files")} could not be read`)] : [];
  return [...files, ...compared, ...sums, ...damaged];
}

/** @param {number} count @param {string} what in the plural */
function numbered(count, what) {
  return `${rate(count)} ${count === 1 ? what.replace(/s$/, "") : what}`;
}

/** A mean, of which there may be none. @param {number|null} value */
function hundredths(value) {
  return value == null ? "–" : value.toFixed(2);
}

async function cancel(jobId) {
  await act(() => call("POST", `${JOBS}/${jobId}/cancel`));
}

async function act(change) {
  try {
    await change();
    complain("");
  } catch (error) {
    stale = false;
    complain(error instanceof ApiError ? error.sentence : `Not done: ${error}`);
    return;
  }
  await read();
}

function complain(text) {
  const banner = document.getElementById("banner");
  banner.hidden = !text;
  if (banner.textContent !== text) banner.textContent = text;
}

function disable(id, off) {
  /** @type {HTMLButtonElement} */ (document.getElementById(id)).disabled = off;
}

function suit() {
  const kind = form.elements.namedItem("kind").value;
  for (const label of /** @type {NodeListOf<HTMLElement>} */ (form.querySelectorAll("[data-of]"))) label.hidden = !label.dataset.of.split(" ").includes(kind);
}

/** The body of the request: what is filled in and fits the kind. */
function asked() {
  const body = {};
  for (const field of /** @type {NodeListOf<HTMLInputElement>} */ (form.querySelectorAll("[name]")))
    if (field.value && !field.closest("[hidden]")) body[field.name] = field.value;
  if (body.policy) {
    body.policies = { page: JSON.parse(body.policy) };
    delete body.policy;
  }
  return body;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  go.disabled = true;
  await act(async () => call("POST", JOBS, asked()));
  go.disabled = false;
});
form.addEventListener("change", suit);
document.getElementById("previous").addEventListener("click", () => turn(-PAGE));
document.getElementById("next").addEventListener("click", () => turn(PAGE));

function turn(by) {
  offset = Math.max(0, offset + by);
  read();
}

suit();
changing(go);
read();
setInterval(() => {
  if (!document.hidden && Date.now() - readAt >= (busy ? BUSY_MS : IDLE_MS)) read();
}, TICK_MS);
