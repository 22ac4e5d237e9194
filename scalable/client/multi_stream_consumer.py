"""The stream consumer of many topics: the messages of a key in order, cumulative acks over all topics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from scalable.client.connection import Urls
from scalable.client.consumer import StreamConsumer
from scalable.client.handed_out import HandedOut, Place
from scalable.client.inbox import Message
from scalable.client.member import DEFAULT_PREFETCH_MESSAGES
from scalable.client.multi_topic import MultiTopicReceiver
from scalable.domain.names import NamespaceName, TopicName


@dataclass(frozen=True, slots=True)
class MultiTopicMessage(Message):
    """A message of one of several topics; `topic` names it."""

    consumer: int = field(kw_only=True)
    """Which of the consumers inside delivered it."""
    number: int = field(kw_only=True)
    """Its place among all messages that were handed out, of whatever topic."""


class SegmentPosition(NamedTuple):
    """Up to where a segment is processed, under which ownership of it, and whose inside that is."""

    consumer: int
    generation: int
    position: int


PositionVector = Mapping[TopicName, Mapping[int, SegmentPosition]]
"""Positions by topic and segment, for this consumer alone, and for as long as it owns the segments."""


class MultiTopicStreamConsumer(MultiTopicReceiver[MultiTopicMessage, StreamConsumer]):
    """A member of the STREAM subscriptions of one name of all topics of a namespace with some properties.

    Use it as `async with MultiTopicStreamConsumer(...) as consumer`. Topics that come later are read, too,
    and those that go are left. Each topic is read as `StreamConsumer` says, so the messages of a key of one
    topic come in order. A topic that cannot be subscribed to is tried again, after 100 ms at first and 30
    minutes at last. `prefetch_messages` bounds what waits in memory of all topics together, at least one
    message a segment.
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
        initial_position: Literal["earliest", "latest"] | datetime | int = "earliest",
        prefetch_messages: int = DEFAULT_PREFETCH_MESSAGES,
    ) -> None:
        """Take the options; raises ValueError for one out of its bounds, InvalidName, InvalidParameter.

        `initial_position` counts for new subscriptions of the topics that are there at the start: later ones
        are read from `earliest` instead of `latest`.
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
        self._initial_position = initial_position
        self._handed_out = HandedOut()
        # Options that no consumer takes are refused here, not again and again for each topic.
        self._make(TopicName(self.namespace.tenant, self.namespace.namespace, "any"), came_later=False)

    @property
    def owned_segments(self) -> dict[TopicName, tuple[int, ...]]:
        """Give the ids of the segments that this consumer owns now, by topic."""
        return {each.topic: each.owned_segments for each in self._consumers.values()}

    def acknowledge(self, message: MultiTopicMessage) -> bool:
        """Acknowledge a message and all before it in its segment.

        False when the segment has another owner by now, its topic was left, or another object handed it out:
        the message comes again.
        """
        place = Place(message.consumer, message.message_id.segment_id, message.generation)
        self._handed_out.settle({place: message.message_id.offset + 1})
        consumer = self._consumers.get(message.consumer)
        return consumer is not None and consumer.acknowledge(message)

    def acknowledge_cumulative(self, message: MultiTopicMessage) -> bool:
        """Acknowledge a message and all that were received here before it, of whatever topic.

        False when the segment of this one has another owner by now, or its topic was left; also, and nothing
        is acknowledged then, when another object handed it out.
        """
        if self._is_own(message.consumer):
            self._acknowledge_places(self._handed_out.up_to(message.number))
        return self.acknowledge(message)

    def positions(self) -> PositionVector:
        """Give, by topic and segment, the position behind the last message that was received here."""
        found: dict[TopicName, dict[int, SegmentPosition]] = {}
        for number, consumer in self._consumers.items():
            found[consumer.topic] = {
                segment_id: SegmentPosition(number, generation, position)
                for segment_id, generation, position in consumer._owned_positions()
            }
        return found

    def acknowledge_positions(self, positions: PositionVector) -> None:
        """Acknowledge everything below a vector of `positions`; what others own by now is left out."""
        self._acknowledge_places(
            {
                Place(held.consumer, segment_id, held.generation): held.position
                for segments in positions.values()
                for segment_id, held in segments.items()
            }
        )

    def acknowledge_all(self) -> None:
        """Acknowledge every message that was received here."""
        self.acknowledge_positions(self.positions())

    def _acknowledge_places(self, places: Mapping[Place, int]) -> None:
        self._handed_out.settle(places)
        for place, position in places.items():
            consumer = self._consumers.get(place.consumer)
            if consumer is not None:
                consumer._acknowledge_owned(place.segment_id, position, generation=place.generation)

    def _make(self, topic: TopicName, *, came_later: bool) -> StreamConsumer:
        late = came_later and self._initial_position == "latest"
        return StreamConsumer(
            self._url,
            topic,
            self.subscription,
            self._token,
            name=self.name,
            initial_position="earliest" if late else self._initial_position,
            prefetch_messages=self._prefetch,
        )

    def _forget(self, number: int) -> None:
        self._handed_out.forget(number)

    def _hand_out(self, consumer: StreamConsumer, number: int) -> MultiTopicMessage | None:
        message = consumer._next_message()
        if message is None:
            return None
        place = message.message_id
        return MultiTopicMessage(
            topic=message.topic,
            key=message.key,
            value=message.value,
            message_id=place,
            published_at_ms=message.published_at_ms,
            event_time_ms=message.event_time_ms,
            properties=message.properties,
            generation=message.generation,
            bucket=message.bucket,
            consumer=number,
            number=self._handed_out.note(
                Place(number, place.segment_id, message.generation), place.offset + 1
            ),
        )
