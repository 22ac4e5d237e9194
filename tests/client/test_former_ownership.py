"""What a consume socket says late of an ownership that the controller has already renewed.

The two sockets are read side by side: a seek's assignment may be taken before the last frames of the reader
that it ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec
import pytest

from scalable.api.sockets.base import error_frame
from scalable.client.bucket_inbox import OwnedBucket
from scalable.client.checkpoint_consumer import CheckpointSegment
from scalable.client.connection import Endpoint
from scalable.client.consume_link import ConsumeLink
from scalable.client.inbox import Inbox, OwnedSegment
from scalable.client.membership import Membership
from scalable.client.prefetch import Prefetch
from scalable.domain.errors import GenerationSuperseded, Internal, ScalableError, SegmentNotOwned
from scalable.domain.subscriptions import BucketKey
from scalable.wire.frames import (
    Acked,
    AssignedSegment,
    Detached,
    EndOfSegment,
    ErrorFrame,
    Skipped,
)
from tests.client.test_inbox import TOPIC, assigned, assignment, delivery, offsets, take

OWNERS: dict[str, Callable[[AssignedSegment], OwnedSegment]] = {
    "stream": OwnedSegment,
    "bucket": OwnedBucket,
    "checkpoint": lambda one: CheckpointSegment(one, lambda _: None),
}


def error(known: ScalableError) -> ErrorFrame:
    return msgspec.structs.replace(error_frame(known, segment_id=0), generation=1)


LATE = [
    Acked(segment_id=0, position=5, generation=1),
    Acked(segment_id=0, position=0, ranges=[(1, 4)], generation=1),
    Skipped(segment_id=0, bucket=0, position=5, generation=1),
    EndOfSegment(segment_id=0, end_offset=5, generation=1),
    Detached(segment_id=0, generation=1),
    Detached(segment_id=0),
    error(GenerationSuperseded(segment_id=0, generation=1, current_generation=2)),
    error(SegmentNotOwned(consumer="c", segment_id=0)),
    error(Internal(reference="r")),
]


@pytest.mark.parametrize("late", LATE, ids=lambda frame: f"{type(frame).__name__}")
@pytest.mark.parametrize("kind", OWNERS)
async def test_a_former_ownership_says_nothing_of_the_present_one(
    kind: str, late: Acked | Skipped | EndOfSegment | Detached | ErrorFrame, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "scalable.client")
    inbox = Inbox(TOPIC, OWNERS[kind])
    link = ConsumeLink(
        Endpoint("http://node", "token"),
        Membership("c", TOPIC, "group"),
        inbox=inbox,
        prefetch=Prefetch(10),
        changed=lambda: None,
    )
    inbox.apply(assignment(assigned(0)))
    inbox.deliver(delivery(0, 5))
    assert offsets(take(inbox)) == [0, 1, 2, 3, 4]
    inbox.apply(assignment(assigned(0, generation=2), generation=2))  # a seek to the beginning
    held = inbox.owned[BucketKey(0)]
    held.attached = True
    link._attachments[held.key] = held

    if isinstance(late, ErrorFrame):
        link._on_error(late)
    else:
        link._on_progress(late)

    assert (inbox.owned[BucketKey(0)] is held, held.attached, held.refused) == (True, True, False)
    assert link._delivers(held)
    assert not caplog.records, "every hand-over leaves such frames behind: nobody is told of them"
    inbox.deliver(delivery(0, 5, generation=2))
    again = take(inbox)
    assert offsets(again) == [0, 1, 2, 3, 4]
    if kind != "checkpoint":
        inbox.acknowledge(0, 5)
        assert held.unacknowledged
        ack = held.next_ack()
        assert ack is not None
        assert (ack.position, ack.generation) == (5, 2)
