"""How a segment passes from one consumer of a subscription to another, so that it never has two owners.

What passes is a segment, or one of its entry buckets where keys are shared; here both are called segment.
The holder is asked to release it and stays its only owner until it does, or until the release deadline. The
generation rises whenever a segment gets an owner; acknowledgements are fenced by it. A hand-over whose next
owner leaves is abandoned: the holder keeps the segment under the same generation, as if nothing had been
asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from scalable.domain.errors import GenerationSuperseded, SegmentNotOwned
from scalable.domain.subscriptions import KeyT, assign


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who owns a segment for a subscription, and who gets it next.

    With a `next_owner` there is a `release_deadline_ms`, and the owner is asked to release.
    """

    owner: str | None = None
    next_owner: str | None = None
    generation: int = 0
    release_deadline_ms: int | None = None

    @property
    def in_hand_over(self) -> bool:
        """Tell whether the owner is asked to release."""
        return self.next_owner is not None

    def granted(self, consumer: str) -> Ownership:
        """Give the segment to a consumer, under a new generation."""
        return Ownership(owner=consumer, generation=self.generation + 1)

    def vacated(self) -> Ownership:
        """Take the segment from everyone; until it has a next owner, late acknowledgements still count."""
        return Ownership(generation=self.generation)

    def withdrawn(self) -> Ownership:
        """Take the segment from its owner, whose late acknowledgements are refused from now on."""
        return self if self.owner is None else Ownership(generation=self.generation + 1)

    def sought(self, *, fence: int = 0) -> Ownership:
        """Note that the position was moved: who reads on does so under a new generation, at least `fence`."""
        return replace(self, generation=max(self.generation + 1, fence))

    def released(self, *, segment_id: int, consumer: str, generation: int) -> Ownership:
        """Pass the segment on because its owner released it; a release that nobody asked for changes nothing.

        Raises SegmentNotOwned, GenerationSuperseded.
        """
        if generation < self.generation:
            raise GenerationSuperseded(
                segment_id=segment_id, generation=generation, current_generation=self.generation
            )
        if consumer != self.owner or generation != self.generation:
            raise SegmentNotOwned(consumer=consumer, segment_id=segment_id)
        return self if self.next_owner is None else self.granted(self.next_owner)

    def past_deadline(self, now_ms: int) -> Ownership:
        """Pass the segment on when its owner did not release it in time."""
        if self.next_owner is None or self.release_deadline_ms is None or now_ms < self.release_deadline_ms:
            return self
        return self.granted(self.next_owner)

    def turned_to(
        self, wanted: str, consumers: Collection[str], *, now_ms: int, hand_over_ms: int
    ) -> Ownership:
        """Move the segment towards a consumer: at once when nobody living holds it, else by a hand-over.

        A hand-over that goes to yet another consumer keeps its deadline, so that joins cannot postpone it for
        ever; when that has passed, the holder has had its time.
        """
        if self.owner not in consumers:
            return self.granted(wanted)
        if wanted == self.owner:
            return replace(self, next_owner=None, release_deadline_ms=None)
        if self.in_hand_over:
            return replace(self, next_owner=wanted).past_deadline(now_ms)
        return replace(self, next_owner=wanted, release_deadline_ms=now_ms + hand_over_ms)


def rebalance(
    ownerships: Mapping[KeyT, Ownership],
    assignable: Sequence[KeyT],
    consumers: Collection[str],
    *,
    shut: Collection[KeyT] = (),
    preferred: Mapping[KeyT, str] | None = None,
    now_ms: int,
    hand_over_ms: int,
) -> dict[KeyT, Ownership]:
    """Give all ownerships after any join, leave, drain, seek, change of layout, or deadline.

    `assignable` in the order of `units_of`; `shut` is what waits for ancestors again and is withdrawn;
    `preferred` as in `assign` (the parents' consumers). Hand-overs past their deadline are carried out, those
    under way go on where the balance allows it, and what nobody may read is vacated. Applying it twice
    changes nothing more.
    """
    living = frozenset(consumers)
    before = {key: _due(ownerships.get(key, Ownership()), living, now_ms) for key in assignable}
    current = {key: known.owner for key, known in before.items() if known.owner is not None}
    under_way = {key: known.next_owner for key, known in before.items() if known.next_owner is not None}
    wanted = assign(assignable, living, current, {**(preferred or {}), **under_way})
    after = {key: known.withdrawn() if key in shut else known.vacated() for key, known in ownerships.items()}
    for key, consumer in wanted.items():
        after[key] = before[key].turned_to(consumer, living, now_ms=now_ms, hand_over_ms=hand_over_ms)
    return after


def _due(known: Ownership, living: Collection[str], now_ms: int) -> Ownership:
    return known.past_deadline(now_ms) if known.next_owner in living else known
