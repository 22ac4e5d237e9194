/** One dialog that asks, acts, and shows why an action was refused without closing. */

import { ApiError } from "./api.js";

/** Whether the server refuses every change, so that what asks for one is not offered. */
export const READ_ONLY = "readOnly" in document.documentElement.dataset;
const READ_ONLY_REASON = "The server is in read-only mode";

/** Disable what asks for a change where nothing may be changed. @param {HTMLElement & {disabled: boolean}} control */
export function changing(control) {
  if (!READ_ONLY) return control;
  control.disabled = true;
  control.title = READ_ONLY_REASON;
  return control;
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
  dialog.showModal();
}
