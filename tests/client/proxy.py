"""A TCP relay in front of a node, whose connections a test can cut or hold up."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

CHUNK_BYTES = 65_536


class Relay:
    """Listens on a free port; `url` stands for the node's, which may be named later."""

    def __init__(self, target_url: str = "") -> None:
        self.target_url = target_url
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._losing = False
        self._shut: tuple[bytes, ...] = ()
        self.lost = asyncio.Event()
        self.connections = 0
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection; new ones are let in."""
        self._losing = False
        for writer in list(self._writers):
            writer.transport.abort()

    def shut(self, *requests: str) -> None:
        """Reset every connection, and each new one as soon as it asks for what one of these is a part of."""
        self._shut = tuple(request.encode() for request in requests)
        self.cut()

    def let_in(self, *but: str) -> None:
        """Reset new connections that ask for one of these alone, and leave the others as they are."""
        self._shut = tuple(request.encode() for request in but)

    def hold(self) -> None:
        """Let nothing come back from the node until `let_go`."""
        self._open.clear()

    def lose(self) -> None:
        """Let nothing more reach the node until `cut`; `lost` is set when something did not."""
        self._losing = True

    def let_go(self) -> None:
        """Let answers pass again."""
        self._open.set()

    def passed(self, data: bytes, *, answers: bool) -> None:
        """Be told of what goes to the node, or of what it answers."""

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        target = urlsplit(self.target_url)
        there_reader, there_writer = await asyncio.open_connection(target.hostname, target.port)
        self._writers |= {writer, there_writer}
        for source, sink, answers in ((reader, there_writer, False), (there_reader, writer, True)):
            task = asyncio.create_task(self._copy(source, sink, answers=answers))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, answers: bool) -> None:
        try:
            while data := await source.read(CHUNK_BYTES):
                if answers:
                    await self._open.wait()
                elif any(request in data for request in self._shut):
                    break
                elif self._losing:
                    self.lost.set()
                    continue
                self.passed(data, answers=answers)
                sink.write(data)
                await sink.drain()
        except OSError:
            pass
        finally:
            sink.close()
            self._writers.discard(sink)
