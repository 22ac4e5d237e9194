/** One dialog that asks, acts, and shows why an action was refused without closing. */

import { ApiError } from "./api.js";
import { element } from "./format.js";
import { comeBack } from "./renew.js";

/** Whether the server refuses every change, so that what asks for one is not offered. */
export const READ_ONLY = "readOnly" in document.documentElement.dataset;
const READ_ONLY_REASON = "The server is in read-only mode";
/** What who looks may do with what the page shows; a page that says nothing of it leaves that to the server. */
const RIGHTS = document.documentElement.dataset.rights?.split(" ");

/** Why who looks may not do here what wants a right; empty when they may. @param {string} right */
export const lacking = (right) => (RIGHTS && !RIGHTS.includes(right) ? `It wants the right “${right}” here, which you were not granted` : "");

/** Why a change is not offered here; empty when it is. @param {string} [right] that it wants */
export const refused = (right = "admin") => (READ_ONLY ? READ_ONLY_REASON : lacking(right));

/** Disable a control for a reason, if there is one. @param {HTMLElement & {disabled: boolean}} control @param {string} reason */
export function disabled(control, reason) {
  if (!reason) return control;
  control.disabled = true;
  control.title = reason;
  return control;
}

/** Disable what asks for a change where it would be refused. @param {HTMLElement & {disabled: boolean}} control @param {string} [right] that the change wants */
export const changing = (control, right) => disabled(control, refused(right));

/**
 * Ask once in the page's dialog for confirmation. What destroys looks so, and Enter alone cancels it.
 * @param {{title: string, verb: string, says: (Node|string)[], destroys?: boolean}} question @param {() => Promise<unknown>} act
 */
export function confirm({ title, verb, says, destroys = false }, act) {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("confirm"));
  const go = /** @type {HTMLButtonElement} */ (document.getElementById("confirm-go"));
  document.getElementById("confirm-title").textContent = title;
  go.textContent = verb;
  go.classList.toggle("danger", destroys);
  document.getElementById("confirm-body").replaceChildren(...says.map((one) => (typeof one === "string" ? element("p", {}, one) : one)));
  ask(dialog, act);
  if (destroys) /** @type {HTMLButtonElement} */ (dialog.querySelector("[value=cancel]")).focus();
  return go;
}

/**
 * @param {HTMLDialogElement} dialog holding a form with a cancel button and one primary button
 * @param {(form: HTMLFormElement) => Promise<unknown>} act resolves when done, to `false` when there is more to ask; an ApiError is
 *   shown in the dialog
 */
export function ask(dialog, act) {
  const form = /** @type {HTMLFormElement} */ (dialog.querySelector("form"));
  const problem = /** @type {HTMLElement} */ (dialog.querySelector(".banner"));
  const primary = /** @type {HTMLButtonElement} */ (dialog.querySelector("button.primary"));
  problem.hidden = true;
  primary.disabled = false;
  form.onsubmit = async (event) => {
    event.preventDefault();
    primary.disabled = true;
    problem.hidden = true;
    try {
      if ((await act(form)) === false) primary.disabled = false;
      else dialog.close();
    } catch (error) {
      problem.textContent = error instanceof ApiError ? error.sentence : `Not done: ${error}`;
      problem.hidden = false;
      primary.disabled = false;
    }
  };
  /** @type {HTMLButtonElement} */ (form.querySelector("[value=cancel]")).onclick = () => dialog.close();
  dialog.addEventListener("close", comeBack(document.activeElement), { once: true });
  dialog.showModal();
}
