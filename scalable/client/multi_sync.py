"""The synchronous faces of the multi-topic consumers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalable.client.connection import Urls
from scalable.client.multi_queue_consumer import MultiTopicQueueConsumer, MultiTopicQueueMessage
from scalable.client.multi_stream_consumer import MultiTopicMessage, MultiTopicStreamConsumer, PositionVector
from scalable.client.multi_topic import MultiTopicReceiver
from scalable.client.receiver import MessageKind
from scalable.client.sync import SyncReceiver
from scalable.domain.names import NamespaceName, TopicName


class _SyncMultiTopic(SyncReceiver[MessageKind]):
    """What both share."""

    _consumer: MultiTopicReceiver[MessageKind, Any]

    @property
    def namespace(self) -> NamespaceName:
        """Give the namespace whose topics are read."""
        return self._consumer.namespace

    @property
    def topics(self) -> frozenset[TopicName]:
        """Give the topics that are read, or to be read as soon as that works."""
        return self._loop.run(lambda: self._consumer.topics)

    @property
    def troubles(self) -> Mapping[TopicName, Exception]:
        """Give the topics that cannot be read just now, with what is wrong; each is tried again."""
        return self._loop.run(lambda: self._consumer.troubles)

    def flush(self) -> None:
        """Wait until all acknowledgements are durable."""
        self._loop.call(self._consumer.flush())


class SyncMultiTopicStreamConsumer(_SyncMultiTopic[MultiTopicMessage]):
    """A `MultiTopicStreamConsumer` (see there for the options) for synchronous code; iterate for messages."""

    _consumer: MultiTopicStreamConsumer

    def __init__(
        self, url: Urls, namespace: NamespaceName | str, subscription: str, token: str, **options: Any
    ) -> None:
        self._consumer = self._open(MultiTopicStreamConsumer, url, namespace, subscription, token, **options)

    def acknowledge(self, message: MultiTopicMessage) -> bool:
        """Acknowledge a message and all before it in its segment; False when another owns the segment."""
        return self._loop.run(self._consumer.acknowledge, message)

    def acknowledge_cumulative(self, message: MultiTopicMessage) -> bool:
        """Acknowledge a message and all that were received here before it, of whatever topic."""
        return self._loop.run(self._consumer.acknowledge_cumulative, message)

    def positions(self) -> PositionVector:
        """Give, by topic and segment, the position behind the last message that was received here."""
        return self._loop.run(self._consumer.positions)

    def acknowledge_positions(self, positions: PositionVector) -> None:
        """Acknowledge everything below a vector of positions; what others own by now is left out."""
        self._loop.run(self._consumer.acknowledge_positions, positions)

    def acknowledge_all(self) -> None:
        """Acknowledge every message that was received here."""
        self._loop.run(self._consumer.acknowledge_all)

    @property
    def owned_segments(self) -> dict[TopicName, tuple[int, ...]]:
        """Give the ids of the segments that this consumer owns now, by topic."""
        return self._loop.run(lambda: self._consumer.owned_segments)


class SyncMultiTopicQueueConsumer(_SyncMultiTopic[MultiTopicQueueMessage]):
    """A `MultiTopicQueueConsumer` (see there for the options) for synchronous code; iterate for messages."""

    _consumer: MultiTopicQueueConsumer

    def __init__(
        self, url: Urls, namespace: NamespaceName | str, subscription: str, token: str, **options: Any
    ) -> None:
        self._consumer = self._open(MultiTopicQueueConsumer, url, namespace, subscription, token, **options)

    def acknowledge(self, message: MultiTopicQueueMessage) -> bool:
        """Acknowledge this message alone; False when its topic was left since."""
        return self._loop.run(self._consumer.acknowledge, message)

    def negative_acknowledge(self, message: MultiTopicQueueMessage) -> bool:
        """Give a message back, to be delivered again after a rest; False when its topic was left since."""
        return self._loop.run(self._consumer.negative_acknowledge, message)
