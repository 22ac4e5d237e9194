"""A bare WebSocket peer for tests: frames in, frames out, nothing kept from the server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import ParamSpec, TypeVar

import httpx
from django.db import connections
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from launch.sandbox import LiveNode
from scalable.domain.keyspace import FULL_RANGE, HashRange, key_hash, segment_hash
from scalable.wire.batch import Codec, Record, encode_batch
from scalable.wire.frames import (
    PROTOCOL_VERSION,
    QUEUE_DELIVERY,
    SUBPROTOCOL,
    Delivery,
    Frame,
    Hello,
    Publish,
    QueueDelivery,
    ServerFrame,
    decode,
    decode_delivery,
    decode_queue_delivery,
    decoder,
    encode,
    encode_publish,
)

F = TypeVar("F")
P = ParamSpec("P")
T = TypeVar("T")
ROOT = "/ws/v2/scalable"
WAIT_SECONDS = 20.0

_decoder = decoder(ServerFrame)


class Peer:
    """One open socket."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, frame: Frame | Publish) -> None:
        data = encode_publish(frame) if isinstance(frame, Publish) else encode(frame)
        await self.connection.send(data)

    async def send_raw(self, data: str | bytes) -> None:
        await self.connection.send(data)

    async def receive(self) -> Frame | Delivery | QueueDelivery:
        async with asyncio.timeout(WAIT_SECONDS):
            data = await self.connection.recv()
        if isinstance(data, bytes):
            return decode_queue_delivery(data) if data[0] == QUEUE_DELIVERY else decode_delivery(data)
        return decode(_decoder, data)

    async def expect(self, kind: type[F]) -> F:
        """The next frame, which must be of this kind."""
        frame = await self.receive()
        assert isinstance(frame, kind), f"expected {kind.__name__}, got {frame}"
        return frame

    async def wait_for(self, kind: type[F]) -> F:
        """The next frame of this kind; others are skipped."""
        while True:
            frame = await self.receive()
            if isinstance(frame, kind):
                return frame

    async def close_code(self) -> int:
        """The code with which the connection ends; frames until then are skipped."""
        async with asyncio.timeout(WAIT_SECONDS):
            await self.connection.wait_closed()
        assert self.connection.close_code is not None
        return self.connection.close_code

    async def frames_until_closed(self) -> list[str | bytes]:
        """What was on its way when the connection ended."""
        found: list[str | bytes] = []
        async with asyncio.timeout(WAIT_SECONDS):
            with suppress(ConnectionClosed):
                while True:
                    found.append(await self.connection.recv())
        return found


@asynccontextmanager
async def raw_socket(node: LiveNode, path: str, *, token: str | None = None) -> AsyncIterator[Peer]:
    """Open a socket without a hello."""
    headers = {"Authorization": f"Bearer {node.admin_token if token is None else token}"}
    url = f"{node.socket_url}{ROOT}/{path}"
    async with connect(
        url,
        additional_headers=headers,
        subprotocols=[Subprotocol(SUBPROTOCOL)],
        max_size=None,
        compression=None,
        proxy=None,
    ) as connection:
        yield Peer(connection)


@asynccontextmanager
async def socket(
    node: LiveNode,
    path: str,
    *,
    producer: str | None = None,
    consumer: str | None = None,
    session_id: str = "",
) -> AsyncIterator[Peer]:
    """Open a socket and say hello."""
    hello = Hello(protocol=PROTOCOL_VERSION, producer=producer, consumer=consumer, session_id=session_id)
    async with raw_socket(node, path) as peer:
        await peer.send(hello)
        yield peer


async def ask(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a service beside the event loop, and leave no connection behind."""

    def call() -> T:
        try:
            return function(*args, **kwargs)
        finally:
            connections.close_all()

    return await asyncio.to_thread(call)


async def eventually(look: Callable[[], Awaitable[T]]) -> T:
    """What a look at another process gives, once it gives something."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            if found := await look():
                return found
            await asyncio.sleep(0.05)


def batch(
    keys: Iterable[str], *, first_sequence: int = 0, value: bytes = b"", codec: Codec = Codec.NONE
) -> bytes:
    """An encoded batch of records with consecutive sequences; a value names key and sequence by default."""
    records = [
        Record(key, value or f"{key}:{sequence}".encode(), sequence, 0)
        for sequence, key in enumerate(keys, first_sequence)
    ]
    return encode_batch(records, published_at_ms=1, codec=codec)


def keys_in(hash_range: HashRange, count: int, *, prefix: str = "k") -> list[str]:
    """Different keys whose segment hash lies in the range."""
    found: list[str] = []
    number = 0
    while len(found) < count:
        key = f"{prefix}{number}"
        if hash_range.contains(segment_hash(key_hash(key))):
            found.append(key)
        number += 1
    return found


def any_keys(count: int) -> list[str]:
    """Different keys, wherever they lie."""
    return keys_in(FULL_RANGE, count)


def rest(node: LiveNode, method: str, path: str, **options: object) -> httpx.Response:
    """Call the REST API of a node as the superuser."""
    url = f"{node.url}/admin/v2/scalable/{path}"
    response = httpx.request(method, url, headers=node.headers, timeout=30, **options)  # type: ignore[arg-type]
    response.raise_for_status()
    return response
