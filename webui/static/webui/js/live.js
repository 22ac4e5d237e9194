/** The watch of one topic: a socket that reconnects by itself and reduces frames to the topic's state. */

import { reduce } from "./model.js";

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 8000;
const CODE_GONE = 4410;
const CODE_UNAUTHENTICATED = 4401;
const CODE_REFUSED = 1006;
const CODE_NOT_FOUND = 4404;
const FINAL = new Set([CODE_GONE, CODE_UNAUTHENTICATED, 4403, CODE_NOT_FOUND]);

export class Watch {
  /**
   * @param {string} path of the socket
   * @param {(topic: import("./model.js").Topic) => void} onTopic
   * @param {(state: "live"|"lost"|"gone", text: string) => void} onState
   * @param {() => Promise<unknown>} check a REST call that leads to the login when the session has ended: a browser
   *   does not tell why a handshake was refused
   */
  constructor(path, onTopic, onState, check) {
    this.path = path;
    this.onTopic = onTopic;
    this.onState = onState;
    this.check = check;
    this.topic = null;
    this.waitMs = FIRST_WAIT_MS;
    this.session = `page-${Math.random().toString(36).slice(2)}`;
    this.reason = "";
    this.open();
  }

  open() {
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}${this.path}`, ["scalable.v1"]);
    this.socket = socket;
    socket.addEventListener("open", () =>
      socket.send(JSON.stringify({ type: "hello", protocol: 1, client: "dashboard", session_id: this.session, detail: "full" })));
    socket.addEventListener("message", (event) => this.hear(JSON.parse(event.data)));
    socket.addEventListener("close", (event) => this.closed(event.code));
  }

  hear(frame) {
    if (frame.type === "error") this.reason = frame.hint ? `${frame.reason} ${frame.hint}` : frame.reason;
    if (frame.type === "gone") this.reason = "This topic was deleted.";
    if (frame.type !== "snapshot" && frame.type !== "delta") return;
    const next = reduce(this.topic, frame);
    this.waitMs = FIRST_WAIT_MS;
    if (next === null) return this.socket.close(1000);
    this.topic = next;
    this.onState("live", "live");
    this.onTopic(next);
  }

  closed(code) {
    if (code === CODE_UNAUTHENTICATED) location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`);
    if (FINAL.has(code)) return this.onState("gone", this.reason || `closed by the server (${code})`);
    if (code === CODE_REFUSED) this.check().catch(() => undefined);
    this.onState("lost", "connection lost, trying again…");
    setTimeout(() => this.open(), this.waitMs * (0.5 + Math.random()));
    this.waitMs = Math.min(LONGEST_WAIT_MS, this.waitMs * 2);
  }
}
