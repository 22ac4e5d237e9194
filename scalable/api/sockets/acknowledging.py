"""Acknowledgements of a consume socket: gathered for a moment, checked against the owner, written, answered.

Of each segment, or entry bucket where keys are shared, the latest position and all single ranges are written
at once. What the consumer does not own is refused before anything is written: that its generation is right
is not enough, for another member could have read it somewhere.
"""

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from scalable.api.errors import internal_error
from scalable.api.node import node
from scalable.api.sockets.queue_outcomes import united
from scalable.api.sockets.some_at_once import some_at_once
from scalable.domain.errors import (
    FrameInvalid,
    GenerationSuperseded,
    ScalableError,
    SegmentNotOwned,
)
from scalable.domain.subscriptions import BucketKey, SubscriptionType
from scalable.services import messages, subscriptions
from scalable.store.subscriptions import SubscriptionView
from scalable.wire.frames import Ack, Acked, Frame

GATHERING_SECONDS = 0.003
MAX_WAITING_ACKS = 4_096
"""Of so many segments or buckets; when they all wait to be written, the next frame waits, too."""
MAX_WAITING_RANGES = 16_384
"""Of one segment or bucket; the same holds."""
MAX_KNOWN_OWNED = 65_536


class Acknowledgements:
    """What a consumer acknowledged and the server has not written yet.

    `refuse` is called with what could not be acknowledged, and why.
    """

    def __init__(
        self,
        subscription: SubscriptionView,
        consumer: str,
        *,
        push: Callable[[Frame], None],
        refuse: Callable[[Ack, ScalableError], None],
    ) -> None:
        self._subscription, self._consumer = subscription, consumer
        self._push, self._refuse = push, refuse
        self._owned: dict[BucketKey, int] = {}
        self._waiting: dict[BucketKey, Ack] = {}
        self._any = asyncio.Event()
        self._writing = asyncio.Lock()

    def know_owned(self, key: BucketKey, generation: int) -> None:
        """Note that the consumer owns, or owned, this under the generation: the fence does the rest."""
        if len(self._owned) >= MAX_KNOWN_OWNED:
            self._owned.clear()
        self._owned[key] = generation

    async def note(self, ack: Ack) -> None:
        """Take an acknowledgement in, when there is room for it; raises FrameInvalid."""
        if self._subscription.type is SubscriptionType.CHECKPOINT:
            raise FrameInvalid(problem="a CHECKPOINT group commits checkpoints, it acknowledges nothing")
        if ack.ranges and not self._subscription.key_shared:
            raise FrameInvalid(problem="this subscription is acknowledged up to a position only")
        key = BucketKey(ack.segment_id, ack.bucket)
        if not self._has_room(key):
            await self._write_waiting()
        former = self._waiting.get(key)
        if former is not None and former.generation == ack.generation:
            ack = _merged(former, ack)
        self._waiting[key] = ack
        self._any.set()

    def _has_room(self, key: BucketKey) -> bool:
        former = self._waiting.get(key)
        if former is None:
            return len(self._waiting) < MAX_WAITING_ACKS
        return len(former.ranges) < MAX_WAITING_RANGES

    async def write(self) -> None:
        """Write what comes in until cancelled."""
        while True:
            await self._any.wait()
            await asyncio.sleep(GATHERING_SECONDS)
            await self._write_waiting()

    async def _write_waiting(self) -> None:
        async with self._writing:
            self._any.clear()
            acks, self._waiting = self._waiting, {}
            for failure in await some_at_once(partial(self._write, ack) for ack in acks.values()):
                raise failure

    async def _write(self, ack: Ack) -> None:
        try:
            await self._check_owner(ack)
            state = await node.call(
                messages.acknowledge,
                subscription=self._subscription,
                segment_id=ack.segment_id,
                generation=ack.generation,
                position=ack.position,
                bucket=ack.bucket,
                ranges=ack.ranges,
            )
        except (GenerationSuperseded, SegmentNotOwned) as error:
            self._owned.pop(BucketKey(ack.segment_id, ack.bucket), None)
            self._refuse(ack, error)
        except ScalableError as error:
            self._refuse(ack, error)
        except Exception as error:
            self._refuse(ack, internal_error(error))
        else:
            self._push(
                Acked(
                    segment_id=ack.segment_id,
                    position=state.position,
                    bucket=ack.bucket,
                    ranges=ack.ranges,
                    generation=ack.generation,
                )
            )

    async def _check_owner(self, ack: Ack) -> None:
        key = BucketKey(ack.segment_id, ack.bucket)
        if self._owned.get(key) != ack.generation:
            await node.call(
                subscriptions.reading_right,
                subscription=self._subscription,
                consumer=self._consumer,
                segment_id=ack.segment_id,
                generation=ack.generation,
                bucket=ack.bucket,
            )
            self.know_owned(key, ack.generation)


def _merged(former: Ack, later: Ack) -> Ack:
    ranges = united([*former.ranges, *later.ranges])
    return msgspec.structs.replace(later, position=max(former.position, later.position), ranges=ranges)
