/** The subscriptions of a topic: backlog, consumers, what waits for what; seek with a preview, clear, delete. */

import { call, get } from "./api.js";
import { READ_ONLY, ask, changing, confirm, disabled, lacking } from "./dialogs.js";
import { clock, element, rate } from "./format.js";
import { renew } from "./renew.js";

const SHORTEST_MS = 500;
const COLUMNS = 6;

/** @typedef {{segmentId: number, unackedMessages: number}} Wait */
/** @typedef {{msgBacklog: number, position: number, endOffset: number, consumerCount: number, waitsFor: Wait[]}} Part */
/** @typedef {{consumerName: string, session: string, standby: boolean, segmentIds: number[], entryBuckets: Object<string, string[]>|null}} Consumer */

const count = (number, noun) => `${rate(number)} ${noun}${number === 1 ? "" : "s"}`;

/** Only the node that leads the topic knows who is connected; others know who is registered. */
const SESSIONS = { CONNECTED: "connected", GRACE: "away", UNKNOWN: "registered" };

/** What keeps a segment shut, in words. @param {string|number} id @param {Part} part */
export const waiting = (id, part) =>
  `${id} waits for ${part.waitsFor.map((one) => `${one.segmentId}, ${rate(one.unackedMessages)} unacknowledged`).join("; ")}`;

/** How many consumers are in which state, in words. @param {Consumer[]} consumers */
export function attendance(consumers) {
  if (!consumers.length) return "none";
  const found = Object.entries(SESSIONS).map(([state, word]) => [consumers.filter((one) => one.session === state).length, word]);
  const standby = consumers.filter((one) => one.standby).length;
  return [...found.filter(([number]) => number).map(([number, word]) => `${number} ${word}`), ...(standby ? [`${standby} standing by`] : [])].join(", ");
}

export class Subscriptions {
  /** @param {string} path of the topic @param {(error: unknown) => void} onRead told how each read went, null when well */
  constructor(path, onRead) {
    this.path = path;
    this.onRead = onRead;
    this.stats = null;
    this.opened = new Set();
    this.readAt = 0;
    this.reading = null;
    this.again = false;
    this.place = document.getElementById("subscription-rows");
    this.interval = /** @type {HTMLSelectElement} */ (document.getElementById("subscriptions-interval"));
    this.interval.addEventListener("change", () => this.tick());
    document.getElementById("subscriptions-refresh").addEventListener("click", () => this.read());
    setInterval(() => this.tick(), SHORTEST_MS);
  }

  /** Read again when the chosen time is over. */
  tick() {
    const everyMs = Number(this.interval.value);
    if (everyMs && !document.hidden && Date.now() - this.readAt >= everyMs) this.read();
  }

  /** Read now; what is asked for meanwhile is read once more afterwards. */
  async read() {
    if (this.reading) return void (this.again = true);
    this.reading = get(`${this.path}/stats`);
    try {
      this.stats = await this.reading;
      this.draw();
      document.getElementById("subscriptions-as-of").textContent = `as of ${clock(Date.now())}`;
      this.onRead(null);
    } catch (error) {
      document.getElementById("subscriptions-as-of").textContent = "could not be read";
      this.onRead(error);
    } finally {
      this.readAt = Date.now();
      this.reading = null;
    }
    if (this.again) {
      this.again = false;
      setTimeout(() => this.read(), SHORTEST_MS);
    }
  }

  draw() {
    const names = Object.keys(this.stats.subscriptions);
    document.getElementById("subscriptions-empty").hidden = names.length > 0;
    document.getElementById("subscriptions").hidden = names.length === 0;
    renew(this.place, names.flatMap((name) => this.rows(name, this.stats.subscriptions[name])));
  }

  rows(name, one) {
    const open = this.opened.has(name);
    const shut = Object.entries(one.segments).filter(([, part]) => part.waitsFor.length);
    const toggle = element("button", { type: "button", class: "quiet small toggle", "data-role": "toggle", "aria-expanded": String(open), title: name, onclick: () => this.toggle(name) }, name);
    const action = (role, text, act) => element("button", { type: "button", class: "small", "data-role": role, "aria-label": `${text} ${name}`, onclick: act }, `${text}…`);
    const movable = one.type !== "CHECKPOINT";
    const row = element("tr", { "data-key": name, "data-subscription": name },
      element("td", { class: "name" }, toggle),
      element("td", {}, one.type + (one.keyShared ? ", key-shared" : "")),
      element("td", {}, one.type === "QUEUE" ? "on every segment" : attendance(one.consumers)),
      element("td", { class: "number", "data-role": "backlog" }, (one.backlogExact ? "" : "≤ ") + rate(one.msgBacklog)),
      element("td", { class: shut.length ? "waits" : null }, shut.length ? waiting(shut[0][0], shut[0][1]) + (shut.length > 1 ? ` (and ${shut.length - 1} more)` : "") : "–"),
      element("td", { class: "actions" },
        ...(movable ? [disabled(action("seek", "Seek", () => this.askSeek(name)), lacking("consume")), changing(action("clear", "Clear", () => this.askClear(name)), "consume")] : []),
        changing(action("delete", "Delete", () => this.askDelete(name, one)), "consume")));
    return open ? [row, element("tr", { class: "details", "data-key": `${name}/` }, element("td", { colspan: COLUMNS }, details(one)))] : [row];
  }

  toggle(name) {
    if (!this.opened.delete(name)) this.opened.add(name);
    this.draw();
  }

  address(name, action = "") {
    return `${this.path}/subscriptions/${encodeURIComponent(name)}${action}`;
  }

  /** Preview first; what was previewed is then done, unless another start was chosen meanwhile, or nothing may be. */
  askSeek(name) {
    const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("seek-dialog"));
    const form = /** @type {HTMLFormElement} */ (dialog.querySelector("form"));
    const go = /** @type {HTMLButtonElement} */ (document.getElementById("seek-go"));
    const found = document.getElementById("seek-preview");
    let previewed = null;
    const forget = () => {
      previewed = null;
      go.textContent = "Preview";
      found.replaceChildren();
      form.elements["time"].disabled = form.elements["from"].value !== "time";
    };
    document.getElementById("seek-title").textContent = `Seek ${name}`;
    if (!form.elements["time"].value) form.elements["time"].value = localTime(Date.now() - 3600000);
    form.oninput = forget;
    forget();
    ask(dialog, async () => {
      const timestamp = startOf(form);
      if (previewed === timestamp) return this.move(this.address(name, `/seek?timestamp=${timestamp}`));
      const { body } = await call("POST", this.address(name, `/seek?timestamp=${timestamp}&preview=true`));
      found.replaceChildren(...preview(body));
      if (READ_ONLY) return false;
      previewed = timestamp;
      go.textContent = "Seek";
      return false;
    });
  }

  async askClear(name) {
    const { body } = await call("POST", this.address(name, "/skip-all?preview=true")).catch((error) => this.say(`Not possible: ${error.message}`));
    if (body) this.confirm(`Clear the backlog of ${name}?`, "Clear", [
      `${count(body.backlogBefore, "message")} will never be received. Consumers go on with what is sent from now on.`,
    ], "POST", this.address(name, "/skip-all"));
  }

  askDelete(name, one) {
    const consumers = one.consumers.length;
    this.confirm(`Delete ${name}?`, "Delete", [
      `Its position is forgotten, with ${count(one.msgBacklog, "message")} not acknowledged.`,
      ...(consumers ? [`${count(consumers, "consumer")} will be disconnected.`] : []),
      "What it alone held back may be pruned.",
    ], "DELETE", this.address(name));
  }

  /** Say something in the panel's head, in place of an answer. */
  say(text) {
    document.getElementById("subscriptions-as-of").textContent = text;
    return {};
  }

  confirm(title, verb, sentences, method, path) {
    confirm({ title, verb, says: sentences, destroys: true }, () => this.move(path, method));
  }

  async move(path, method = "POST") {
    await call(method, path);
    this.read();
  }
}

/** Per-segment numbers and the consumers of one subscription. */
function details(one) {
  const number = (text) => element("td", { class: "number" }, text);
  const parts = Object.entries(one.segments).filter(([, part]) => part.msgBacklog || part.consumerCount);
  const segments = parts.length
    ? element("table", { class: "list inner" },
        element("thead", {}, element("tr", {}, ...["Segment", "Position", "End", "Backlog"].map((text) => element("th", { class: "number" }, text)), element("th", {}, "Waits for"))),
        element("tbody", {}, ...parts.map(([id, part]) => element("tr", {}, number(id), number(rate(part.position)), number(rate(part.endOffset)), number(rate(part.msgBacklog)),
          element("td", { class: part.waitsFor.length ? "waits" : null }, part.waitsFor.length ? waiting(id, part) : "–")))))
    : element("p", { class: "note" }, "Nothing is left to receive.");
  const consumers = one.consumers.map((each) => element("li", {}, element("b", {}, each.consumerName), ` ${SESSIONS[each.session] ?? each.session.toLowerCase()}, `,
    each.standby ? "standing by" : each.segmentIds.length ? `reads ${each.segmentIds.map((id) => share(each, id, one.segments[id])).join(", ")}` : "waits to take over"));
  return element("div", { class: "beside" }, element("div", { class: "scroll bounded" }, segments), element("ul", { class: "guards" }, ...consumers));
}

/** A segment that a consumer reads, with the entry buckets that it has of it, unless it has them all. */
function share(consumer, id, part) {
  const ranges = consumer.entryBuckets?.[id];
  return !ranges || part?.consumerCount === 1 ? String(id) : `${id} (entry buckets ${ranges.join(", ")})`;
}

/** What a seek would do: a sentence, and each segment that moves. */
function preview(body) {
  const moved = body.segments.filter((one) => one.fromPosition !== one.toPosition);
  const sentence = `${count(body.backlogAfter, "message")} to receive afterwards, ${rate(body.backlogBefore)} now.`;
  if (!moved.length) return [element("p", {}, sentence), element("p", { class: "note" }, "No position changes.")];
  const number = (text) => element("td", { class: "number" }, text);
  return [element("p", {}, sentence), element("div", { class: "scroll bounded", tabindex: "0", "aria-label": "Moves by segment" }, element("table", { class: "list" },
    element("thead", {}, element("tr", {}, ...["Segment", "Position", "New position", "Backlog", "New backlog"].map((text) => element("th", { class: "number" }, text)))),
    element("tbody", {}, ...moved.map((one) => element("tr", {}, number(String(one.segmentId)), number(rate(one.fromPosition)), number(rate(one.toPosition)), number(rate(one.backlogBefore)), number(rate(one.backlogAfter)))))))];
}

/** The chosen start in milliseconds. @param {HTMLFormElement} form */
function startOf(form) {
  if (form.elements["from"].value === "beginning") return 0;
  return new Date(form.elements["time"].value).getTime();
}

/** A moment as the input for local times wants it. @param {number} ms */
function localTime(ms) {
  const shifted = new Date(ms - new Date(ms).getTimezoneOffset() * 60000);
  return shifted.toISOString().slice(0, 19);
}
