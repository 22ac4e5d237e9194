"""A session whose topic goes ends with the topic, whatever it asked for when its subscription was missing."""

from typing import Any

import pytest

from scalable.api.errors import ANSWERS
from scalable.api.node import node
from scalable.api.sockets.controller import ControllerSocket
from scalable.api.sockets.outbox import Ending
from scalable.domain.errors import ScalableError, SubscriptionNotFound, TermSuperseded, TopicNotFound
from scalable.domain.names import TopicName
from scalable.domain.subscriptions import SubscriptionType
from scalable.store.subscriptions import SubscriptionView
from scalable.wire.frames import (
    PROTOCOL_VERSION,
    CheckpointBody,
    Commit,
    ErrorFrame,
    Frame,
    Gone,
    Hello,
    Register,
    Released,
    SegmentEnded,
    decode,
    decoder,
)

INCARNATION = 7
MISSING = SubscriptionNotFound(subscription="#3")
LED_BY_NOBODY = TermSuperseded(topic="topic://public/default/orders", term=1, current_term=0)
NO_TOPIC = TopicNotFound(topic="topic://public/default/orders")
GROUP = SubscriptionView(3, INCARNATION, "s", SubscriptionType.CHECKPOINT, 1, 0)
FRAMES = [
    Released(segment_id=0, generation=1),
    SegmentEnded(segment_id=0, generation=1, position=0),
    Commit(checkpoint=CheckpointBody(incarnation=INCARNATION, positions={}), request_id=1),
]


class Without:
    """What a session asks when the rows of its subscription are gone, and perhaps those of the topic."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, topic_lives: bool, error: ScalableError = MISSING
    ) -> None:
        self.topic_lives, self.asked_for, self.error = topic_lives, 0, error
        self.leader = self
        self.incarnation = INCARNATION
        for holder, name in (
            (node.crowds, "release"),
            (node.crowds, "topic_exists"),
            (node, "call"),
            (node, "leader"),
        ):
            monkeypatch.setattr(holder, name, getattr(self, name))

    async def topic_exists(self, incarnation: int) -> bool:
        self.asked_for = incarnation
        return self.topic_lives

    async def lead(self, *_: Any, **__: Any) -> "Without":
        return self

    async def call(self, *_: Any, **__: Any) -> None:
        raise self.error

    release = call


async def ended(frame: Frame, *, registered: bool) -> tuple[Frame, Ending]:
    """Let a session handle a frame, and give its last words."""
    session = ControllerSocket()
    session.topic = TopicName("public", "default", "orders")
    session.scope = {"url_route": {"kwargs": {"subscription": "s"}}}
    session._led, session._subscription = (node.leader, GROUP) if registered else (None, None)  # type: ignore[assignment]
    await session.opened(Hello(protocol=PROTOCOL_VERSION, client="t", consumer="a", incarnation=INCARNATION))
    await session.outbox.take()  # the welcome
    await session.frame_received(frame)
    said, ending = await session.outbox.take(), await session.outbox.take()
    assert isinstance(said, str)
    assert isinstance(ending, Ending)
    return decode(decoder(Gone | ErrorFrame), said), ending


@pytest.mark.parametrize("error", [MISSING, LED_BY_NOBODY, NO_TOPIC], ids=lambda error: error.code)
@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
async def test_what_meets_no_subscription_since_the_topic_is_gone_ends_with_the_topic(
    monkeypatch: pytest.MonkeyPatch, frame: Frame, error: ScalableError
) -> None:
    without = Without(monkeypatch, topic_lives=False, error=error)
    said, ending = await ended(frame, registered=True)
    assert (said, ending.code) == (
        Gone(topic="topic://public/default/orders", incarnation=INCARNATION),
        ANSWERS["topic_deleted"].close_code,
    )
    assert without.asked_for == INCARNATION


async def test_a_registration_that_meets_no_subscription_ends_with_the_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    without = Without(monkeypatch, topic_lives=False)
    said, _ = await ended(Register(), registered=False)
    assert (type(said), without.asked_for) == (Gone, INCARNATION)


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
async def test_while_the_topic_lives_the_subscription_alone_is_gone(
    monkeypatch: pytest.MonkeyPatch, frame: Frame
) -> None:
    Without(monkeypatch, topic_lives=True)
    said, ending = await ended(frame, registered=True)
    assert isinstance(said, ErrorFrame)
    assert (said.fields, ending.code) == (
        {"subscription": "s"},
        ANSWERS["subscription_not_found"].close_code,
    )


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
async def test_while_another_leads_the_topic_the_term_alone_is_over(
    monkeypatch: pytest.MonkeyPatch, frame: Frame
) -> None:
    Without(monkeypatch, topic_lives=True, error=LED_BY_NOBODY)
    said, ending = await ended(frame, registered=True)
    assert isinstance(said, ErrorFrame)
    assert (said.code, ending.code) == ("term_superseded", ANSWERS["term_superseded"].close_code)
