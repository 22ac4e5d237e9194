"""Where members of a CHECKPOINT group stopped, by segment, and what is remembered of pruned segments."""

from collections.abc import Collection, Mapping

from django.db.models import F

from scalable.domain.checkpoint import PrunedExtent
from scalable.models import Assignment, PrunedSegment, Subscription


def positions(subscription_id: int) -> dict[int, int]:
    """Read where the last owner of each segment stopped; segments of which nobody said so are left out."""
    rows = Assignment.objects.filter(subscription_id=subscription_id, position__isnull=False)
    return {segment_id: position or 0 for segment_id, position in rows.values_list("segment_id", "position")}


def ended(subscription_ids: Collection[int]) -> Mapping[int, frozenset[int]]:
    """Read by group which segments it has read to the end."""
    found: dict[int, set[int]] = {}
    rows = Assignment.objects.filter(subscription_id__in=subscription_ids, drained=True)
    for subscription_id, segment_id in rows.values_list("subscription_id", "segment_id"):
        found.setdefault(subscription_id, set()).add(segment_id)
    return {subscription_id: frozenset(segment_ids) for subscription_id, segment_ids in found.items()}


def write_position(subscription_id: int, segment_id: int, position: int) -> None:
    """Note where the owner stopped; the caller holds the subscription's lock."""
    rows = Assignment.objects.filter(subscription_id=subscription_id, segment_id=segment_id)
    rows.update(position=position)


def clear_positions(subscription_id: int) -> None:
    """Forget where owners stopped, for the group goes on elsewhere; the caller holds its lock."""
    Assignment.objects.filter(subscription_id=subscription_id).update(position=None)


def note_restore(subscription_id: int) -> int:
    """Give the group a new generation and keep it as that of its last restore; the caller holds its lock."""
    rows = Subscription.objects.filter(pk=subscription_id)
    rows.update(
        assignment_generation=F("assignment_generation") + 1,
        restored_generation=F("assignment_generation") + 1,
    )
    return rows.values_list("restored_generation", flat=True).get()


def pruned_extents(incarnation: int) -> Mapping[int, PrunedExtent]:
    """Read what is remembered of pruned segments."""
    rows = PrunedSegment.objects.filter(topic_id=incarnation)
    found = rows.values_list("segment_id", "end_offset", "child_ids")
    return {segment_id: PrunedExtent(end, tuple(child_ids)) for segment_id, end, child_ids in found}
