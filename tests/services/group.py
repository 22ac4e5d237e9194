"""A subscription with its consumers, driven through the controller's services as a leader drives them."""

import uuid

from django.db import transaction

from scalable.domain.subscriptions import BucketKey
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import assignment, controller, messages, settling
from scalable.services.assignment import AssignmentView
from scalable.services.controller import Leader
from scalable.services.subscriptions import InitialPosition
from scalable.services.topics import TopicView
from scalable.store import subscriptions as store
from scalable.store import topics
from scalable.store.subscriptions import SubscriptionView

URL = "http://node"


def new_node() -> uuid.UUID:
    """A living node."""
    node_id = uuid.uuid4()
    controller.heartbeat_node(node_id=node_id, url=URL)
    return node_id


def leader_of(topic: TopicView, node_id: uuid.UUID | None = None) -> Leader:
    """The leadership of a topic, taken by a node."""
    node_id = node_id or new_node()
    leadership = controller.acquire_leadership(name=topic.name, node_id=node_id)
    assert leadership.mine
    return Leader(node_id, leadership.term, topic.name, topic.incarnation)


class Group:
    """The STREAM subscription `s` of a topic."""

    def __init__(
        self,
        topic: TopicView,
        *,
        initial_position: InitialPosition = "earliest",
        key_shared: bool = False,
        node_id: uuid.UUID | None = None,
    ) -> None:
        self.topic = topic
        self.leader = leader_of(topic, node_id)
        self._initial_position = initial_position
        self._key_shared = key_shared

    @property
    def subscription(self) -> SubscriptionView:
        return controller.find_or_create(
            name=self.topic.name,
            subscription="s",
            initial_position=self._initial_position,
            key_shared=self._key_shared,
        )

    @property
    def subscription_id(self) -> int:
        return self.subscription.subscription_id

    def join(self, *consumers: str) -> None:
        for consumer in consumers:
            controller.register_consumer(
                leader=self.leader, subscription_id=self.subscription_id, consumer=consumer
            )

    def leave(self, consumer: str) -> None:
        controller.remove_consumers(
            leader=self.leader, subscription_id=self.subscription_id, consumers=[consumer]
        )

    def view(self, consumer: str) -> AssignmentView:
        found = assignment.assignments(leader=self.leader, subscription_id=self.subscription_id)
        return found.of(consumer)

    def owned(self, consumer: str) -> dict[int, int]:
        """The generations of the segments that a consumer owns."""
        return {owned.name.segment_id: owned.generation for owned in self.view(consumer).segments}

    def units(self, consumer: str) -> dict[BucketKey, int]:
        """The generations of the entry buckets that a consumer owns."""
        owned = self.view(consumer).segments
        return {BucketKey(one.name.segment_id, one.bucket): one.generation for one in owned}

    def bucket_owners(self) -> dict[BucketKey, str]:
        """The owner of each segment or entry bucket that has one."""
        owned = store.ownerships(self.subscription_id).owned
        return {key: known.owner for key, known in sorted(owned.items()) if known.owner is not None}

    def owners(self) -> dict[int, str]:
        """The owner of each segment that has one."""
        return {key.segment_id: owner for key, owner in self.bucket_owners().items()}

    def release(
        self,
        consumer: str,
        segment_id: int,
        *,
        generation: int | None = None,
        bucket: int = 0,
        position: int | None = None,
    ) -> None:
        """Pass one on; raises what it is refused for."""
        held = self.generation(segment_id, bucket) if generation is None else generation
        release = assignment.Release(consumer, segment_id, held, bucket, position)
        (refusal,) = assignment.release_segments(
            leader=self.leader, subscription_id=self.subscription_id, releases=[release]
        )
        if refusal is not None:
            raise refusal

    def release_all(self, consumer: str) -> None:
        """Give up what is asked for."""
        for segment_id, bucket in self.view(consumer).releasing:
            self.release(consumer, segment_id, bucket=bucket)

    def releasing(self, consumer: str) -> list[int]:
        """The segments that a consumer is asked to give up."""
        return [segment_id for segment_id, _ in self.view(consumer).releasing]

    def acknowledge(
        self, segment_id: int, position: int, *, generation: int | None = None, bucket: int = 0
    ) -> None:
        """Acknowledge as the owner."""
        messages.acknowledge(
            subscription=self.subscription,
            segment_id=segment_id,
            generation=self.generation(segment_id, bucket) if generation is None else generation,
            position=position,
            bucket=bucket,
        )

    def drain(self, segment_id: int, *, bucket: int = 0) -> None:
        """Acknowledge all that a segment or entry bucket holds."""
        end_offset = segment_port().stats(self.key(segment_id)).end_offset
        self.acknowledge(segment_id, end_offset, bucket=bucket)

    def seek(self, positions: dict[int, int]) -> None:
        """Move the cursors of whole segments, as a seek does."""
        with transaction.atomic():
            topics.lock(self.topic.name)
            locked = store.lock(self.subscription_id)
            layout = store.read_layout(locked.incarnation)
            for segment_id, position in sorted(positions.items()):
                for bucket in range(layout.segments[segment_id].bucket_count if locked.key_shared else 1):
                    name = settling.cursors_of(locked, layout.segments[segment_id])[bucket]
                    segment_port().seek(self.key(segment_id), subscription=name, position=position)
            settling.sought(locked, segment_ids=set(positions))

    def generation(self, segment_id: int, bucket: int = 0) -> int:
        known = store.ownership(self.subscription_id, BucketKey(segment_id, bucket))
        return 0 if known is None else known.generation

    def key(self, segment_id: int) -> SegmentKey:
        return SegmentKey(self.topic.incarnation, segment_id)
