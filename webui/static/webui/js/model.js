/**
 * What the page knows of a topic, as a pure reduction of watch frames: snapshot, then deltas.
 *
 * @typedef {{segmentId: number, start: number, end: number, state: "ACTIVE"|"SEALED"|"PRUNED", parentIds: number[], childIds: number[],
 *   createdAtEpoch: number, sealedAtEpoch: number, createdAtMs: number, sealedAtMs: number, entryBucketSplits: number[]|null, nodeUrl: string|null}} Segment
 * @typedef {{incarnation: number, epoch: number, revision: number, segments: Map<number, Segment>, term: number, leaderUrl: string|null, detail: any}} Topic
 */

/**
 * The topic after a frame; `null` asks for a fresh snapshot (a gap). Older frames change nothing. A delta may
 * lead from a revision to the same one: what passing time changes, as whether the load is known, raises none.
 * @param {Topic|null} topic @param {any} frame @returns {Topic|null}
 */
export function reduce(topic, frame) {
  if (frame.type === "snapshot") return fromSnapshot(topic, frame);
  if (frame.type !== "delta" || !topic || frame.incarnation !== topic.incarnation) return topic;
  if (frame.revision < topic.revision) return topic;
  if (frame.revision === topic.revision && frame.base_revision !== topic.revision) return topic;
  if (frame.base_revision !== topic.revision) return null;
  const segments = new Map(topic.segments);
  for (const id of frame.removed) segments.delete(id);
  for (const segment of frame.segments) segments.set(segment.segmentId, segment);
  return { ...heads(frame), segments, detail: frame.detail ?? topic.detail };
}

function fromSnapshot(topic, frame) {
  const older = topic && frame.incarnation === topic.incarnation && frame.revision < topic.revision;
  if (older) return topic;
  const segments = new Map(frame.segments.map((segment) => [segment.segmentId, segment]));
  return { ...heads(frame), segments, detail: frame.detail ?? null };
}

const heads = (frame) => ({
  incarnation: frame.incarnation, epoch: frame.epoch, revision: frame.revision, term: frame.term ?? 0, leaderUrl: frame.controller_url ?? null,
});

/** @param {Topic} topic @returns {Segment[]} active segments by range */
export function active(topic) {
  return [...topic.segments.values()].filter((one) => one.state === "ACTIVE").sort((a, b) => a.start - b.start);
}

/**
 * The topic with pruned segments too, of which frames do not tell: their children name them again as parents.
 * @param {Topic} topic @param {Map<number, Segment>} past @returns {Topic}
 */
export function withPast(topic, past) {
  const segments = new Map([...past, ...topic.segments]);
  for (const { segmentId, childIds } of past.values())
    for (const child of childIds.map((id) => segments.get(id)).filter(Boolean))
      if (!child.parentIds.includes(segmentId))
        segments.set(child.segmentId, { ...child, parentIds: [...child.parentIds, segmentId].sort((a, b) => a - b) });
  return { ...topic, segments };
}

/** Parent-child pairs whose both ends are known. @param {Topic} topic @returns {[Segment, Segment][]} */
export function edges(topic) {
  const pairs = [];
  for (const child of topic.segments.values())
    for (const id of child.parentIds) {
      const parent = topic.segments.get(id);
      if (parent) pairs.push(/** @type {[Segment, Segment]} */ ([parent, child]));
    }
  return pairs;
}

/**
 * Where each split and merge is marked: at its time, on the borders it made or removed; a rebucket in the middle.
 * @param {Topic} topic @returns {{kind: "split"|"merge"|"rebucket", atMs: number, hash: number, parents: number[], children: number[]}[]}
 */
export function marks(topic) {
  const found = [];
  for (const one of topic.segments.values()) {
    const children = one.childIds.map((id) => topic.segments.get(id)).filter(Boolean).sort((a, b) => a.start - b.start);
    if (children.length > 1)
      for (const child of children.slice(1))
        found.push({ kind: "split", atMs: child.createdAtMs, hash: child.start, parents: [one.segmentId], children: children.map((c) => c.segmentId) });
    else if (children.length === 1 && children[0].start === one.start && children[0].end === one.end)
      found.push({ kind: "rebucket", atMs: children[0].createdAtMs, hash: (one.start + one.end + 1) / 2, parents: [one.segmentId], children: [children[0].segmentId] });
    const parents = one.parentIds.map((id) => topic.segments.get(id)).filter(Boolean).sort((a, b) => a.start - b.start);
    if (parents.length > 1)
      for (const parent of parents.slice(1))
        found.push({ kind: "merge", atMs: one.createdAtMs, hash: parent.start, parents: parents.map((p) => p.segmentId), children: [one.segmentId] });
  }
  return found;
}

/** The resolved policy's fields. @param {Topic} topic @returns {Record<string, number>} */
export const policyOf = (topic) => topic.detail?.policy?.policy ?? {};

/** Whether the load is known now: else what was reported is old, or nothing was. @param {Topic} topic */
export const loadKnown = (topic) => topic.detail?.loadKnown === true;

/**
 * The rates of a segment that were reported last, be they old.
 * @param {Topic} topic @param {number} id @returns {Record<string, number>|undefined}
 */
export const lastLoadOf = (topic, id) => topic.detail?.loads?.[id];

/**
 * The rates of a segment now; none when they are not known.
 * @param {Topic} topic @param {number} id @returns {Record<string, number>|undefined}
 */
export const loadOf = (topic, id) => (loadKnown(topic) ? lastLoadOf(topic, id) : undefined);

/** Whether there is no load to know: nobody writes to it any more. @param {Segment} one */
export const loadless = (one) => one.state !== "ACTIVE";

/** Operations that are not finished. @param {Topic} topic @returns {any[]} */
export const running = (topic) => (topic.detail?.operations ?? []).filter((one) => !one.outcome);

/** The segment that an arrow key leads to. @param {Topic} topic @param {Segment} from @param {string} key @returns {Segment|undefined} */
export function neighbour(topic, from, key) {
  const pick = (ids) => ids.map((id) => topic.segments.get(id)).filter(Boolean).sort((a, b) => b.start - a.start)[0];
  if (key === "ArrowRight") return pick(from.childIds);
  if (key === "ArrowLeft") return pick(from.parentIds);
  const together = [...topic.segments.values()].filter((one) => overlapInTime(one, from));
  if (key === "ArrowUp") return together.filter((one) => one.start > from.end).sort((a, b) => a.start - b.start || b.createdAtMs - a.createdAtMs)[0];
  if (key === "ArrowDown") return together.filter((one) => one.end < from.start).sort((a, b) => b.end - a.end || b.createdAtMs - a.createdAtMs)[0];
  return undefined;
}

const endOf = (one) => (one.state === "ACTIVE" ? Infinity : one.sealedAtMs);
const overlapInTime = (a, b) => a.createdAtMs < endOf(b) && b.createdAtMs < endOf(a);

/** The segment, its ancestors and its descendants. @param {Topic} topic @param {number} id @returns {Set<number>} */
export function lineage(topic, id) {
  const related = new Set([id]);
  for (const side of /** @type {const} */ (["parentIds", "childIds"])) {
    const open = [id];
    while (open.length)
      for (const next of topic.segments.get(open.pop())?.[side] ?? [])
        if (topic.segments.has(next) && !related.has(next)) open.push(next) && related.add(next);
  }
  return related;
}
