"""What must hold of a subscription's assignment whenever one looks, whatever has just died."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

Unit = tuple[int, int]
"""Segment and entry bucket."""


@dataclass(frozen=True)
class Held:
    """A unit in the hand of a consumer; a `next_owner` waits for its release."""

    unit: Unit
    owner: str
    next_owner: str | None
    generation: int


@dataclass(frozen=True)
class Sighting:
    """One look: the assignment, and afterwards how many messages each segment still has for the subscription.

    Acknowledgements only go forward, so an ancestor that has messages left had them when the assignment was
    read.
    """

    incarnation: int
    term: int
    generation: int
    consumers: tuple[str, ...]
    held: tuple[Held, ...]
    parents: Mapping[int, tuple[int, ...]]
    backlogs: Mapping[int, int]
    waits: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """What is shut, and for which ancestors."""


@dataclass
class Rules:
    """Compares each sighting with the former ones; `violations` are sentences."""

    violations: list[str] = field(default_factory=list)
    sightings: int = 0
    _terms: int = 0
    _generation: int = 0
    _units: dict[Unit, int] = field(default_factory=dict)
    _last: Sighting | None = None

    def look(self, sighting: Sighting) -> None:
        """Take the next sighting."""
        self.sightings += 1
        self.violations += [
            *_two_owners(sighting),
            *_opened_too_early(sighting),
            *self._went_back(sighting),
            *self._unfair(sighting),
        ]
        self._last = sighting

    def _went_back(self, sighting: Sighting) -> Iterator[str]:
        if sighting.term < self._terms:
            yield f"the term went from {self._terms} back to {sighting.term}"
        if sighting.generation < self._generation:
            yield f"the generation went from {self._generation} back to {sighting.generation}"
        for held in sighting.held:
            known = self._units.get(held.unit, 0)
            if held.generation < known:
                yield f"{held.unit}: the generation went from {known} back to {held.generation}"
            self._units[held.unit] = max(known, held.generation)
        self._terms, self._generation = sighting.term, sighting.generation

    def _unfair(self, sighting: Sighting) -> Iterator[str]:
        """Judge the spread when two looks in a row saw the same assignment and nothing changes hands."""
        last = self._last
        if last is None or (last.generation, last.consumers) != (sighting.generation, sighting.consumers):
            return
        if any(held.next_owner is not None for held in sighting.held) or not sighting.consumers:
            return
        counts = Counter(dict.fromkeys(sighting.consumers, 0))
        counts.update(held.owner for held in sighting.held)
        if max(counts.values()) - min(counts.values()) > 1:
            yield f"the units are spread unevenly: {dict(counts)}"


def _two_owners(sighting: Sighting) -> Iterator[str]:
    counts = Counter(held.unit for held in sighting.held)
    for unit, count in counts.items():
        if count > 1:
            owners = sorted(held.owner for held in sighting.held if held.unit == unit)
            yield f"{unit} has {count} owners: {', '.join(owners)}"


def _opened_too_early(sighting: Sighting) -> Iterator[str]:
    for segment_id in sorted({held.unit[0] for held in sighting.held}):
        for ancestor in sorted(_ancestors(segment_id, sighting.parents)):
            left = sighting.backlogs.get(ancestor, 0)
            if left:
                yield f"{segment_id} has an owner while its ancestor {ancestor} has {left} messages left"
        if segment_id in sighting.waits:
            yield f"{segment_id} has an owner while it waits for {sighting.waits[segment_id]}"


def _ancestors(segment_id: int, parents: Mapping[int, tuple[int, ...]]) -> set[int]:
    found: set[int] = set()
    pending = list(parents.get(segment_id, ()))
    while pending:
        ancestor = pending.pop()
        if ancestor not in found:
            found.add(ancestor)
            pending += parents.get(ancestor, ())
    return found
