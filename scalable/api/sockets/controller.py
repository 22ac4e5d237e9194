"""`controller/{tenant}/{namespace}/{topic}/{subscription}`: a consumer's session with the topic's leader."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial

from django.conf import settings

from scalable.api.hub import hub, subscription_key, topic_key
from scalable.api.leader import Led
from scalable.api.node import node
from scalable.api.sockets.following import FollowingSocket
from scalable.domain.access import Right
from scalable.domain.checkpoint import Checkpoint
from scalable.domain.errors import (
    CheckpointSuperseded,
    FrameInvalid,
    GenerationSuperseded,
    InvalidParameter,
    PositionInvalid,
    SegmentNotOwned,
    SegmentStoreMissing,
    SessionSuperseded,
    TopicDeleted,
)
from scalable.domain.names import validate_part
from scalable.domain.subscriptions import SubscriptionType
from scalable.services import checkpoints, controller
from scalable.services.assignment import AssignmentView, OwnedSegment, Release
from scalable.services.checkpoints import Held
from scalable.services.controller import Leader
from scalable.services.positions import AtPositions, AtTime, Start
from scalable.store.subscriptions import SubscriptionView
from scalable.wire.frames import (
    AssignedSegment,
    Assignment,
    CheckpointBody,
    Commit,
    Committed,
    ControllerClientFrame,
    Frame,
    HeldCheckpoint,
    Hello,
    Leave,
    Register,
    Released,
    Restore,
    SegmentEnded,
    decoder,
)

MAX_WAITING_FRAMES = 1_024
"""When so many wait to be handled, the next one waits, too: none of them is ever dropped."""
LEAVE_SECONDS = 30.0
"""How long the frames before a leave may take when the socket has ended already; then the grace begins."""


class ControllerSocket(FollowingSocket):
    """One consumer's session; frames are handled in their order by one task beside the socket."""

    right = Right.CONSUME
    frames = decoder(ControllerClientFrame)
    consumer: str = ""

    def __init__(self) -> None:
        super().__init__()
        self._waiting: asyncio.Queue[Frame] = asyncio.Queue(MAX_WAITING_FRAMES)
        self._ahead: Frame | None = None
        self._led: Led | None = None
        self._subscription: SubscriptionView | None = None
        self._looked_at: tuple[int, int] | None = None
        self._told: tuple[object, ...] | None = None
        self._handler: asyncio.Task[None] | None = None
        self._leaving = False
        self.session_id = ""
        self._known_incarnation: int | None = None
        self._known_subscription_id: int | None = None

    async def opened(self, hello: Hello) -> None:
        """Name the consumer; nothing is registered yet."""
        self.consumer = validate_part(hello.consumer or "", "consumer")
        self.session_id = hello.session_id
        self._known_incarnation = hello.incarnation
        self._known_subscription_id = hello.joined_subscription_id
        self.incarnation = hello.incarnation or 0
        self._handler = self.keep(self.unless_gone(self._handle_frames()))
        self.welcome()

    async def frame_received(self, frame: Frame) -> None:
        """Queue the frame, as soon as there is room; the peer waits, by not being read."""
        taken = await self._take_in(frame)
        self._leaving = self._leaving or (taken and isinstance(frame, Leave))

    async def _take_in(self, frame: Frame) -> bool:
        """Queue the frame and give True; False when none will be handled any more, for the session ended."""
        if not self._waiting.full():
            self._waiting.put_nowait(frame)
            return True
        putting = asyncio.ensure_future(self._waiting.put(frame))
        handler = {self._handler} if self._handler is not None else set()
        try:
            await asyncio.wait({putting, *handler}, return_when=asyncio.FIRST_COMPLETED)
            return putting.done()
        finally:
            putting.cancel()

    async def closed(self) -> None:
        """Begin the grace period, unless the consumer left or came back on another socket.

        Who says that it leaves need not wait for the answer: its frames are handled first.
        """
        if self._handler is not None:
            if self._leaving:
                await asyncio.wait({self._handler}, timeout=LEAVE_SECONDS)
            self._handler.cancel()
        if self._led is not None and self._subscription is not None:
            node.leader.disconnect(self._led, self._key, self)

    async def _handle_frames(self) -> None:
        while True:
            frame = self._ahead or await self._waiting.get()
            self._ahead = None
            match frame:
                case Register():
                    await self._register(frame)
                case Released():
                    await self._release_all([frame, *self._further_releases()])
                case SegmentEnded():
                    await self._report_end(frame)
                case Commit() | Restore():
                    await self._move_group(frame)
                case Leave():
                    await self._leave()
                    return

    def _further_releases(self) -> Iterator[Released]:
        """Take the releases that wait next, so that they are written together; what ends them is kept."""
        while not self._waiting.empty():
            frame = self._waiting.get_nowait()
            if not isinstance(frame, Released):
                self._ahead = frame
                return
            yield frame

    async def _register(self, frame: Register) -> None:
        if self._subscription is not None:
            raise FrameInvalid(problem="the consumer is registered already")
        led = await node.leader.lead(self.topic, node_id=node.id)
        if self._known_incarnation not in {None, led.leader.incarnation}:
            raise TopicDeleted(topic=str(self.topic))
        self.incarnation = led.leader.incarnation
        subscription = await self._join(led, frame)
        key = (subscription.subscription_id, self.consumer)
        register = partial(self._write_registration, led, subscription)
        former = await node.leader.enter(led, key, self, register)
        self._led, self._subscription = led, subscription
        if former is not None:
            former.fail(SessionSuperseded(consumer=self.consumer))
        self.spawn(self._follow_assignment(led, subscription))

    async def _join(self, led: Led, frame: Register) -> SubscriptionView:
        """Find or make the subscription; a group is restored to the checkpoint of its first member.

        Who joined it before finds it or is told that it is gone, and makes none.
        """
        name = self.scope["url_route"]["kwargs"]["subscription"]
        kind = SubscriptionType(frame.kind)
        if kind is SubscriptionType.CHECKPOINT and frame.checkpoint is not None:
            joining = asyncio.ensure_future(
                node.call(
                    checkpoints.join,
                    leader=led.leader,
                    subscription=name,
                    consumer=self.consumer,
                    checkpoint=_checkpoint_of(frame.checkpoint),
                    subscription_id=self._known_subscription_id,
                )
            )
            # A socket that ends meanwhile leaves a member whose grace begins, not one that stays for ever.
            joining.add_done_callback(partial(self._remember, led))
            group, held = await asyncio.shield(joining)
            if held is not None:
                self.push(_committed_frame(0, held))
            return group
        return await node.call(
            controller.find_or_create,
            name=self.topic,
            subscription=name,
            initial_position=_start_of(frame),
            kind=kind,
            key_shared=frame.key_shared,
            incarnation=led.leader.incarnation,
            subscription_id=self._known_subscription_id,
        )

    def _remember(self, led: Led, joining: asyncio.Future[tuple[SubscriptionView, Held | None]]) -> None:
        if not joining.cancelled() and joining.exception() is None:
            node.leader.session(led, (joining.result()[0].subscription_id, self.consumer))

    async def _write_registration(self, led: Led, subscription: SubscriptionView) -> None:
        await node.crowds.register(led.leader, subscription.subscription_id, self.consumer)

    async def _release_all(self, frames: Sequence[Released]) -> None:
        await asyncio.gather(*map(self._release, frames))

    async def _release(self, frame: Released) -> None:
        release = Release(self.consumer, frame.segment_id, frame.generation, frame.bucket, frame.position)
        led, subscription = self._registered
        refusal = await node.crowds.release(led.leader, subscription.subscription_id, release)
        if refusal is not None:
            self.refuse(refusal, segment_id=frame.segment_id, bucket=frame.bucket)

    async def _report_end(self, frame: SegmentEnded) -> None:
        led, group = self._registered
        try:
            await node.call(
                checkpoints.report_end,
                leader=led.leader,
                subscription_id=group.subscription_id,
                consumer=self.consumer,
                segment_id=frame.segment_id,
                generation=frame.generation,
                position=frame.position,
            )
        except (SegmentNotOwned, GenerationSuperseded, PositionInvalid, SegmentStoreMissing) as error:
            self.refuse(error, segment_id=frame.segment_id)

    async def _move_group(self, frame: Commit | Restore) -> None:
        (led, group), checkpoint = self._registered, _checkpoint_of(frame.checkpoint)
        try:
            if checkpoint.incarnation != group.incarnation:
                problem = f"it is of another life of this topic's name, which now has {group.incarnation}"
                raise InvalidParameter(parameter="checkpoint", value=checkpoint.incarnation, problem=problem)
            move = checkpoints.restore
            if isinstance(frame, Commit):
                move = partial(checkpoints.commit, preview=frame.preview)
            held = await node.call(
                move, leader=led.leader, subscription_id=group.subscription_id, checkpoint=checkpoint
            )
        except (InvalidParameter, PositionInvalid, CheckpointSuperseded) as error:
            self.refuse(error, request_id=frame.request_id)
        else:
            self.push(_committed_frame(frame.request_id, held))

    @property
    def _registered(self) -> tuple[Led, SubscriptionView]:
        if self._led is None or self._subscription is None:
            raise FrameInvalid(problem="the consumer is not registered")
        return self._led, self._subscription

    async def _leave(self) -> None:
        """Leave, if there is something to leave and it is this socket's; then close.

        Who registered on a connection that broke leaves here without coming back: that would end a successor.
        """
        if self._led is not None:
            await node.leader.leave(self._led, self._key, self)
        elif self._known_subscription_id:
            led = await node.leader.lead(self.topic, node_id=node.id)
            if self._known_incarnation in {None, led.leader.incarnation}:
                key = (self._known_subscription_id, self.consumer)
                await node.leader.leave_former(led, key, session_id=self.session_id)
        self.end()

    async def _follow_assignment(self, led: Led, subscription: SubscriptionView) -> None:
        await self.unless_gone(self._push_assignments(led, subscription))

    async def _push_assignments(self, led: Led, subscription: SubscriptionView) -> None:
        keys = subscription_key(subscription.subscription_id), topic_key(led.leader.incarnation)
        with hub.watch(*keys) as watch:
            while node.leader.holds(led, self._key, self):
                version = await node.crowds.version(led.leader, subscription.subscription_id)
                if (version.generation, version.epoch) != self._looked_at:
                    await self._push_assignment(led, subscription)
                await watch.wait(settings.SCALABLE_WATCH_RESYNC_SECONDS)

    async def _push_assignment(self, led: Led, subscription: SubscriptionView) -> None:
        """Tell what the consumer owns, unless that is what it was told last."""
        found = await node.crowds.assignments(led.leader, subscription.subscription_id)
        view = found.of(self.consumer)
        if not view.registered and node.leader.holds(led, self._key, self):
            # Somebody removed a consumer that is here: what it is told next follows from being back.
            register = partial(self._write_registration, led, subscription)
            await node.leader.enter_again(led, self._key, self, register)
            return
        self._looked_at = view.generation, view.epoch
        if view.told != self._told:
            self._told = view.told
            self.push(_assignment_frame(view, led.leader, subscription))

    @property
    def _key(self) -> tuple[int, str]:
        return (self._subscription.subscription_id if self._subscription else 0), self.consumer


def _committed_frame(request_id: int, held: Held) -> Committed:
    positions = {str(key): position for key, position in held.checkpoint.positions.items()}
    return Committed(
        request_id=request_id,
        checkpoint=HeldCheckpoint(
            incarnation=held.checkpoint.incarnation, positions=positions, restored=held.checkpoint.restored
        ),
        generation=held.generation,
        skipped=[(one.segment_id, list(one.successor_ids)) for one in held.skipped],
    )


def _checkpoint_of(body: CheckpointBody) -> Checkpoint:
    positions = {int(key): position for key, position in body.positions.items()}
    return Checkpoint(body.incarnation, positions, body.restored)


def _start_of(frame: Register) -> Start:
    if frame.checkpoint is not None:
        checkpoint = _checkpoint_of(frame.checkpoint)
        return AtPositions(checkpoint.positions, checkpoint.incarnation)
    return frame.initial_position if frame.start_time_ms is None else AtTime(frame.start_time_ms)


def _assignment_frame(view: AssignmentView, leader: Leader, subscription: SubscriptionView) -> Assignment:
    return Assignment(
        term=leader.term,
        generation=view.generation,
        epoch=view.epoch,
        incarnation=leader.incarnation,
        segments=[_assigned_segment(owned) for owned in view.segments],
        releasing=[(segment_id, bucket) for segment_id, bucket in view.releasing],
        standby=view.standby,
        shared_buckets={
            str(segment_id): [(one.start, one.end) for one in ranges]
            for segment_id, ranges in view.shared.items()
        },
        restored=view.restored,
        subscription_id=subscription.subscription_id,
    )


def _assigned_segment(owned: OwnedSegment) -> AssignedSegment:
    return AssignedSegment(
        segment_id=owned.name.segment_id,
        start=owned.name.hash_range.start,
        end=owned.name.hash_range.end,
        name=str(owned.name),
        state=owned.state.value,
        generation=owned.generation,
        position=owned.position,
        url=node.url,
        bucket=owned.bucket,
        bucket_start=owned.bucket_range.start,
        bucket_end=owned.bucket_range.end,
    )
