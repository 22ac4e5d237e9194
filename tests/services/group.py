"""A subscription with its consumers, driven through the controller's services as a leader drives them."""

import uuid

from scalable.domain.subscriptions import BucketKey
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import assignment, controller, messages
from scalable.services.assignment import AssignmentView
from scalable.services.controller import Leader
from scalable.services.subscriptions import InitialPosition
from scalable.services.topics import TopicView
from scalable.store import subscriptions as store
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

    def __init__(self, topic: TopicView, *, initial_position: InitialPosition = "earliest") -> None:
        self.topic = topic
        self.leader = leader_of(topic)
        self._initial_position = initial_position

    @property
    def subscription(self) -> SubscriptionView:
        return controller.find_or_create(
            name=self.topic.name, subscription="s", initial_position=self._initial_position
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
        controller.remove_consumer(
            leader=self.leader, subscription_id=self.subscription_id, consumer=consumer
        )

    def view(self, consumer: str) -> AssignmentView:
        return assignment.assignment(
            leader=self.leader, subscription_id=self.subscription_id, consumer=consumer
        )

    def owned(self, consumer: str) -> dict[int, int]:
        """The generations of the segments that a consumer owns."""
        return {owned.name.segment_id: owned.generation for owned in self.view(consumer).segments}

    def owners(self) -> dict[int, str]:
        """The owner of each segment that has one."""
        owned = store.ownerships(self.subscription_id).owned
        return {
            key.segment_id: known.owner for key, known in sorted(owned.items()) if known.owner is not None
        }

    def release(self, consumer: str, segment_id: int, *, generation: int | None = None) -> None:
        held = self.owned(consumer).get(segment_id, 0) if generation is None else generation
        assignment.release_segment(
            subscription_id=self.subscription_id,
            consumer=consumer,
            segment_id=segment_id,
            generation=held,
        )

    def release_all(self, consumer: str) -> None:
        """Give up what is asked for."""
        for segment_id in self.releasing(consumer):
            self.release(consumer, segment_id)

    def releasing(self, consumer: str) -> list[int]:
        """The segments that a consumer is asked to give up."""
        return [segment_id for segment_id, _ in self.view(consumer).releasing]

    def acknowledge(self, segment_id: int, position: int, *, generation: int | None = None) -> None:
        """Acknowledge as the owner."""
        messages.acknowledge(
            subscription=self.subscription,
            segment_id=segment_id,
            generation=self.generation(segment_id) if generation is None else generation,
            position=position,
        )

    def drain(self, segment_id: int) -> None:
        """Acknowledge all that a segment holds."""
        self.acknowledge(segment_id, segment_port().stats(self.key(segment_id)).end_offset)

    def generation(self, segment_id: int) -> int:
        known = store.ownership(self.subscription_id, BucketKey(segment_id))
        return 0 if known is None else known.generation

    def key(self, segment_id: int) -> SegmentKey:
        return SegmentKey(self.topic.incarnation, segment_id)
