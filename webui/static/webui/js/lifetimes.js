/** How long a topic, or the topics of a namespace, keep messages and sessions: what holds, and a dialog to set it. */

import { call, get } from "./api.js";
import { ask, changing } from "./dialogs.js";
import { duration, element, rate } from "./format.js";
import { trouble } from "./freshness.js";
import { renew } from "./renew.js";

const NAMES = { retentionSeconds: "Retention of read messages", sessionGraceSeconds: "Grace of a consumer that is away" };

/** @param {string} name @param {number} seconds */
function lasting(name, seconds) {
  if (name === "retentionSeconds" && seconds < 0) return "for ever";
  const whole = `${rate(seconds)} s`;
  return seconds < 120 ? whole : `${whole} (${duration(seconds * 1000)})`;
}

export class Lifetimes {
  /** @param {string} path of the door */
  constructor(path) {
    this.path = path;
    this.place = document.getElementById("lifetimes-pairs");
    this.button = /** @type {HTMLButtonElement} */ (document.getElementById("lifetimes-edit"));
    this.button.addEventListener("click", () => this.open());
  }

  async read() {
    try {
      this.body = await get(this.path);
      renew(this.place, Object.keys(NAMES).flatMap((name) => [element("dt", {}, NAMES[name]), element("dd", { "data-field": name }, this.said(name))]));
      this.button.disabled = false;
      changing(this.button);
    } catch (error) {
      renew(this.place, [element("dt", {}, `It cannot be read: ${trouble(error)}`)]);
    }
  }

  /** What holds and who set it. */
  said(name) {
    const { value, source } = this.body.effective[name];
    if (this.body[name] !== null) return `${lasting(name, value)}, set here`;
    return source === "default" ? `${lasting(name, value)}, the default` : `${lasting(name, value)}, set by its ${source}`;
  }

  open() {
    const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("lifetimes-dialog"));
    const form = /** @type {HTMLFormElement} */ (dialog.querySelector("form"));
    for (const name of Object.keys(NAMES)) form.elements[name].value = this.body[name] ?? "";
    ask(dialog, async () => {
      await call("POST", this.path, Object.fromEntries(Object.keys(NAMES).map((name) => [name, typed(form.elements[name].value)])));
      await this.read();
    });
  }
}

/** What is typed as REST takes it: nothing is inherited; what is no number goes as it is, so that the server says what is wrong. @param {string} text */
function typed(text) {
  if (!text.trim()) return null;
  const number = Number(text);
  return Number.isFinite(number) ? number : text.trim();
}
