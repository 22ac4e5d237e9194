"""What merges at the cap of segments, so that hot ones can be split: pairs well below what is split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from scalable.domain.autoscale_limits import (
    Run,
    adjacent,
    depth_guards,
    fewest,
    isolation_guards,
    lost_buckets,
    spare_buckets,
)
from scalable.domain.autoscale_view import View, added, ids_of, metric_name, ratio
from scalable.domain.decision import KINDS, Guard, Margin, Merge, Wish

ROOM_RULE = "makes-room"
ROOM_SHARE = 0.75


def room_wishes(view: View, splits: Sequence[Wish]) -> list[Wish]:
    """Give merges that make room at the cap for the splits that are wanted.

    What a pair would carry is at most three quarters of what the segment carries that is split in exchange:
    each exchange lowers the highest load, so that they come to an end. That the pair was busier lately, or is
    young, does not matter where a segment is overloaded now; all else that merges keep to does. Where that
    holds back each pair, the first is told with its guards.
    """
    scores = (view.scores[key] for wish in splits if wish.action for key in wish.action.segment_ids)
    hot = sorted(scores, reverse=True)
    room, spare = min(len(hot), len(view.active) - fewest(view)), spare_buckets(view)
    wishes: list[Wish] = []
    barred: list[Wish] = []
    taken: set[int] = set()
    for warmth, pair in sorted(_pairs(view), key=lambda each: each[0]):
        if len(wishes) >= room or warmth > ROOM_SHARE * hot[len(wishes)]:
            break
        lost = lost_buckets(view, pair)
        if lost > spare or not taken.isdisjoint(ids_of(pair)):
            continue
        wish = _room_wish(view, pair, ROOM_SHARE * hot[len(wishes)])
        if wish.guards:
            barred.append(wish)
            continue
        spare -= lost
        taken.update(ids_of(pair))
        wishes.append(wish)
    return wishes or barred[:1]


def _pairs(view: View) -> Iterator[tuple[float, Run]]:
    """Give the neighbours of known load, with how near they are to a split threshold together."""
    for pair in pairwise(view.known):
        if adjacent(pair):
            yield ratio(added(view.demand[key] for key in ids_of(pair)), view.split_limits), pair


def _room_wish(view: View, pair: Run, share: float) -> Wish:
    index = view.hottest_metric(pair[0].segment_id)
    rate = sum(view.demand[segment_id][index] for segment_id in ids_of(pair))
    margin = Margin(ROOM_RULE, metric_name(index), ids_of(pair), rate, share * view.split_limits[index])
    return Wish(ROOM_RULE, Merge(ids_of(pair)), margin, tuple(_guards(view, pair)))


def _guards(view: View, pair: Run) -> Iterator[Guard]:
    yield from view.setback_guards(ROOM_RULE, KINDS[Merge], ids_of(pair))
    for segment in pair:
        yield from depth_guards(view, segment, ROOM_RULE)
    yield from isolation_guards(view, pair, ROOM_RULE)
