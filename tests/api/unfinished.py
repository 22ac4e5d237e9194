"""Connections that do not send what they began, on plain sockets."""

import asyncio
import json
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import psutil

from tests.processes import LiveNode

WAIT_SECONDS = 20
DRIP_SECONDS = 0.1


@dataclass(frozen=True)
class Begun:
    """What is sent at once, and what again and again after it."""

    sent: bytes
    dripped: bytes = b""


@dataclass(frozen=True)
class End:
    """What came back until the server closed, and after how long."""

    answer: bytes
    seconds: float

    @property
    def statuses(self) -> tuple[int, ...]:
        """The status of each answer."""
        return tuple(int(part[:3]) for part in self.answer.split(b"HTTP/1.1 ")[1:])

    @property
    def code(self) -> str:
        """The code in the body of the only answer."""
        return str(json.loads(self.answer.partition(b"\r\n\r\n")[2])["code"])


def head(line: str, **headers: str) -> bytes:
    """The lines of a head without its end."""
    fields = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"{line} HTTP/1.1\r\n{fields}".encode()


def callers(node: LiveNode) -> set[tuple[str, int]]:
    """Give the other ends of the connections that were made to a node."""
    place = urlsplit(node.url)
    links = psutil.Process(node.process.pid).net_connections("tcp4")
    return {tuple(each.raddr) for each in links if each.raddr and each.laddr.port == place.port}


def all_told(node: LiveNode) -> str:
    """Stop a node, and give its whole log."""
    node.process.stop()
    return node.process.log.tail(100_000)


async def end_of(node: LiveNode, begun: Begun, context: ssl.SSLContext | None = None) -> End:
    """Begin and go on until the server closes; raises TimeoutError when it does not."""
    place = urlsplit(node.url)
    begun_at = time.monotonic()
    reader, writer = await asyncio.open_connection(place.hostname, place.port, ssl=context)
    dripping = asyncio.create_task(_drip(writer, begun))
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            answer = await _read(reader)
    finally:
        dripping.cancel()
        writer.close()
    return End(answer, time.monotonic() - begun_at)


async def ends_of(
    node: LiveNode, every: Mapping[str, Begun], context: ssl.SSLContext | None = None
) -> dict[str, End]:
    """The ends of connections that are all begun at once."""
    ends = await asyncio.gather(*(end_of(node, begun, context) for begun in every.values()))
    return dict(zip(every, ends, strict=True))


async def _drip(writer: asyncio.StreamWriter, begun: Begun) -> None:
    with suppress(OSError):
        writer.write(begun.sent)
        while begun.dripped:
            await asyncio.sleep(DRIP_SECONDS)
            writer.write(begun.dripped)
            await writer.drain()


async def _read(reader: asyncio.StreamReader) -> bytes:
    parts = []
    with suppress(OSError):  # what is dripped on a closed connection resets it
        while part := await reader.read(65_536):
            parts.append(part)
    return b"".join(parts)
