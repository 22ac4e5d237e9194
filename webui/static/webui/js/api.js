/** The public REST API, with the browser's session. */

const PATIENCE_MS = 20000;

/** An answer of the API that is not a success: the product's error body. */
export class ApiError extends Error {
  /** @param {number} status @param {{reason?: string, code?: string, hint?: string, fields?: object}} body */
  constructor(status, body) {
    super(body.reason || `the server answered ${status}`);
    this.status = status;
    this.code = body.code ?? "";
    this.hint = body.hint ?? "";
    this.fields = body.fields ?? {};
  }

  /** Whether asking the same again may help: the server is in trouble or out of reach, it does not refuse. */
  get passes() {
    return this.status >= 500 || this.status === 429;
  }

  /** One sentence for a person: the reason and what to do about it. */
  get sentence() {
    return this.hint ? `${this.message} ${this.hint}` : this.message;
  }
}

/** Why nothing on this page can be changed any longer; empty while it can. */
let ended = "";

/** Send no change any longer: by the page's addresses it would change something else than what is shown. @param {string} reason */
export function endChanges(reason) {
  ended = reason;
}

function csrfToken() {
  return document.cookie.split("; ").find((part) => part.startsWith("csrftoken="))?.slice(10) ?? "";
}

/**
 * @param {string} method @param {string} path @param {unknown} [body] @param {Record<string, string>} [headers]
 * @returns {Promise<{body: any, headers: Headers, status: number}>}
 */
export async function call(method, path, body, headers = {}) {
  if (ended && method !== "GET") throw new ApiError(0, { reason: ended });
  const response = await fetch(path, {
    method,
    credentials: "same-origin",
    headers: {
      Accept: "application/json",
      ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      ...(method === "GET" ? {} : { "X-CSRFToken": csrfToken() }),
      ...headers,
    },
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: method === "GET" ? AbortSignal.timeout(PATIENCE_MS) : undefined,
  });
  const text = await response.text();
  const parsed = text && response.headers.get("content-type")?.includes("json") ? JSON.parse(text) : null;
  if (response.status === 401) location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
  if (!response.ok) throw new ApiError(response.status, parsed ?? {});
  return { body: parsed, headers: response.headers, status: response.status };
}

/** Read; what takes longer than `PATIENCE_MS` counts as no answer. @param {string} path @returns {Promise<any>} */
export const get = async (path) => (await call("GET", path)).body;

/** The REST address of a topic. @param {string[]} parts */
export const topicPath = (...parts) => `/admin/v2/scalable/${parts.map(encodeURIComponent).join("/")}`;
