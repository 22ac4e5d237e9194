"""The key-shared consumer: entry buckets of segments, so that more members than segments share the work."""

from __future__ import annotations

import msgspec

from scalable.client.bucket_inbox import OwnedBucket
from scalable.client.connection import Connection, Urls
from scalable.client.inbox import Inbox, Message
from scalable.client.member import DEFAULT_PREFETCH_MESSAGES, Member
from scalable.client.starts import Start, registration
from scalable.domain.names import TopicName
from scalable.domain.subscriptions import BucketKey
from scalable.wire.frames import Register, Released


class KeySharedConsumer(Member):
    """One member of a key-shared STREAM subscription; use it as `async with KeySharedConsumer(...)`.

    Members own disjoint entry buckets of the segments (PIP-460, Scaling reads beyond the segment count): the
    messages of a key come in order, each to one member, and a bucket passes on when its owner has
    acknowledged what it had. The arguments are those of `StreamConsumer`; `prefetch_messages` bounds, per
    bucket, what waits in memory.
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
        prefetch_messages: int = DEFAULT_PREFETCH_MESSAGES,
    ) -> None:
        super().__init__(url, topic, subscription, token, name=name, prefetch_messages=prefetch_messages)
        self._register = msgspec.structs.replace(registration(initial_position), key_shared=True)

    def acknowledge(self, message: Message) -> bool:
        """Acknowledge a message and all that this member got before it of the same entry bucket.

        False when the bucket has another owner by now, to whom the message will be delivered again.
        """
        place = message.message_id
        known = self._inbox.acknowledge(
            place.segment_id, place.offset + 1, generation=message.generation, bucket=message.bucket
        )
        self._wake_links()
        return known

    def acknowledge_individually(self, message: Message) -> bool:
        """Acknowledge this message alone; False when its bucket has another owner by now."""
        place = message.message_id
        held = self._inbox.owned.get(BucketKey(place.segment_id, message.bucket))
        if not isinstance(held, OwnedBucket) or held.generation != message.generation:
            return False
        held.acknowledge_single(place.offset)
        self._wake_links()
        return True

    @property
    def owned_buckets(self) -> tuple[BucketKey, ...]:
        """Give the entry buckets that this consumer owns now, as (segment id, index of the bucket)."""
        return tuple(sorted(self._inbox.owned))

    async def flush(self) -> None:
        """Wait until all acknowledgements are durable; raises what ended the consumer."""
        await self._wait_until_durable()

    def _make_inbox(self) -> Inbox:
        return Inbox(self.topic, OwnedBucket)

    def _registration(self) -> Register:
        return self._register

    async def _finish(self) -> None:
        await self.flush()

    async def _give_up_segments(self, connection: Connection) -> None:
        for held in self._inbox.take_released():
            segment_id, bucket = held.key
            released = Released(segment_id=segment_id, generation=held.generation, bucket=bucket)
            await connection.send(released)
