"""A checkpoint member whose segments are taken away and come back, in each order that sockets may tell it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from scalable.api.sockets.base import error_frame
from scalable.client import CheckpointConsumer
from scalable.client.consume_link import ConsumeLink
from scalable.client.inbox import Inbox
from scalable.client.prefetch import Prefetch
from scalable.domain.checkpoint import Skipped
from scalable.domain.errors import GenerationSuperseded
from scalable.domain.subscriptions import BucketKey
from scalable.wire.frames import (
    Assignment,
    Commit,
    Committed,
    ErrorFrame,
    HeldCheckpoint,
    Released,
    SegmentEnded,
)
from tests.client.test_inbox import TOPIC, assigned, assignment, delivery


class Handed(CheckpointConsumer):
    """A member without sockets: frames are given to it, and it hands out what is there."""

    def __init__(self) -> None:
        super().__init__("http://node", TOPIC, "token", group="group")
        self.link = ConsumeLink(
            self._endpoint,
            self._membership,
            inbox=self.inbox,
            prefetch=Prefetch(10),
            changed=self._pulse,
        )

    @property
    def inbox(self) -> Inbox:
        return self._inbox

    def _link_to(self, url: str) -> None:
        return

    def take(self, frame: Assignment | ErrorFrame) -> None:
        if isinstance(frame, Assignment):
            self._adopt(frame)
        else:
            self.link._on_error(frame)

    def hand_out(self) -> list[int]:
        offsets = []
        while (message := self._next_message()) is not None:
            offsets.append(message.message_id.offset)
        return offsets

    def hand_out_one(self) -> tuple[int, int] | None:
        message = self._next_message()
        return None if message is None else (message.message_id.segment_id, message.message_id.offset)


def superseded(generation: int) -> ErrorFrame:
    error = GenerationSuperseded(segment_id=0, generation=generation, current_generation=generation + 1)
    return error_frame(error, segment_id=0)


def without(generation: int) -> Assignment:
    return assignment(generation=generation)


def with_it(generation: int) -> Assignment:
    return assignment(assigned(0, generation=generation, position=2), generation=generation)


@pytest.mark.parametrize(
    "tell",
    [
        lambda g: [with_it(g + 1)],
        lambda g: [without(g + 1), with_it(g + 1)],
        lambda g: [superseded(g), with_it(g + 1)],
        lambda g: [superseded(g), without(g + 1), with_it(g + 1)],
        lambda g: [without(g + 1), superseded(g), with_it(g + 1)],
        lambda g: [with_it(g + 1), superseded(g)],
    ],
)
async def test_nothing_is_handed_out_twice_however_a_segment_goes_and_comes(
    tell: Callable[[int], list[Assignment | ErrorFrame]],
) -> None:
    member = Handed()
    member.take(with_it(1))
    member.inbox.deliver(delivery(0, 9, skip_to=2))
    assert member.hand_out() == [2, 3, 4, 5, 6, 7, 8]
    for frame in tell(1):
        member.take(frame)
        assert member.checkpoint().positions == {0: 9}
    # The group's floor is where the last commit was: behind what the application got.
    member.inbox.deliver(delivery(0, 12, skip_to=2, generation=2))
    assert member.hand_out() == [9, 10, 11]


async def test_a_restore_makes_it_hand_out_again() -> None:
    member = Handed()
    member.take(with_it(1))
    member.inbox.deliver(delivery(0, 9, skip_to=2))
    assert member.hand_out() == [2, 3, 4, 5, 6, 7, 8]
    member.take(superseded(1))
    member.take(msgspec.structs.replace(with_it(2), restored=5))
    member.inbox.deliver(delivery(0, 9, skip_to=2, generation=2))
    assert member.hand_out() == [2, 3, 4, 5, 6, 7, 8]


class Told:
    """A controller session that keeps what it was told."""

    def __init__(self) -> None:
        self.frames: list[object] = []

    async def send(self, frame: object) -> None:
        self.frames.append(frame)


async def test_a_segment_that_is_taken_away_unread_is_asked_after_and_noted_once() -> None:
    """It may have gone to another member; if it is pruned, what was left of it is lost."""
    member, told = Handed(), Told()
    member.take(with_it(1))
    member.inbox.deliver(delivery(0, 9, skip_to=2))
    assert member.hand_out_one() == (0, 2)
    member.take(without(2))
    await member._give_up_segments(told)  # type: ignore[arg-type]
    (asked,) = told.frames
    assert isinstance(asked, Commit)
    assert asked.preview
    assert asked.checkpoint.positions == {"0": 3}
    held = msgspec.convert(msgspec.to_builtins(asked.checkpoint), HeldCheckpoint)
    for number in (asked.request_id, asked.request_id + 1):
        member._unanswered[number] = asked
        member._take(Committed(request_id=number, checkpoint=held, generation=2, skipped=[(0, [1, 2])]))
    assert member.skipped == [Skipped(0, (1, 2))]


async def test_a_segment_that_was_read_to_its_end_is_not_asked_after() -> None:
    member, told = Handed(), Told()
    member.take(with_it(1))
    member.inbox.deliver(delivery(0, 3, skip_to=2))
    member.inbox.owned[BucketKey(0)].end_at(3)
    assert member.hand_out() == [2]
    await member._give_up_segments(told)  # type: ignore[arg-type]
    member.take(without(2))
    await member._give_up_segments(told)  # type: ignore[arg-type]
    assert told.frames == [SegmentEnded(segment_id=0, generation=1, position=3)]


async def test_a_segment_is_released_when_the_application_is_done_with_its_last_message() -> None:
    """Else the next owner would work on the same keys beside it."""
    member, told = Handed(), Told()
    member.take(assignment(assigned(0, position=2), assigned(1)))
    member.inbox.deliver(delivery(0, 9, skip_to=2))
    assert member.hand_out_one() == (0, 2)
    both = [assigned(0, position=2), assigned(1)]
    member.take(assignment(*both, generation=2, releasing=(0,)))
    await member._give_up_segments(told)  # type: ignore[arg-type]
    assert told.frames == []
    member.inbox.deliver(delivery(0, 1, segment_id=1))
    assert member.hand_out_one() == (1, 0)
    await member._give_up_segments(told)  # type: ignore[arg-type]
    assert told.frames == [Released(segment_id=0, generation=1, position=3)]
    assert member.checkpoint().positions == {0: 3, 1: 1}
