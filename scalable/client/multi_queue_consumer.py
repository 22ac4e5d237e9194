"""The queue consumer of many topics: each message is acknowledged for itself, at the topic it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scalable.client.connection import Urls
from scalable.client.multi_topic import MultiTopicReceiver
from scalable.client.queue_consumer import DEFAULT_PREFETCH_MESSAGES, NegativeAckBackoff, QueueConsumer
from scalable.client.queue_inbox import QueueMessage
from scalable.client.subscription_admin import Edge
from scalable.domain.names import NamespaceName, TopicName

DEAD_LETTER_SUFFIX = "-DLQ"


@dataclass(frozen=True, slots=True)
class MultiTopicQueueMessage(QueueMessage):
    """A message of one of several topics; `topic` names it."""

    consumer: int = field(kw_only=True)
    """Which of the consumers inside delivered it."""


class MultiTopicQueueConsumer(MultiTopicReceiver[MultiTopicQueueMessage, QueueConsumer]):
    """A member of the QUEUE subscriptions of one name of all topics of a namespace with some properties.

    Use it as `async with MultiTopicQueueConsumer(...) as consumer`. Topics that come later are read, too, and
    those that go are left. Each topic is read as `QueueConsumer` says; its subscription is made if it is new.
    A topic that cannot be subscribed to is tried again, after 100 ms at first and 30 minutes at last.
    `prefetch_messages` bounds what waits in memory of all topics together, at least one message a segment.
    """

    def __init__(
        self,
        url: Urls,
        namespace: NamespaceName | str,
        subscription: str,
        token: str,
        *,
        properties: Mapping[str, str] | None = None,
        name: str | None = None,
        start: Edge | int = "earliest",
        ack_timeout_seconds: float | None = None,
        max_deliveries: int | None = None,
        dead_letter_topic: TopicName | str | None = None,
        negative_ack_backoff: tuple[float, float, float] = NegativeAckBackoff(),
        prefetch_messages: int = DEFAULT_PREFETCH_MESSAGES,
    ) -> None:
        """Take the options; raises ValueError for one out of its bounds, InvalidName.

        `start` counts for new subscriptions of the topics that are there at the start: later ones are read
        from `earliest` instead of `latest`. Dead letter topics of the subscription are not read.
        """
        super().__init__(
            url,
            namespace,
            subscription,
            token,
            properties=properties,
            name=name,
            prefetch_messages=prefetch_messages,
        )
        self._start_position = start
        self._ack_timeout_seconds, self._max_deliveries = ack_timeout_seconds, max_deliveries
        self._negative_ack_backoff = negative_ack_backoff
        self._dead_letter_topic = (
            TopicName.parse(dead_letter_topic) if isinstance(dead_letter_topic, str) else dead_letter_topic
        )
        # Options that no consumer takes are refused here, not again and again for each topic.
        self._make(TopicName(self.namespace.tenant, self.namespace.namespace, "any"), came_later=False)

    def acknowledge(self, message: MultiTopicQueueMessage) -> bool:
        """Acknowledge this message alone; False when its topic was left since, or it is another object's.

        It may come again then.
        """
        consumer = self._consumers.get(message.consumer)
        if consumer is not None:
            consumer.acknowledge(message)
        return consumer is not None

    def negative_acknowledge(self, message: MultiTopicQueueMessage) -> bool:
        """Give a message back, to be delivered again after a rest; False when its topic was left since."""
        consumer = self._consumers.get(message.consumer)
        if consumer is not None:
            consumer.negative_acknowledge(message)
        return consumer is not None

    def _make(self, topic: TopicName, *, came_later: bool) -> QueueConsumer:
        late = came_later and self._start_position == "latest"
        return QueueConsumer(
            self._url,
            topic,
            self.subscription,
            self._token,
            name=self.name,
            start="earliest" if late else self._start_position,
            ack_timeout_seconds=self._ack_timeout_seconds,
            max_deliveries=self._max_deliveries,
            dead_letter_topic=self._dead_letter_topic,
            negative_ack_backoff=self._negative_ack_backoff,
            prefetch_messages=self._prefetch,
        )

    def _wants(self, topic: TopicName) -> bool:
        own = topic.name.endswith(f"-{self.subscription}{DEAD_LETTER_SUFFIX}")
        return not own and topic != self._dead_letter_topic

    def _hand_out(self, consumer: QueueConsumer, number: int) -> MultiTopicQueueMessage | None:
        message = consumer._next_message()
        if message is None:
            return None
        return MultiTopicQueueMessage(
            topic=message.topic,
            key=message.key,
            value=message.value,
            message_id=message.message_id,
            published_at_ms=message.published_at_ms,
            event_time_ms=message.event_time_ms,
            properties=message.properties,
            deliveries=message.deliveries,
            incarnation=message.incarnation,
            subscription_id=message.subscription_id,
            consumer=number,
        )
