"""The watch of a namespace's topics (PR-25648), served by any node."""

from collections import deque
from collections.abc import Sequence
from typing import ClassVar

import msgspec
from django.conf import settings

from scalable.api.namespace_feeds import Feed, Numbered, namespace_feeds, size_of
from scalable.api.sockets.base import Socket
from scalable.api.sockets.outbox import Outbox
from scalable.domain.errors import FrameInvalid, ReaderTooSlow, TooManyRequests
from scalable.domain.names import NamespaceName
from scalable.wire.frames import (
    Frame,
    Hello,
    NamespaceClientFrame,
    WatchTopics,
    decoder,
)
from scalable.wire.namespace_frames import MAX_FILTER_BYTES


class NamespaceWatchSocket(Socket):
    """Tells which topics match, unless the client holds that list already, and then each change."""

    frames: ClassVar["msgspec.json.Decoder[Frame]"] = decoder(NamespaceClientFrame)

    _namespace: NamespaceName
    _feed: Feed | None = None

    def __init__(self) -> None:
        super().__init__()
        self._generation = 0
        self._waiting: deque[Sequence[Numbered]] = deque()
        self._sending = False

    def make_outbox(self) -> Outbox:
        return Outbox(max_frames=settings.SCALABLE_WATCH_QUEUE_FRAMES)

    def read_path(self) -> None:
        parts = self.scope["url_route"]["kwargs"]
        self._namespace = NamespaceName(parts["tenant"], parts["namespace"])

    async def opened(self, hello: Hello) -> None:
        self.welcome()

    async def frame_received(self, frame: Frame) -> None:
        if not isinstance(frame, WatchTopics) or self._feed is not None:
            raise FrameInvalid(problem="this socket watches something already")
        if (size := size_of(frame.filters)) > MAX_FILTER_BYTES:
            raise FrameInvalid(problem=f"its filters have {size} bytes, more than {MAX_FILTER_BYTES}")
        try:
            self._feed = namespace_feeds.join(
                self, name=self._namespace, filters=frame.filters, known_hash=frame.hash
            )
        except TooManyRequests as error:
            self.fail(error)

    async def closed(self) -> None:
        if self._feed is not None:
            namespace_feeds.part(self, self._feed)

    def tell(self, frames: Sequence[Numbered]) -> None:
        """Send these frames in order, as the client reads them, or close a reader that is too far behind.

        A long list may wait whole, for all sockets share its text; changes behind it must not pile.
        """
        if not self._sending and len(frames) == 1:
            self.push(self._next_text(frames[0]))
            return
        if len(self._waiting) >= settings.SCALABLE_WATCH_QUEUE_FRAMES:
            self.drop(ReaderTooSlow(limit=len(self._waiting)))
            return
        self._waiting.append(frames)
        if not self._sending:
            self._sending = True
            self.spawn(self._send_waiting())

    async def _send_waiting(self) -> None:
        while self._waiting:
            for frame in self._waiting.popleft():
                await self.push_when_room(self._next_text(frame))
        self._sending = False

    def _next_text(self, frame: Numbered) -> str:
        self._generation += 1
        return frame.text(self._generation)
