/** The topic list: one page at a time, filtered and counted by the server. */

import { ApiError, call, topicPath } from "./api.js";
import { ask, changing } from "./dialogs.js";
import { clock, element, moment, verdict } from "./format.js";
import { renew } from "./renew.js";

const PAGE = 50;
const REFRESH_MS = 10000;
const root = document.getElementById("topics");
const [tenant, namespace] = root.dataset.namespace.split("/");
const filter = /** @type {HTMLFormElement} */ (document.getElementById("filter"));
let offset = 0;

const address = (name) => `/topics/${[tenant, namespace, name].map(encodeURIComponent).join("/")}`;

function row(one) {
  const decision = one.lastDecision ? verdict(one.lastDecision) : "–";
  return element("tr", { "data-key": one.name },
    element("td", { class: "wraps" }, element("a", { href: address(one.name), title: one.name }, one.name)),
    element("td", { class: "number" }, String(one.activeSegments)),
    element("td", { class: "number" }, String(one.sealedSegments)),
    element("td", { class: "number" }, String(one.epoch)),
    element("td", {}, decision),
    element("td", {}, moment(one.createdAtMs)));
}

function empty(total, search) {
  const box = document.getElementById("empty");
  box.hidden = total > 0;
  box.textContent = search
    ? `No topic of ${tenant}/${namespace} has “${search}” in its name.`
    : `${tenant}/${namespace} has no topics yet. Create one here, or load the demo with “./run demo”.`;
}

async function load() {
  const search = filter.search.value.trim();
  const query = new URLSearchParams({ limit: String(PAGE), offset: String(offset), ...(search ? { search } : {}) });
  const banner = document.getElementById("banner");
  try {
    const { body } = await call("GET", `/admin/v2/scalable-topics/${[tenant, namespace].map(encodeURIComponent).join("/")}?${query}`);
    renew(document.getElementById("rows"), body.topics.map(row));
    empty(body.total, search);
    const last = Math.min(body.total, offset + PAGE);
    document.getElementById("page").textContent = body.total ? `${offset + 1}–${last} of ${body.total}` : "";
    document.getElementById("previous").disabled = offset === 0;
    document.getElementById("next").disabled = last >= body.total;
    document.getElementById("as-of").textContent = `as of ${clock(Date.now())}`;
    banner.hidden = true;
  } catch (error) {
    banner.textContent = error instanceof ApiError ? error.sentence : "The node does not answer; what you see is old. It is tried again by itself.";
    banner.hidden = false;
    if (!document.getElementById("as-of").textContent) document.getElementById("empty").hidden = true;
  }
}

function turn(by) {
  offset = Math.max(0, offset + by);
  load();
}

document.getElementById("previous").addEventListener("click", () => turn(-PAGE));
document.getElementById("next").addEventListener("click", () => turn(PAGE));
filter.search.addEventListener("input", () => turn(-offset));
filter.addEventListener("submit", (event) => {
  if (filter.namespace.value !== root.dataset.namespace) return;
  event.preventDefault();
  turn(-offset);
});
changing(/** @type {HTMLButtonElement} */ (document.getElementById("create"))).addEventListener("click", () =>
  ask(/** @type {HTMLDialogElement} */ (document.getElementById("create-dialog")), async (form) => {
    const name = form.elements["name"].value;
    await call("PUT", `${topicPath(tenant, namespace, name)}?numInitialSegments=${form.elements["segments"].value}`, {});
    location.assign(address(name));
  }));
load();
setInterval(() => document.hidden || load(), REFRESH_MS);
