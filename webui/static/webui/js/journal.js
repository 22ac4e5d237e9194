/** The journal of a topic's decisions: the newest while it is open, older ones page by page, up to a bound. */

import { get } from "./api.js";
import { entry } from "./decisions.js";
import { element, rate } from "./format.js";
import { renew } from "./renew.js";

const PAGE = 20;
const OLDER_PAGE = 100;
/** So many entries are shown at most: those at the other end go as more come. */
export const MOST = 1000;

export class Journal {
  /** @param {string} path of the topic @param {number} [most] entries that are kept in sight */
  constructor(path, most = MOST) {
    this.path = path;
    this.most = most;
    this.newest = null;
    this.shown = undefined;
    this.next = null;
    this.place = document.getElementById("journal");
    this.more = document.getElementById("journal-more");
    this.bound = document.getElementById("journal-bound");
    this.place.parentElement.addEventListener("toggle", () => this.show(this.newest));
    this.more.addEventListener("click", () => this.read(this.next));
  }

  /** Show what is new, when it is open. @param {number|null} newest decision that the journal has */
  show(newest) {
    this.newest = newest;
    const { open } = /** @type {HTMLDetailsElement} */ (this.place.parentElement);
    if (!open || newest === this.shown) return;
    this.shown = newest;
    this.read(null);
  }

  /** Read a page: the newest, or the one behind an entry. @param {number|null} before */
  async read(before) {
    try {
      const body = await get(`${this.path}/decisions?${before === null ? `limit=${PAGE}` : `limit=${OLDER_PAGE}&before=${before}`}`);
      const lines = body.decisions.map(entry);
      if (before === null) this.takeNewest(lines, body.next);
      else this.takeOlder(lines, body.next);
    } catch (error) {
      this.shown = undefined;
      this.place.replaceChildren(element("li", { class: "note" }, `The journal cannot be read: ${error.message}`));
    }
  }

  /** Put the newest lines before those that are shown, if they reach back to them; else begin anew. */
  takeNewest(lines, next) {
    const shown = new Set([...this.place.children].map((line) => line.dataset.key));
    if (lines.some((line) => shown.has(line.dataset.key))) {
      this.place.prepend(...lines.filter((line) => !shown.has(line.dataset.key)));
    } else {
      renew(this.place, lines.length ? lines : [element("li", { class: "note" }, "Nothing yet.")]);
      this.offer(next);
    }
    this.keepWithin();
  }

  takeOlder(lines, next) {
    this.place.append(...lines);
    this.offer(next);
    this.keepWithin();
  }

  offer(next) {
    this.next = next;
    this.more.hidden = next === null;
  }

  /** Let the oldest go beyond the bound, and say where they are. */
  keepWithin() {
    const beyond = [...this.place.children].slice(this.most);
    for (const line of beyond) line.remove();
    const last = /** @type {HTMLElement} */ (this.place.lastElementChild);
    if (beyond.length) this.next = Number(last.dataset.key);
    const full = this.next !== null && this.place.children.length >= this.most;
    this.bound.hidden = !full;
    if (!full) return;
    this.more.hidden = true;
    this.bound.textContent = `The newest ${rate(this.most)} are shown. REST has the older ones: GET …/decisions?before=${this.next}`;
  }
}
