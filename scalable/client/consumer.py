"""The stream consumer: exclusive segments from the topic's controller, messages in order, cumulative acks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from scalable.client.connection import Connection, Urls
from scalable.client.inbox import Message
from scalable.client.member import DEFAULT_PREFETCH_MESSAGES, Member
from scalable.client.prefetch import Prefetch
from scalable.client.starts import Start, registration
from scalable.domain.names import TopicName
from scalable.wire.frames import Register, Released


class Positions(dict[int, int]):
    """By segment the position behind the last message that was received, as `positions` gives it.

    Each counts for the ownership under which it was received: after a seek its messages are in process anew.
    One that takes the positions of another counts for their ownerships. What is set by hand, or made of this
    (a plain dict, JSON), is a number as any other and counts for every ownership.
    """

    def __init__(self, owned: Iterable[tuple[int, int, int]] = ()) -> None:
        """Take (segment, generation, position) of each."""
        super().__init__()
        self.generations: dict[int, int] = {}
        for segment_id, generation, position in owned:
            self[segment_id], self.generations[segment_id] = position, generation

    def __setitem__(self, segment_id: int, position: int) -> None:
        super().__setitem__(segment_id, position)
        self.generations.pop(segment_id, None)

    def update(self, *others: Any, **named: Any) -> None:
        """Take the positions of a vector, and their ownerships, or those of a plain mapping."""
        known = [dict(getattr(other, "generations", {})) for other in others]
        for segment_id, position in dict(*others, **named).items():
            self[segment_id] = position
        for generations in known:
            self.generations.update(generations)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles have ownerships of their own."""
        return _positions, (dict(self), dict(self.generations))

    def __ior__(self, other: Any) -> Self:  # type: ignore[override,misc]
        self.update(other)
        return self


def _positions(positions: dict[int, int], generations: dict[int, int]) -> Positions:
    made = Positions()
    made.update(positions)
    made.generations.update(generations)
    return made


class StreamConsumer(Member):
    """One member of a STREAM subscription; use it as `async with StreamConsumer(...) as consumer`.

    Messages of a key come in order, each to one member; after a split or merge the children's messages come
    when all of the parents' are acknowledged. A member that comes back under its `name` within the grace
    period gets its segments back. Delivery is at least once: what was not acknowledged comes again, to this
    member or another. `initial_position` is where a subscription begins that this member makes: `earliest`,
    `latest`, a time (a `datetime`, or milliseconds since 1970) or a `Checkpoint`. `prefetch_messages` bounds,
    per segment, what waits in memory.
    """

    def __init__(
        self,
        url: Urls,
        topic: TopicName | str,
        subscription: str,
        token: str,
        *,
        name: str | None = None,
        initial_position: Start = "earliest",
        prefetch_messages: int | Prefetch = DEFAULT_PREFETCH_MESSAGES,
    ) -> None:
        super().__init__(url, topic, subscription, token, name=name, prefetch_messages=prefetch_messages)
        self._register = registration(initial_position)

    def acknowledge(self, message: Message) -> bool:
        """Acknowledge a message and all before it in its segment; it becomes durable within milliseconds.

        False when the segment has another owner by now, to whom the message will be delivered again.
        """
        place = message.message_id
        known = self._inbox.acknowledge(place.segment_id, place.offset + 1, generation=message.generation)
        self._wake_links()
        return known

    def positions(self) -> Positions:
        """Give, by segment, the position behind the last message that was received here."""
        return Positions(self._owned_positions())

    def acknowledge_positions(self, positions: Mapping[int, int]) -> None:
        """Acknowledge everything below a position in each segment; segments of other owners are left out.

        Of a vector that `positions` gave also those that were sought since.
        """
        generations = positions.generations if isinstance(positions, Positions) else {}
        for segment_id, position in positions.items():
            self._inbox.acknowledge(segment_id, position, generation=generations.get(segment_id))
        self._wake_links()

    def _owned_positions(self) -> list[tuple[int, int, int]]:
        """Give (segment, generation, position behind the last message that was received here) of each."""
        return [(held.segment_id, held.generation, held.handed_out) for held in self._inbox.owned.values()]

    def _acknowledge_owned(self, segment_id: int, position: int, *, generation: int) -> bool:
        """Acknowledge all below a position; False when the segment is not owned under the generation."""
        known = self._inbox.acknowledge(segment_id, position, generation=generation)
        self._wake_links()
        return known

    def acknowledge_all(self) -> None:
        """Acknowledge every message that was received here."""
        self.acknowledge_positions(self.positions())

    async def flush(self) -> None:
        """Wait until all acknowledgements are durable; raises what ended the consumer."""
        await self._wait_until_durable()

    def _registration(self) -> Register:
        return self._register

    async def _finish(self) -> None:
        await self.flush()

    async def _give_up_segments(self, connection: Connection) -> None:
        for held in self._inbox.take_released():
            await connection.send(Released(segment_id=held.segment_id, generation=held.generation))
