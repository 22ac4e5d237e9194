/** What is remembered of a topic's pruned segments: frames tell only of those that are kept. */

import { get } from "./api.js";
import { withPast } from "./model.js";

const LIMIT = 500;
const PAUSE_MS = 15000;

export class Past {
  /** @param {string} path @param {() => void} onMore when more was read @param {(error: unknown) => void} heard how a read went */
  constructor(path, onMore, heard) {
    this.address = `${path}/lineage?pruned=${LIMIT}`;
    this.onMore = onMore;
    this.heard = heard;
    this.topic = null;
    this.segments = new Map();
    this.old = false;
    this.askedAt = 0;
  }

  /** Go on to a newer state: what it lacks was pruned, and more may have come and gone between. @param {import("./model.js").Topic} topic */
  follow(topic) {
    const before = this.topic;
    this.topic = topic;
    if (topic.incarnation !== before?.incarnation) {
      this.segments = new Map();
      this.askedAt = 0;
    } else this.keep([...before.segments.values()].filter((one) => one.state === "SEALED" && !topic.segments.has(one.segmentId)).map((one) => ({ ...one, state: "PRUNED" })));
    this.old ||= topic.incarnation !== before?.incarnation || topic.epoch !== before.epoch;
    this.refresh();
  }

  /** The topic with what is remembered. @param {import("./model.js").Topic} topic */
  joined(topic) {
    return withPast(topic, this.segments);
  }

  /** Read again, when the layout changed, but not all the time. */
  async refresh() {
    if (!this.old || document.hidden || Date.now() - this.askedAt < PAUSE_MS) return;
    this.old = false;
    this.askedAt = Date.now();
    const { incarnation } = this.topic;
    try {
      const answer = await get(this.address);
      if (incarnation !== this.topic.incarnation) return;
      this.keep(prunedOf(answer));
      this.onMore();
      this.heard(null);
    } catch (error) {
      this.old = true;
      this.heard(error);
    }
  }

  /** Remember these too, of all only those that were sealed last. */
  keep(found) {
    if (!found.length) return;
    const all = new Map([...this.segments, ...found.map((one) => [one.segmentId, one])]);
    this.segments = new Map([...all].sort(([, a], [, b]) => b.sealedAtMs - a.sealedAtMs).slice(0, LIMIT));
  }
}

/** The pruned segments of a lineage, as frames write segments. @param {any} answer of REST @returns {import("./model.js").Segment[]} */
export function prunedOf({ nodes, edges }) {
  const children = new Map();
  for (const { parentId, childId } of edges) children.set(parentId, [...(children.get(parentId) ?? []), childId]);
  return nodes.filter((node) => node.state === "PRUNED")
    .map(({ hashRange, ...node }) => ({ ...node, ...hashRange, parentIds: [], childIds: children.get(node.segmentId) ?? [], entryBucketSplits: null, nodeUrl: null }));
}
