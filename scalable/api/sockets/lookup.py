"""The DAG watch of a topic (PIP-468, DAG Watch Sessions), served by any node."""

from django.conf import settings

from scalable.api.errors import close_code_of
from scalable.api.feeds import Feed, feeds
from scalable.api.sockets.base import Socket
from scalable.api.sockets.outbox import Outbox
from scalable.domain.errors import TopicDeleted
from scalable.wire.frames import Gone, Hello


class LookupSocket(Socket):
    """Tells a topic's state whole, then each change, until the client closes or the topic is deleted."""

    _feed: Feed | None = None

    def make_outbox(self) -> Outbox:
        return Outbox(max_frames=settings.SCALABLE_WATCH_QUEUE_FRAMES)

    async def opened(self, hello: Hello) -> None:
        self.welcome()
        self._feed = await feeds.join(
            self, name=self.topic, detail=hello.detail == "full", session_id=hello.session_id
        )

    async def closed(self) -> None:
        if self._feed is not None:
            feeds.part(self, self._feed)

    def gone(self, incarnation: int) -> None:
        """Say that the topic was deleted, and close for good."""
        error = TopicDeleted(topic=str(self.topic))
        self.push(Gone(topic=str(self.topic), incarnation=incarnation))
        self.end(close_code_of(error), error.code)
