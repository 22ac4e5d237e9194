/** The deletion of a topic from its page: what goes with it, its name typed, and force where an operation stands in the way. */

import { ApiError, call } from "./api.js";
import { changing, confirm } from "./dialogs.js";
import { element, rate } from "./format.js";
import { active, running } from "./model.js";

/** @param {number} number @param {string} noun */
const count = (number, noun) => `${rate(number)} ${noun}${number === 1 ? "" : "s"}`;

export class Deletion {
  /**
   * @param {string} name @param {string} path of the topic
   * @param {() => import("./model.js").Topic|null} topic as the page knows it @param {() => any} stats of its subscriptions, null when they were not read
   */
  constructor(name, path, topic, stats) {
    this.name = name;
    this.path = path;
    this.topic = topic;
    this.stats = stats;
    const button = /** @type {HTMLButtonElement} */ (document.getElementById("delete-topic"));
    changing(button).addEventListener("click", () => this.ask());
  }

  ask() {
    const topic = this.topic();
    const typed = /** @type {HTMLInputElement} */ (element("input", { name: "name", autocomplete: "off", spellcheck: "false", required: true }));
    const forced = /** @type {HTMLInputElement} */ (element("input", { type: "checkbox", name: "force" }));
    const force = element("label", { class: "inline" }, forced, "also while a split, merge or rebucket is under way (force)");
    force.hidden = !topic || !running(topic).length;
    const go = confirm({
      title: "Delete this topic?", verb: "Delete", destroys: true,
      says: [...this.losses(topic), force, element("label", {}, element("span", {}, "Type its name: ", element("b", { class: "anywhere" }, this.name)), typed)],
    }, () => this.send(topic, forced.checked, force));
    go.disabled = true;
    typed.addEventListener("input", () => (go.disabled = typed.value !== this.name));
  }

  /** What goes with the topic, in sentences. */
  losses(topic) {
    const subscriptions = Object.values(this.stats()?.subscriptions ?? {});
    const consumers = subscriptions.reduce((sum, one) => sum + one.consumers.length, 0);
    const kept = topic ? `${count(active(topic).length, "active segment")} and ${rate(topic.segments.size - active(topic).length)} sealed` : "All segments";
    return [
      `${kept} go with all their messages, for ever.`,
      ...(subscriptions.length ? [`${count(subscriptions.length, "subscription")} lose${subscriptions.length === 1 ? "s" : ""} what was not received${consumers ? `; ${count(consumers, "consumer")} will be disconnected` : ""}.`] : []),
    ];
  }

  async send(topic, forced, force) {
    const query = new URLSearchParams({ ...(forced ? { force: "true" } : {}), ...(topic ? { expectedEpoch: String(topic.epoch) } : {}) });
    try {
      await call("DELETE", `${this.path}?${query}`);
    } catch (error) {
      if (error instanceof ApiError && error.code === "segment_claimed") force.hidden = false;
      throw error;
    }
    location.assign(document.querySelector(".crumbs a").getAttribute("href"));
  }
}
