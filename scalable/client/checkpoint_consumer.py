"""The checkpoint consumer: exclusive segments of a group whose positions the application keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import count
from types import TracebackType
from typing import Any

from scalable.client.connection import Connection, ConnectionLost, Urls, error_of
from scalable.client.inbox import Inbox, Message, OwnedSegment
from scalable.client.member import DEFAULT_PREFETCH_MESSAGES, Member
from scalable.client.starts import Start, checkpoint_body, checkpoint_of, registration
from scalable.domain.checkpoint import Checkpoint, Skipped
from scalable.domain.names import TopicName
from scalable.wire.frames import (
    AssignedSegment,
    Assignment,
    Commit,
    Committed,
    Delivery,
    ErrorFrame,
    Frame,
    Register,
    Released,
    Restore,
    SegmentEnded,
)


class CheckpointSegment(OwnedSegment):
    """A segment of a group: nothing is acknowledged, and its end is told once the application is past it."""

    end_due = end_told = False

    def __init__(self, assigned: AssignedSegment, note: Callable[[Skipped], None]) -> None:
        super().__init__(assigned)
        self._note = note

    def deliver(self, delivery: Delivery, topic: TopicName) -> None:
        """Queue what was not received before, and note what was pruned under the reader's eyes."""
        self._note_gap(delivery.first_offset)
        super().deliver(delivery, topic)

    def end_at(self, end_offset: int) -> None:
        """Note where the segment ends, and what was pruned before it."""
        self._note_gap(end_offset)
        super().end_at(end_offset)

    def _note_gap(self, position: int) -> None:
        if position > self.received and not self.has_gap:
            self._note(Skipped(self.segment_id, (self.segment_id,)))

    def _pass_end(self) -> None:
        """Leave it to the group: nothing is acknowledged, the end is told."""

    def finish(self) -> bool:
        """Tell whether the application is done with all that came before the end, and note that it is."""
        if self.end_offset is None or self.waiting:
            return False
        self.handed_out = max(self.handed_out, self.end_offset)
        return True

    def lose_connection(self) -> None:
        """Forget what only the lost socket knew; an end is told again."""
        super().lose_connection()
        self.end_told = False

    @property
    def may_be_released(self) -> bool:
        """Tell whether nothing more can come."""
        return self.releasing and not self.attached

    @property
    def begin_at(self) -> int | None:
        """Name the position from which a socket delivers."""
        return self.received


class CheckpointConsumer(Member):
    """One member of a CHECKPOINT group; use it as `async with CheckpointConsumer(...) as consumer`.

    It acknowledges nothing: `checkpoint()` gives what this member handed out, to be kept by the application.
    `start` is where a new group begins; a group without other members goes on from a checkpoint that is given
    there, one with members by `restore`. `skipped` collects what checkpoints pointed at and is pruned.
    """

    def __init__(
        self,
        url: Urls,
        topic: TopicName | str,
        token: str,
        *,
        group: str,
        name: str | None = None,
        start: Start = "earliest",
        prefetch_messages: int = DEFAULT_PREFETCH_MESSAGES,
    ) -> None:
        super().__init__(url, topic, group, token, name=name, prefetch_messages=prefetch_messages)
        self.skipped: list[Skipped] = []
        self._inbox = Inbox(self.topic, self._own)
        self._first = registration(start, kind="CHECKPOINT")
        self._finished: dict[int, int] = {}
        self._requests: dict[int, asyncio.Future[Committed]] = {}
        self._unanswered: dict[int, Commit | Restore] = {}
        self._outgoing: list[Commit | Restore] = []
        self._numbers = count(1)
        self._failed = self._restoring = False
        self._restored = 0
        self._in_work: int | None = None

    def checkpoint(self) -> Checkpoint:
        """Give the position behind the last message of each segment that was handed out here."""
        if self._membership.incarnation is None:
            raise ConnectionLost(1000, "the consumer was not started")
        return Checkpoint(
            self._membership.incarnation, self._finished | self._inbox.positions(), self._restored
        )

    async def commit(self, checkpoint: Checkpoint) -> Checkpoint:
        """Let go of what lies before it, and give what the group holds.

        Raises CheckpointSuperseded for one from before a restore, InvalidParameter, and what ends the
        consumer.
        """
        frame = Commit(checkpoint=checkpoint_body(checkpoint), request_id=next(self._numbers))
        return checkpoint_of((await self._request(frame)).checkpoint)

    async def restore(self, checkpoint: Checkpoint) -> Checkpoint:
        """Let the whole group go on from a checkpoint, and give where it goes on.

        Nothing that was delivered before is handed out any more. Raises InvalidParameter, and what ends the
        consumer.
        """
        self._restoring = True
        try:
            frame = Restore(checkpoint=checkpoint_body(checkpoint), request_id=next(self._numbers))
            committed = await self._request(frame)
            while self._inbox.generation < committed.generation:
                self._raise_failure()
                await self._changed.wait()
        finally:
            self._restoring = False
            self._pulse()
        return checkpoint_of(committed.checkpoint)

    async def _request(self, frame: Commit | Restore) -> Committed:
        answer: asyncio.Future[Committed] = asyncio.get_running_loop().create_future()
        self._requests[frame.request_id] = answer
        self._unanswered[frame.request_id] = frame
        self._outgoing.append(frame)
        self._pulse()
        while not answer.done():
            self._raise_failure()
            changed = asyncio.ensure_future(self._changed.wait())
            either: set[asyncio.Future[Any]] = {answer, changed}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
        return answer.result()

    # The session

    def _registration(self) -> Register:
        # What the lost session may not have heard is said again: to do it twice changes nothing.
        self._outgoing = list(self._unanswered.values())
        for held in self._inbox.owned.values():
            if isinstance(held, CheckpointSegment):
                held.end_told = False
        if self._membership.incarnation is None:
            return self._first
        return Register(kind="CHECKPOINT")  # back again: the group's own positions go on

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Committed):
            self._note(frame, self._unanswered.pop(frame.request_id, None))
            answer = self._requests.pop(frame.request_id, None)
            if answer is not None and not answer.done():
                answer.set_result(frame)
            self._pulse()

    def _note(self, answer: Committed, request: Commit | Restore | None) -> None:
        """Note what is gone; one commit after another may name it, and each restore comes upon it anew."""
        found = [Skipped(segment_id, tuple(ids)) for segment_id, ids in answer.skipped]
        known = self.skipped if isinstance(request, Commit) else ()
        self.skipped += [each for each in found if each not in known]

    def _refused(self, frame: ErrorFrame) -> None:
        if frame.request_id is None:
            super()._refused(frame)
            return
        self._unanswered.pop(frame.request_id, None)
        answer = self._requests.pop(frame.request_id, None)
        if answer is not None and not answer.done():
            answer.set_exception(error_of(frame))

    def _adopt(self, assignment: Assignment) -> None:
        owned = dict(self._inbox.owned)
        if assignment.restored > self._restored:  # what was handed out before a restore counts no more
            self._restored = assignment.restored
            self._finished.clear()
            owned.clear()
        super()._adopt(assignment)
        self._ask_after([held for key, held in owned.items() if key not in self._inbox.owned])

    def _ask_after(self, gone: Iterable[OwnedSegment]) -> None:
        """Ask whether segments that were taken away unread went to others, or are pruned, which is noted."""
        positions = {
            held.segment_id: held.handed_out
            for held in gone
            if not (isinstance(held, CheckpointSegment) and held.end_told)
        }
        incarnation = self._membership.incarnation
        if positions and incarnation is not None:
            body = checkpoint_body(Checkpoint(incarnation, positions, self._restored))
            frame = Commit(checkpoint=body, request_id=next(self._numbers), preview=True)
            self._unanswered[frame.request_id] = frame
            self._outgoing.append(frame)

    def _own(self, assigned: AssignedSegment) -> CheckpointSegment:
        """Begin a segment, of which this member may have handed out more than the group knows.

        It was given up for lost and is back: the application has not lost what it did with those messages.
        """
        held = CheckpointSegment(assigned, self.skipped.append)
        held.received = held.handed_out = max(held.received, self._finished.get(assigned.segment_id, 0))
        return held

    def _next_message(self) -> Message | None:
        """Hand out the next message; to ask for it says that the application is done with the last one."""
        if self._restoring:
            return None
        done, self._in_work = self._in_work, None
        for held in self._inbox.owned.values():
            if isinstance(held, CheckpointSegment) and held.finish():
                held.end_due = True
                self._pulse()
            elif held.releasing and held.segment_id == done:
                self._pulse()
        message = super()._next_message()
        if message is not None:
            # At once, not when the segment goes: the consume socket may be the first to hear of that.
            place = message.message_id
            self._finished[place.segment_id] = place.offset + 1
            self._in_work = place.segment_id
        return message

    async def _give_up_segments(self, connection: Connection) -> None:
        outgoing, self._outgoing = self._outgoing, []
        for frame in outgoing:
            await connection.send(frame)
        for held in list(self._inbox.owned.values()):
            if isinstance(held, CheckpointSegment) and held.end_due and not held.end_told:
                held.end_told = True
                self._finished[held.segment_id] = held.handed_out
                await connection.send(
                    SegmentEnded(
                        segment_id=held.segment_id, generation=held.generation, position=held.handed_out
                    )
                )
            elif held.may_be_released and held.segment_id != self._in_work:
                # Else the next owner would work on the same keys beside the application.
                self._inbox.drop(held)
                await self._release(connection, held)

    async def _say_farewell(self, connection: Connection) -> None:
        if not self._failed:
            for held in self._inbox.owned.values():
                await self._release(connection, held)

    async def _release(self, connection: Connection, held: OwnedSegment) -> None:
        self._finished[held.segment_id] = held.handed_out
        await connection.send(
            Released(segment_id=held.segment_id, generation=held.generation, position=held.handed_out)
        )

    async def _finish(self) -> None:
        """Nothing is acknowledged; positions go out with the farewell."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave; after an error of the application the next owner goes on from the last commit."""
        self._failed = error is not None
        await self.close()
