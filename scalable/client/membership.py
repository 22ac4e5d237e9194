"""Which topic and which subscription a consumer joined: another life of either name is none of its own."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from scalable.domain.errors import SubscriptionNotFound, TopicDeleted
from scalable.domain.names import TopicName, validate_part
from scalable.wire.frames import PROTOCOL_VERSION, Hello


@dataclass(slots=True)
class Membership:
    """A consumer of a subscription, and the lives of the topic's and the subscription's name, once told.

    All sockets of a consumer share it, so that none joins what was made under these names since; `session_id`
    tells them from those of a namesake.
    Raises InvalidName for names that no consumer or subscription can have.
    """

    consumer: str
    topic: TopicName
    subscription: str
    incarnation: int | None = None
    subscription_id: int | None = None
    session_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        validate_part(self.consumer, "consumer")
        validate_part(self.subscription, "subscription")

    def hello(self) -> Hello:
        """Give the frame that opens a socket: it names what is known, which is then joined or nothing."""
        return Hello(
            protocol=PROTOCOL_VERSION,
            client="python",
            session_id=self.session_id,
            consumer=self.consumer,
            incarnation=self.incarnation,
            subscription_id=self.subscription_id,
        )

    def may_be(self, subscription_id: int) -> bool:
        """Tell whether this is the subscription that was joined, as far as both are known."""
        return not (self.subscription_id and subscription_id) or self.subscription_id == subscription_id

    def learn(self, incarnation: int, subscription_id: int) -> None:
        """Keep the first lives that are told; raises TopicDeleted, SubscriptionNotFound for others.

        A `subscription_id` of 0 tells nothing: it is a node of an earlier version.
        """
        if self.incarnation not in {None, incarnation}:
            raise TopicDeleted(topic=str(self.topic))
        self.incarnation = incarnation
        if not subscription_id:
            return
        if self.subscription_id not in {None, subscription_id}:
            raise SubscriptionNotFound(subscription=self.subscription)
        self.subscription_id = subscription_id
