"""A page of a namespace's topics with their figures, in a constant number of statements."""

from dataclasses import dataclass

from django.db.models import Count, Q

from scalable.models import Topic
from scalable.store import decisions
from scalable.store.clock import milliseconds
from scalable.store.decisions import DecisionView
from scalable.store.topics import namespace_id


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """What a list shows of a topic; `last_decision` is the newest one that the journal keeps."""

    name: str
    epoch: int
    active_segments: int
    sealed_segments: int
    created_at_ms: int
    last_decision: DecisionView | None


def page(
    *, tenant: str, namespace: str, search: str, limit: int, offset: int
) -> tuple[list[TopicFigures], int]:
    """Give a page of topics by name whose name contains `search`, and how many there are of these.

    Raises NamespaceNotFound.
    """
    topics = Topic.objects.filter(namespace_id=namespace_id(tenant, namespace))
    if search:
        topics = topics.filter(name__icontains=search)
    shown = list(topics.order_by("name").values_list("pk", flat=True)[offset : offset + limit])
    counted = Topic.objects.filter(pk__in=shown).annotate(
        active=Count("segments", filter=Q(segments__state="ACTIVE")),
        sealed=Count("segments", filter=Q(segments__state="SEALED")),
    )
    decided = decisions.last_of(shown)
    figures = [
        TopicFigures(
            row.name,
            row.epoch,
            row.active,
            row.sealed,
            milliseconds(row.created_at),
            decided.get(row.pk),
        )
        for row in counted.order_by("name")
    ]
    return figures, topics.count()
