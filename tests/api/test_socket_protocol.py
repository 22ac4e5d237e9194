"""What every socket refuses, and with which code it closes; the others go on."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from launch.sandbox import LiveNode, ProcessFactory, token
from scalable.domain.subscriptions import SubscriptionType
from scalable.services import subscriptions, topics
from scalable.services.topics import TopicView
from scalable.wire.frames import (
    PROTOCOL_VERSION,
    SUBPROTOCOL,
    Ack,
    Attach,
    Close,
    Detached,
    ErrorFrame,
    Flow,
    Gone,
    Hello,
    Publish,
    QueueAttach,
    Receipt,
    Register,
    Welcome,
    encode,
)
from tests.api.peers import ROOT, Peer, ask, batch, raw_socket, socket
from tests.services.group import Group
from tests.topology import ACTOR, make_topic

PRODUCE = "produce/public/default/orders"
CONSUME = "consume/public/default/orders/s"
CONTROL = "controller/public/default/orders/s"
QUEUE = "queue/public/default/orders/q"
DOORS = [PRODUCE, CONSUME, CONTROL, QUEUE]
QUEUE_ACK = '{"type": "queue_ack", "segment_id": 0, "incarnation": 0, "ranges": %s}'
REGISTER_AT = '{"type": "register", "checkpoint": {"incarnation": 0, "positions": {%s}}}'
HELLO = encode(Hello(protocol=PROTOCOL_VERSION, consumer="c"))
MIB = 1024 * 1024


@pytest.fixture
def topic(live_node: LiveNode) -> TopicView:
    """The topic `orders` with one segment, its subscription `s`, and `q`, which is a queue."""
    made = make_topic("orders", segments=1)
    assert Group(made).subscription_id
    subscriptions.create_subscription(name=made.name, subscription="q", kind=SubscriptionType.QUEUE)
    return made


@asynccontextmanager
async def bystander(node: LiveNode) -> AsyncIterator[None]:
    """A producer for whom nothing changes, whatever happens on other sockets."""
    async with socket(node, PRODUCE, producer="bystander") as peer:
        await peer.expect(Welcome)
        await peer.send(Publish(1, 0, False, batch(["k"])))
        await peer.expect(Receipt)
        yield
        await peer.send(Publish(2, 0, False, batch(["k"], first_sequence=1)))
        await peer.expect(Receipt)


async def refusal(peer: Peer) -> tuple[str, int]:
    """The code of the error frame that comes next, and of the close behind it."""
    return (await peer.wait_for(ErrorFrame)).code, await peer.close_code()


@pytest.mark.parametrize("path", DOORS)
async def test_what_is_no_hello(live_node: LiveNode, topic: TopicView, path: str) -> None:
    cases: list[tuple[str | bytes, str, int]] = [
        ("noise", "frame_invalid", 4400),
        ("[]", "frame_invalid", 4400),
        ('{"type": "no such frame"}', "frame_unknown_type", 4400),
        ('{"no": "type"}', "frame_invalid", 4400),
        ('{"type": "hello", "protocol": 1, "colour": "red"}', "frame_invalid", 4400),
        ('{"type": "hello", "protocol": "1"}', "frame_invalid", 4400),
        ('{"type": "hello", "protocol": 99}', "protocol_unsupported", 4426),
        (b"\x01binary before hello", "hello_missing", 4425),
        ("x" * (8 * MIB + 1), "frame_too_large", 4413),
    ]
    async with bystander(live_node):
        for sent, code, close_code in cases:
            async with raw_socket(live_node, path) as peer:
                await peer.send_raw(sent)
                assert await refusal(peer) == (code, close_code), sent[:60]


async def test_what_follows_a_hello(live_node: LiveNode, topic: TopicView) -> None:
    cases: list[tuple[str, str | bytes, str, int]] = [
        (path, sent, code, close_code)
        for path in DOORS
        for sent, code, close_code in [
            (HELLO, "frame_invalid", 4400),
            ("{", "frame_invalid", 4400),
            ('{"more": ' + "[" * 100_000 + "]" * 100_000 + "}", "frame_invalid", 4400),
            ('{"type": "snapshot"}', "frame_unknown_type", 4400),
            ("x" * (8 * MIB + 1), "frame_too_large", 4413),
            ("\u00e4" * (4 * MIB + 1), "frame_too_large", 4413),
        ]
    ]
    cases += [
        (PRODUCE, encode(Register()), "frame_unknown_type", 4400),
        (PRODUCE, b"", "frame_invalid", 4400),
        (PRODUCE, b"\x07" + bytes(40), "frame_unknown_type", 4400),
        (PRODUCE, b"\x01\xf0" + bytes(40), "frame_invalid", 4400),
        (PRODUCE, b"\x01\x02" + bytes(40), "frame_invalid", 4400),
        (PRODUCE, b"\x01\x00" + bytes(4) + b"\x80" + bytes(40), "frame_invalid", 4400),
        (CONSUME, b"\x02" + bytes(40), "frame_invalid", 4400),
        (CONSUME, encode(Attach(segment_id=0, generation=1, permits=-1)), "frame_invalid", 4400),
        (CONSUME, encode(Attach(segment_id=0, generation=1, permits=10_001)), "permits_exceeded", 4429),
        (CONSUME, encode(Ack(segment_id=0, generation=1, position=2**63)), "frame_invalid", 4400),
        (CONTROL, b"\x02" + bytes(40), "frame_invalid", 4400),
        (CONTROL, REGISTER_AT % '"00": 0', "frame_invalid", 4400),
        (CONTROL, REGISTER_AT % r'"0\n": 0', "frame_invalid", 4400),
        (QUEUE, b"\x03" + bytes(60), "frame_invalid", 4400),
        (QUEUE, encode(Ack(segment_id=0, generation=1, position=1)), "frame_unknown_type", 4400),
        (QUEUE, encode(Attach(segment_id=0, generation=1, permits=1)), "frame_invalid", 4400),
        (QUEUE, encode(QueueAttach(segment_id=0, permits=10_001)), "permits_exceeded", 4429),
        (QUEUE, QUEUE_ACK % "[]", "frame_invalid", 4400),
        (QUEUE, QUEUE_ACK % "[[3, 3]]", "frame_invalid", 4400),
        (QUEUE, QUEUE_ACK % "[[4, 3]]", "frame_invalid", 4400),
        (QUEUE, QUEUE_ACK % json.dumps([[0, 1]] * 1_001), "frame_invalid", 4400),
        (CONTROL, '{"type": "released", "segment_id": 0, "generation": 1}', "frame_invalid", 4400),
    ]
    async with bystander(live_node):
        for path, sent, code, close_code in cases:
            async with socket(live_node, path, consumer="c") as peer:
                await peer.expect(Welcome)
                await peer.send_raw(sent)
                assert await refusal(peer) == (code, close_code), (path, sent[:60])


@pytest.mark.parametrize("path", [*DOORS, "lookup/public/default/orders", "topics/public/default"])
async def test_every_welcome_tells_protocol_node_and_limits(
    processes: ProcessFactory, topic: TopicView, path: str
) -> None:
    node = processes.node(SCALABLE_MAX_MESSAGE_BYTES=str(MIB), SCALABLE_MAX_FRAME_BYTES=str(2 * MIB))
    async with socket(node, path, consumer="c") as peer:
        told = await peer.expect(Welcome)
        assert (told.protocol, told.max_frame_bytes, told.max_message_bytes) == (
            PROTOCOL_VERSION,
            2 * MIB,
            MIB,
        )
        assert told.node == node.url


async def test_a_client_that_says_nothing_is_closed(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_SOCKET_HELLO_SECONDS="0.3")
    async with raw_socket(node, PRODUCE) as peer:
        assert await refusal(peer) == ("hello_missing", 4425)


async def test_frames_for_what_is_not_attached_are_harmless(live_node: LiveNode, topic: TopicView) -> None:
    async with socket(live_node, CONSUME, consumer="c") as peer:
        await peer.expect(Welcome)
        await peer.send(Flow(segment_id=5, permits=1))
        await peer.send(Attach(segment_id=5, generation=1, permits=1))
        refused = await peer.expect(ErrorFrame)
        assert (refused.code, refused.segment_id) == ("segment_not_owned", 5)
        assert await peer.expect(Detached) == Detached(segment_id=5, generation=1)


async def test_the_end_of_a_session(live_node: LiveNode, topic: TopicView) -> None:
    for path in DOORS:
        async with socket(live_node, path, consumer="c") as peer:
            await peer.expect(Welcome)
            await peer.send(Close())
            assert await peer.close_code() == 1000


async def test_what_a_hello_asks_for_must_be_there(live_node: LiveNode, topic: TopicView) -> None:
    cases = [
        ("produce/public/default/none", "topic_not_found", 4404),
        ("consume/public/default/none/s", "topic_not_found", 4404),
        ("consume/public/default/orders/none", "subscription_not_found", 4404),
        ("queue/public/default/orders/none", "subscription_not_found", 4404),
        ("queue/public/default/orders/s", "subscription_type_mismatch", 4409),
        ("consume/public/default/orders/q", "subscription_type_mismatch", 4409),
        ("consume/public/default/orders/%00", "invalid_name", 4400),
        ("consume/public/default/orders/" + "s" * 256, "invalid_name", 4400),
    ]
    for path, code, close_code in cases:
        async with socket(live_node, path, consumer="c") as peer:
            assert await refusal(peer) == (code, close_code), path
    for path in (CONSUME, CONTROL, QUEUE):
        async with socket(live_node, path, consumer="") as peer:
            assert await refusal(peer) == ("invalid_name", 4400), path


async def test_a_deleted_topic_ends_its_sockets(live_node: LiveNode, topic: TopicView) -> None:
    async with (
        socket(live_node, PRODUCE, producer="p") as producer,
        socket(live_node, CONSUME, consumer="c") as consumer,
    ):
        await producer.expect(Welcome)
        await consumer.expect(Welcome)
        await ask(topics.delete_topic, name=topic.name, actor=ACTOR)
        for peer in (producer, consumer):
            assert await peer.expect(Gone) == Gone(topic=str(topic.name), incarnation=topic.incarnation)
            assert await peer.close_code() == 4410


# Who may enter.


async def test_the_handshake_wants_a_token(live_node: LiveNode, topic: TopicView) -> None:
    cases = [
        ({}, [], 401, "unauthenticated"),
        ({"Authorization": "Bearer nonsense"}, [], 401, "unauthenticated"),
        ({"Authorization": "Basic abc"}, [], 401, "unauthenticated"),
        ({}, ["bearer.nonsense"], 401, "unauthenticated"),
        ({"Authorization": f"Bearer {token('nobody')}"}, [], 403, "forbidden"),
        ({}, [f"bearer.{token('nobody')}"], 403, "forbidden"),
        ({}, [f"bearer.{token('system')}"], 403, "forbidden"),
    ]
    for path in DOORS:
        for headers, subprotocols, status, code in cases:
            refused = await denied(live_node, path, headers, subprotocols)
            assert (refused.response.status_code, refused.body["code"]) == (status, code)


async def test_a_token_in_the_sub_protocol_opens(live_node: LiveNode, topic: TopicView) -> None:
    offered = [SUBPROTOCOL, f"bearer.{live_node.admin_token}"]
    url = f"{live_node.socket_url}{ROOT}/{PRODUCE}"
    async with connect(url, subprotocols=[Subprotocol(name) for name in offered], proxy=None) as connection:
        assert connection.subprotocol == SUBPROTOCOL
        await connection.send(HELLO)
        assert json.loads(await connection.recv())["type"] == "welcome"


async def test_a_session_opens_sockets_to_its_own_pages_only(live_node: LiveNode, topic: TopicView) -> None:
    cookie = f"scalable_session_{urlsplit(live_node.url).port}={await ask(log_in, 'operator')}"
    own = {"Cookie": cookie, "Origin": live_node.url}
    async with connect(
        f"{live_node.socket_url}{ROOT}/{PRODUCE}", additional_headers=own, proxy=None
    ) as connection:
        await connection.send(HELLO)
        assert json.loads(await connection.recv())["type"] == "welcome"
    for foreign in ({"Origin": "http://elsewhere.example"}, {}):
        refused = await denied(live_node, PRODUCE, {"Cookie": cookie, **foreign}, [])
        assert (refused.response.status_code, refused.body["code"]) == (403, "forbidden")


def log_in(username: str) -> str:
    """Make a superuser with a session, and give its key."""
    from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
    from django.contrib.auth.models import User
    from django.contrib.sessions.backends.db import SessionStore

    user = User.objects.create_superuser(username)
    session = SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.save()
    return str(session.session_key)


class Denied:
    """The HTTP answer to a handshake."""

    def __init__(self, error: InvalidStatus) -> None:
        self.response = error.response
        self.body: dict[str, Any] = json.loads(error.response.body)


async def denied(node: LiveNode, path: str, headers: dict[str, str], subprotocols: list[str]) -> Denied:
    """Try a handshake that must fail."""
    with pytest.raises(InvalidStatus) as caught:
        await connect(
            f"{node.socket_url}{ROOT}/{path}",
            additional_headers=headers,
            subprotocols=[Subprotocol(name) for name in subprotocols] or None,
            proxy=None,
        )
    return Denied(caught.value)
