/** Says of when what is shown is, and, when nothing newer can be had, that it is old and why. */

import { ApiError } from "./api.js";
import { clock } from "./format.js";

/** Why a read failed, in a sentence. @param {unknown} error */
export const trouble = (error) => (error instanceof ApiError ? error.sentence : "The node does not answer.");

export class Freshness {
  /** @param {HTMLElement} place where the time stands @param {HTMLElement} banner */
  constructor(place, banner) {
    this.place = place;
    this.banner = banner;
    this.atMs = 0;
  }

  /** What was read just now is shown. @param {boolean} [quiet] whether the banner has nothing else to say */
  took(quiet = true) {
    this.atMs = Date.now();
    this.place.className = "note";
    this.place.textContent = `as of ${clock(this.atMs)}`;
    if (quiet) this.banner.hidden = true;
  }

  /** Nothing newer came. @param {unknown} error */
  missed(error) {
    const refused = error instanceof ApiError && !error.passes;
    if (this.atMs && !refused) {
      this.place.className = "state lost";
      this.place.textContent = `old, of ${clock(this.atMs)}`;
    }
    const old = this.atMs ? `What you see is old, of ${clock(this.atMs)}. ` : "";
    this.say(refused ? trouble(error) : `${old}${trouble(error)} It is tried again by itself.`);
  }

  /** Put a sentence into the banner; the same one is not said twice. @param {string} text */
  say(text) {
    this.banner.hidden = false;
    if (this.banner.textContent !== text) this.banner.textContent = text;
  }
}
