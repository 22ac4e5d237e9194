/** The policy of a topic or a namespace: what holds and who set it; edited in a dialog that tells before what it would do. */

import { ApiError, call, get } from "./api.js";
import { decisionParts } from "./decisions.js";
import { ask, changing } from "./dialogs.js";
import { element, words } from "./format.js";
import { trouble } from "./freshness.js";
import { control, differences, draftOf, grouped, matters, overrideOf, plain, shown, unitOf } from "./policy_fields.js";
import { renew } from "./renew.js";

const PAUSE_MS = 300;

/**
 * @typedef {import("./policy_fields.js").Effective} Effective
 * @typedef {{level: "topic"|"namespace", name: string, path: string, preview?: string, epoch?: () => number|undefined}} Subject
 * path: of what is set itself; preview: the door that tells what a policy would do
 */

export class Policy {
  /** @param {Subject} subject */
  constructor(subject) {
    this.subject = subject;
    this.effective = null;
    this.card = document.getElementById("policy");
    this.profiles = this.card.dataset.profiles.split(" ");
    this.all = /** @type {HTMLInputElement} */ (document.getElementById("policy-all"));
    this.edit = /** @type {HTMLButtonElement} */ (document.getElementById("policy-edit"));
    this.all.addEventListener("change", () => this.draw());
    this.edit.addEventListener("click", () => this.open());
  }

  /** Show what holds. @param {Effective|undefined} effective */
  show(effective) {
    if (!effective?.policy) return;
    this.effective = effective;
    this.draw();
  }

  async read() {
    this.show(await get(`${this.subject.path}/effective`));
  }

  draw() {
    if (!this.effective) return;
    const { policy, sources, violations } = this.effective;
    const own = Object.values(sources).filter((source) => source === this.subject.level).length;
    document.getElementById("policy-summary").textContent = `profile ${policy.profile}${own ? `, ${own} set here` : ", nothing set here"}`;
    const banner = document.getElementById("policy-trouble");
    banner.hidden = !violations.length;
    banner.textContent = `It contradicts itself, so that nothing is scaled: ${violations.join("; ")}.`;
    const rows = grouped(this.effective).flatMap(([, fields]) => fields).filter((name) => this.all.checked || matters(name, this.effective));
    renew(document.getElementById("policy-rows"), rows.map((name) => element("tr", { "data-key": name, "data-field": name },
      element("td", {}, ...words(name)), element("td", { class: "number" }, shown(name, policy[name])),
      element("td", {}, element("span", { class: sources[name] === this.subject.level ? "source own" : "source" }, sources[name])))));
    this.edit.disabled = false;
    changing(this.edit);
  }

  /** Open the dialog on what is set now. */
  async open() {
    try {
      const { body } = await call("GET", this.subject.path);
      new Edit(this, body ?? {}).open();
    } catch (error) {
      const banner = document.getElementById("policy-trouble");
      banner.hidden = false;
      banner.textContent = `What is set here cannot be read: ${trouble(error)}`;
    }
  }
}

/** One opening of the dialog: what was set, what is typed, and what the server thinks of it. */
class Edit {
  /** @param {Policy} owner @param {Record<string, any>} before */
  constructor(owner, before) {
    this.owner = owner;
    this.subject = owner.subject;
    this.before = before;
    this.draft = draftOf(before);
    this.known = owner.effective;
    this.epoch = this.subject.epoch?.();
    this.timer = 0;
    this.asked = 0;
    this.fields = document.getElementById("policy-fields");
    this.place = document.getElementById("policy-preview");
  }

  open() {
    document.getElementById("policy-dialog-title").textContent = `Policy of ${this.subject.name}`;
    document.getElementById("policy-inherit").onclick = () => this.clear();
    this.place.replaceChildren();
    this.place.hidden = !this.subject.preview;
    this.draw();
    this.fields.oninput = (event) => this.type(/** @type {HTMLInputElement} */ (event.target));
    ask(/** @type {HTMLDialogElement} */ (document.getElementById("policy-dialog")), () => this.save());
    document.getElementById("policy-field-profile").focus();
    this.review();
  }

  draw() {
    this.fields.replaceChildren(...grouped(this.known).map(([title, names]) => element("fieldset", {}, element("legend", {}, title), ...names.map((name) => this.line(name)))));
    this.mark();
  }

  line(name) {
    const input = control(name, this.draft[name] ?? "", this.known.policy[name], this.owner.profiles);
    return element("div", { class: "field", "data-field": name }, element("label", { for: input.id }, ...words(name), ...(unitOf(name) ? [" ", element("span", { class: "note" }, unitOf(name))] : [])), input,
      element("span", { class: "note", id: `policy-source-${name}` }),
      element("button", { type: "button", class: "quiet small", "data-role": "inherit", "aria-label": `Inherit ${name}`, onclick: () => this.inherit(name) }, "Inherit"));
  }

  type({ name, value }) {
    if (value.trim()) this.draft[name] = value;
    else delete this.draft[name];
    this.changed();
  }

  inherit(name) {
    delete this.draft[name];
    const input = /** @type {HTMLInputElement} */ (document.getElementById(`policy-field-${name}`));
    input.value = "";
    input.focus();
    this.changed();
  }

  clear() {
    this.draft = {};
    this.draw();
    this.changed();
  }

  changed() {
    this.mark();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.review(), PAUSE_MS);
  }

  get override() {
    return overrideOf(this.draft, this.known.policy);
  }

  /** Say of each field whose it is, and what is inherited where nothing is typed; mark those that a complaint names. @param {string} [complaint] */
  mark(complaint = "") {
    for (const line of /** @type {NodeListOf<HTMLElement>} */ (this.fields.querySelectorAll("[data-field]"))) {
      const name = line.dataset.field;
      const own = name in this.draft;
      const input = /** @type {HTMLInputElement} */ (line.querySelector("input, select"));
      const inherited = this.known.sources[name] === this.subject.level ? null : plain(this.known.policy[name]);
      if (input.tagName === "INPUT") input.placeholder = own ? "" : inherited ?? "inherited";
      else input.options[0].textContent = own || inherited === null ? "inherited" : `inherited: ${inherited}`;
      input.setAttribute("aria-invalid", String(new RegExp(`\\b${name}\\b`).test(complaint)));
      document.getElementById(`policy-source-${name}`).textContent = own ? "set here" : inherited === null ? "inherited" : this.known.sources[name];
      /** @type {HTMLButtonElement} */ (line.querySelector("[data-role=inherit]")).disabled = !own;
    }
  }

  /** Ask what would be decided now under what is typed; an answer to older words is not shown. */
  async review() {
    if (!this.subject.preview) return;
    const number = ++this.asked;
    const epoch = this.subject.epoch?.();
    try {
      const { body } = await call("POST", this.subject.preview, this.override);
      if (number !== this.asked) return;
      this.epoch = epoch;
      this.known = body.policy;
      this.mark();
      this.place.replaceChildren(element("h3", {}, "What it would do now"), ...decisionParts({ ...body.decision, explanation: body.decision }));
    } catch (error) {
      if (number !== this.asked) return;
      this.mark(error instanceof ApiError ? error.message : "");
      this.place.replaceChildren(element("h3", {}, "What it would do now"), element("p", { class: "banner error" }, trouble(error)));
    }
  }

  /** Replace what is set, unless somebody else did so meanwhile, which is told first. */
  async save() {
    const { body } = await call("GET", this.subject.path);
    const foreign = differences(this.before, body ?? {});
    if (foreign.length) {
      this.before = body ?? {};
      throw new ApiError(409, { reason: `Somebody changed the policy meanwhile: ${foreign.join("; ")}. Nothing is saved yet.`, hint: "Save again to replace it, or cancel and look." });
    }
    try {
      await this.send(this.override);
    } catch (error) {
      if (error instanceof ApiError) this.mark(error.message);
      if (error.code === "epoch_moved") await this.review();
      throw error;
    }
    await this.owner.read().catch(() => undefined);
  }

  send(override) {
    const query = this.epoch === undefined ? "" : `?expectedEpoch=${this.epoch}`;
    if (Object.keys(override).length) return call("POST", `${this.subject.path}${query}`, override);
    return call("DELETE", `${this.subject.path}${query}`);
  }
}
