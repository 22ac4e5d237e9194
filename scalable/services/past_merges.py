"""How long merged segments had lived that were parted lately, for policies with `mergeRepeatSeconds`."""

from collections.abc import Mapping, Sequence

from scalable.domain.flaps import merged_for_ms
from scalable.domain.policy import AutoScalePolicy, bounded_seconds
from scalable.domain.segment import Segment
from scalable.store import history
from scalable.store.clock import moment
from scalable.store.topics import TopicView


def lives_of_merges(
    topics: Sequence[TopicView], policies: Mapping[int, AutoScalePolicy], *, now_ms: int
) -> dict[int, dict[int, int]]:
    """Read for how long each merged segment lived that was parted lately, by topic and by who came of it.

    In milliseconds. Only what holds a merge back is told: what is young itself, and came of a life as short.
    Most topics have nothing young, and ask nothing of the database.
    """
    spans_ms = {
        key: round(bounded_seconds(policy.merge_repeat_seconds) * 1000) for key, policy in policies.items()
    }
    young = {each.incarnation: _young(each, now_ms - spans_ms[each.incarnation]) for each in topics}
    wanting = {each.incarnation: each for each in topics if young[each.incarnation]}
    if not wanting:
        return {}
    # Who is young came when its parent was sealed; what that was merged of was sealed one such life before.
    since_ms = max(0, now_ms - 2 * max(spans_ms[key] for key in wanting))
    pruned = history.sealed_since(wanting, moment(since_ms))
    return {
        key: _short_lives(topic, young[key], pruned.get(key, ()), spans_ms[key])
        for key, topic in wanting.items()
    }


def _young(topic: TopicView, since_ms: int) -> list[Segment]:
    """Give the active segments that an operation made after an instant."""
    return [each for each in topic.layout.active if each.created_epoch and each.created_at_ms > since_ms]


def _short_lives(
    topic: TopicView, young: Sequence[Segment], pruned: Sequence[history.PastSegment], span_ms: int
) -> dict[int, int]:
    sealed = [each for each in topic.layout.segments.values() if not each.is_active]
    lives = merged_for_ms(young, [*sealed, *pruned])
    return {key: lived_ms for key, lived_ms in lives.items() if lived_ms < span_ms}
