"""The segment stores of a topic, made and deleted many at once."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from scalable.domain.layout import Segment
from scalable.segments.port import STORES_AT_ONCE, NewStore
from scalable.segments.registry import segment_port
from scalable.store import topics as store
from scalable.store.topics import TopicView

Item = TypeVar("Item")


def create_stores(topic: TopicView, segments: Sequence[Segment]) -> None:
    """Make the stores of these segments, with the cursors of all subscriptions; what is there stays."""
    subscriptions = store.named_subscriptions(topic.incarnation)
    for portion in _portions(segments):
        stores = [
            NewStore(
                segment.segment_id,
                segment.hash_range,
                store.cursors_of(subscriptions, segment.entry_bucket_splits),
            )
            for segment in portion
        ]
        segment_port().create_all(incarnation=topic.incarnation, stores=stores)


def delete_stores(incarnation: int, segment_ids: Sequence[int]) -> None:
    """Delete these stores of a topic; missing ones are fine, and what a crash leaves is for the sweep."""
    for portion in _portions(segment_ids):
        segment_port().delete_all(incarnation=incarnation, segment_ids=portion)


def _portions(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), STORES_AT_ONCE):
        yield items[start : start + STORES_AT_ONCE]
