"""Sending messages: from arguments, from lines, from JSON lines."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import IO, Any, Literal

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from scalable.cli.session import Session
from scalable.cli.topics import property_option, topic_argument
from scalable.cli.values import is_text, properties_of
from scalable.client import MessageId, Producer
from scalable.client.batches import properties_size, utf8_size
from scalable.domain.json_text import load_json
from scalable.domain.names import TopicName

WINDOW = 1_000
"""Messages whose answers are awaited together: what is kept in memory of an endless input."""
WINDOW_BYTES = 16 * 1024 * 1024
"""The same in bytes; a message that goes beyond is the last of its window."""
LONGEST_LINE = 64 * 1024 * 1024
"""More than any message is as JSON, however it is escaped; a longer line is not read to its end."""


@dataclass(frozen=True)
class Outgoing:
    """One message to send."""

    key: str | None
    value: bytes
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Give the bytes of its texts and its value."""
        return len(self.value) + utf8_size(self.key or "") + properties_size(self.properties)


@click.command()
@topic_argument
@click.option("-m", "--message", "messages", multiple=True, help="A value; may be repeated.")
@click.option("-f", "--file", "source", type=click.File("rb"), help="One message a line; - is stdin.")
@click.option("--json-lines", is_flag=True, help='Lines are {"key", "value", "properties"}.')
@click.option("--key-separator", help="What divides key and value of a line.")
@click.option("-k", "--key", help="Key of all messages that bring none.")
@property_option
@click.option("-n", "--repeat", type=click.IntRange(1), default=1, show_default=True)
@click.option("--name", help="Name of the producer; what it sends twice under it is stored once.")
@click.option("--compression", type=click.Choice(["none", "zstd"]), default="none", show_default=True)
@click.pass_obj
def produce(
    session: Session,
    topic: TopicName,
    messages: tuple[str, ...],
    source: IO[bytes] | None,
    json_lines: bool,
    key_separator: str | None,
    key: str | None,
    properties: tuple[tuple[str, str], ...],
    repeat: int,
    name: str | None,
    compression: Literal["none", "zstd"],
) -> None:
    """Send messages; ends when all are durable."""
    if bool(messages) == (source is not None):
        raise click.UsageError("give either --message or --file")
    common = properties_of(properties)
    given = (Outgoing(key, message.encode(), common) for message in messages)
    read = _read(source, json_lines, key_separator, key, common) if source else given
    outgoing = (each for each in read for _ in range(repeat))
    producer = Producer(session.url, topic, session.token, name=name, compression=compression)
    lines = _count_lines(source) if source else len(messages)
    total = None if lines is None else lines * repeat
    count = asyncio.run(_send(session, producer, outgoing, total))
    session.output.done(f"sent {count} to {topic}", topic=str(topic), sent=count)


def _count_lines(source: IO[bytes]) -> int | None:
    """Count what there is to send, for the progress bar; None where it can be read only once."""
    try:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            return None
    except OSError:  # a stream of no file has no number
        return None
    begin = source.tell()
    count, last = 0, b"\n"
    while chunk := source.read(1024 * 1024):
        count, last = count + chunk.count(b"\n"), chunk[-1:]
    source.seek(begin)
    return count + (last != b"\n")


def _lines(source: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Read numbered lines; raises UsageError for one that is longer than any message."""
    for number, line in enumerate(iter(partial(source.readline, LONGEST_LINE + 1), b""), start=1):
        if len(line) > LONGEST_LINE:
            raise click.UsageError(f"line {number} is longer than {LONGEST_LINE:,} bytes")
        yield number, line


def _read(
    source: IO[bytes],
    json_lines: bool,
    key_separator: str | None,
    key: str | None,
    common: dict[str, str],
) -> Iterator[Outgoing]:
    """Read messages one by one; raises UsageError with the number of a line that is none.

    A value is taken as it is; all else must be text.
    """
    separator = (key_separator or "").encode()
    for number, line in _lines(source):
        value = line.removesuffix(b"\n").removesuffix(b"\r")
        if json_lines:
            yield _from_json(value, number, key, common)
        elif separator and separator in value:
            own, _, value = value.partition(separator)
            yield Outgoing(_text(own, number), value, common)
        else:
            yield Outgoing(key, value, common)


def _text(line: bytes, number: int) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise click.UsageError(f"line {number} is no UTF-8 where text is wanted") from error


def _from_json(line: bytes, number: int, key: str | None, common: dict[str, str]) -> Outgoing:
    try:
        body: Any = load_json(_text(line, number))
    except ValueError as error:
        raise click.UsageError(f"line {number} is no JSON: {error}") from error
    if not isinstance(body, dict) or "value" not in body or set(body) - {"key", "value", "properties"}:
        raise click.UsageError(f"line {number} is no object of value, and perhaps key and properties")
    own = body.get("properties") or {}
    texts = isinstance(own, dict) and all(isinstance(each, str) for each in own.values())
    if not texts or not isinstance(body.get("key"), str | None):
        raise click.UsageError(f"line {number}: key and properties must be texts")
    value = _as_text(body["value"], number)
    if not is_text("".join([body.get("key") or "", value, *own, *own.values()])):
        raise click.UsageError(f"line {number} holds half of a character")
    return Outgoing(body.get("key", key), value.encode(), {**common, **own})


def _as_text(value: object, number: int) -> str:
    try:
        return value if isinstance(value, str) else json.dumps(value)
    except RecursionError as error:  # reading takes less room
        raise click.UsageError(f"line {number} nests too deep") from error


async def _send(session: Session, producer: Producer, outgoing: Iterable[Outgoing], total: int | None) -> int:
    """Send in windows, so that the memory used does not grow with the input; give how many."""
    sent, left = 0, iter(outgoing)
    with _progress(quiet=session.output.as_json) as progress:
        task = progress.add_task("sending", total=total)
        async with producer:
            while window := await asyncio.to_thread(_window, left):
                await asyncio.gather(*[await _submit(producer, each) for each in window])
                sent += len(window)
                progress.update(task, completed=sent)
    return sent


def _window(left: Iterator[Outgoing]) -> list[Outgoing]:
    window: list[Outgoing] = []
    size = 0
    for message in islice(left, WINDOW):
        window.append(message)
        size += message.size
        if size >= WINDOW_BYTES:
            break
    return window


async def _submit(producer: Producer, message: Outgoing) -> asyncio.Future[MessageId]:
    return await producer.submit(message.key, message.value, properties=message.properties)


def _progress(*, quiet: bool) -> Progress:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=quiet or not console.is_terminal)


COMMANDS = (produce,)
