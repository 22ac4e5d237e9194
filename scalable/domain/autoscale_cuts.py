"""Where a segment is cut: evenly, by where its load lies, or about a part of it that has most of the load."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from scalable.domain.keyspace import HashRange


def even_cuts(hash_range: HashRange, children: int) -> tuple[int, ...]:
    """Give the first hashes of the later ones of so many equally wide children; none for the midpoint."""
    children = min(children, hash_range.size)
    if children == 2:
        return ()
    return tuple(part.start for part in hash_range.parts(children)[1:])


def balanced_cuts(hash_range: HashRange, heat: Sequence[float], children: int) -> tuple[int, ...]:
    """Cut so that each child gets an equal part of the load.

    `heat` are rates of equally wide parts of the range; within a part load is taken to be even. Cuts that
    would fall on the same hash are one, so that there may be fewer children, but at least two.
    """
    sums = list(accumulate(heat, initial=0.0))
    wanted = (sums[-1] * number / children for number in range(1, children))
    width = hash_range.size / len(heat)
    places = (hash_range.start + round(_place(sums, share) * width) for share in wanted)
    lowest, highest = hash_range.start + 1, hash_range.end
    return tuple(sorted({min(max(place, lowest), highest) for place in places}))


def _place(sums: Sequence[float], wanted: float) -> float:
    """Give at how many parts from the start the load adds up to what is wanted."""
    for part in range(len(sums) - 1):
        if sums[part + 1] >= wanted and sums[part + 1] > sums[part]:
            return part + (wanted - sums[part]) / (sums[part + 1] - sums[part])
    return len(sums) - 1.0


def hottest_part(hash_range: HashRange, heat: Sequence[float]) -> tuple[HashRange, float]:
    """Give the hashes that share the hottest of the equally wide parts, and the load there.

    Where parts are narrower than a hash, a hash's load is that of the parts up to where it is counted.
    """
    if len(heat) > hash_range.size:
        loads = [0.0] * hash_range.size
        for part, rate in enumerate(heat):
            loads[min(-(-part * hash_range.size // len(heat)), hash_range.size - 1)] += rate
        hottest = loads.index(max(loads))
        return HashRange(hash_range.start + hottest, hash_range.start + hottest), loads[hottest]
    hottest = max(range(len(heat)), key=lambda part: (heat[part], -part))
    start = hash_range.start + -(-hottest * hash_range.size // len(heat))
    end = hash_range.start + -(-(hottest + 1) * hash_range.size // len(heat)) - 1
    return HashRange(start, end), heat[hottest]


def isolating_cuts(hash_range: HashRange, part: HashRange) -> tuple[int, ...]:
    """Cut out a part of a range, and halve it: a hot key is in one of the halves, all else is free of it.

    With parts of a 32nd, three such steps get from the whole hash space to a single hash.
    """
    middle = part.start + (part.size + 1) // 2
    wanted = {part.start, middle, part.end + 1}
    return tuple(sorted(cut for cut in wanted if hash_range.start < cut <= hash_range.end))
