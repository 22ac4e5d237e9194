"""A subscription's name that is given again is another subscription: who knew the former joins it nowhere."""

from typing import NamedTuple

import pytest

from scalable.domain.subscriptions import SubscriptionType
from scalable.models import ConsumerRegistration
from scalable.services import subscriptions
from scalable.services.topics import TopicView
from scalable.store.subscriptions import SubscriptionView
from scalable.wire.frames import (
    PROTOCOL_VERSION,
    Assignment,
    CheckpointBody,
    ErrorFrame,
    Frame,
    Hello,
    Register,
    Welcome,
)
from tests.api.peers import ask, raw_socket
from tests.processes import LiveNode
from tests.topology import make_topic

STREAM, CHECKPOINT, QUEUE = SubscriptionType.STREAM, SubscriptionType.CHECKPOINT, SubscriptionType.QUEUE


class Door(NamedTuple):
    """A socket of consumers, and what it is for."""

    socket: str
    kind: SubscriptionType
    key_shared: bool = False
    at_checkpoint: bool = False

    def register(self, topic: TopicView) -> Register:
        """What joins such a subscription."""
        if self.kind is not CHECKPOINT:
            return Register(key_shared=self.key_shared)
        body = CheckpointBody(incarnation=topic.incarnation, positions={"0": 0})
        return Register(kind="CHECKPOINT", checkpoint=body if self.at_checkpoint else None)


DOORS = {
    "stream-controller": Door("controller", STREAM),
    "shared-controller": Door("controller", STREAM, key_shared=True),
    "group-controller": Door("controller", CHECKPOINT),
    "group-at-checkpoint": Door("controller", CHECKPOINT, at_checkpoint=True),
    "stream-consume": Door("consume", STREAM),
    "group-consume": Door("consume", CHECKPOINT),
    "queue": Door("queue", QUEUE),
}
"""By the name of the subscription that each has for itself."""


def create(topic: TopicView, name: str, kind: SubscriptionType) -> SubscriptionView:
    return subscriptions.create_subscription(
        name=topic.name, subscription=name, kind=kind, key_shared=DOORS[name].key_shared and kind is STREAM
    )


def begin() -> tuple[TopicView, dict[str, SubscriptionView]]:
    """The topic `orders` of one segment, and a subscription for each door."""
    topic = make_topic("orders", segments=1)
    return topic, {name: create(topic, name, door.kind) for name, door in DOORS.items()}


def begin_again(topic: TopicView, kind: SubscriptionType | None) -> set[SubscriptionView]:
    """Delete every subscription, and make each again as this kind, or not."""
    for name in DOORS:
        subscriptions.delete_subscription(name=topic.name, subscription=name)
        if kind is not None:
            create(topic, name, kind)
    return there(topic)


def there(topic: TopicView) -> set[SubscriptionView]:
    return set(subscriptions.list_subscriptions(name=topic.name))


def registered() -> bool:
    return ConsumerRegistration.objects.exists()


async def told(
    node: LiveNode, topic: TopicView, name: str, *, subscription_id: int | None, kind: type[Frame]
) -> Frame:
    """Come to a door and give the first frame of a kind."""
    door = DOORS[name]
    async with raw_socket(node, f"{door.socket}/public/default/orders/{name}") as peer:
        await peer.send(
            Hello(
                protocol=PROTOCOL_VERSION,
                consumer="c",
                incarnation=topic.incarnation,
                subscription_id=subscription_id,
            )
        )
        if door.socket == "controller":
            await peer.expect(Welcome)
            await peer.send(door.register(topic))
        frame = await peer.wait_for(kind)
        if kind is ErrorFrame:
            assert await peer.close_code() == 4404
        return frame


@pytest.mark.parametrize("kind", [None, STREAM, CHECKPOINT, QUEUE])
async def test_who_comes_back_to_a_deleted_subscription_makes_and_joins_none(
    live_node: LiveNode, db: None, kind: SubscriptionType | None
) -> None:
    topic, former = await ask(begin)
    present = await ask(begin_again, topic, kind)
    for name, known in former.items():
        frame = await told(live_node, topic, name, subscription_id=known.subscription_id, kind=ErrorFrame)
        assert isinstance(frame, ErrorFrame)
        assert (frame.code, frame.fields) == ("subscription_not_found", {"subscription": name})
    assert await ask(there, topic) == present
    assert not await ask(registered)


async def test_every_door_tells_the_id_and_lets_in_who_names_it_and_who_names_none(
    live_node: LiveNode, db: None
) -> None:
    topic, present = await ask(begin)
    for name, known in present.items():
        kind = Assignment if DOORS[name].socket == "controller" else Welcome
        for subscription_id in (None, known.subscription_id):
            frame = await told(live_node, topic, name, subscription_id=subscription_id, kind=kind)
            assert isinstance(frame, Assignment | Welcome)
            assert frame.subscription_id == known.subscription_id


async def test_who_names_no_id_may_make_the_subscription(live_node: LiveNode, db: None) -> None:
    """A registration whose answer was lost is said again without one."""
    topic, former = await ask(begin)
    await ask(begin_again, topic, None)
    for name in (name for name, door in DOORS.items() if door.socket == "controller"):
        frames = [await told(live_node, topic, name, subscription_id=None, kind=Assignment) for _ in range(2)]
        ids = {frame.subscription_id for frame in frames if isinstance(frame, Assignment)}
        assert len(ids) == 1
        assert former[name].subscription_id not in ids
