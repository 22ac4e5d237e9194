/** The page of a namespace: what it sets for its topics, read again at an interval. */

import { ApiError } from "./api.js";
import { Freshness } from "./freshness.js";
import { Lifetimes } from "./lifetimes.js";
import { Policy } from "./policy.js";

const REFRESH_MS = 10000;
const root = document.getElementById("namespace");
const { tenant, namespace } = root.dataset;
const path = `/admin/v2/namespaces/${[tenant, namespace].map(encodeURIComponent).join("/")}`;
const fresh = new Freshness(document.getElementById("as-of"), document.getElementById("banner"));
const policy = new Policy({ level: "namespace", name: `${tenant}/${namespace}`, path: `${path}/scalableTopicAutoScalePolicy` });
const lifetimes = new Lifetimes(`${path}/lifetimes`);
let reading = false;

async function read() {
  reading = true;
  try {
    await policy.read();
    fresh.took();
    await lifetimes.read();
  } catch (error) {
    fresh.missed(error);
    root.classList.toggle("absent", error instanceof ApiError && !error.passes && !fresh.atMs);
  } finally {
    reading = false;
  }
}

read();
setInterval(() => document.hidden || reading || read(), REFRESH_MS);
