"""Sockets that live and die with a topic: when it is deleted they say `gone` and close."""

from collections.abc import Awaitable

from scalable.api.hub import hub, topic_key
from scalable.api.node import node
from scalable.api.sockets.base import Socket
from scalable.domain.errors import SubscriptionNotFound, TermSuperseded, TopicDeleted, TopicNotFound
from scalable.wire.frames import Gone

RECHECK_SECONDS = 30.0


class FollowingSocket(Socket):
    """A socket bound to one incarnation of its topic, once it is opened."""

    incarnation: int = 0

    def follow(self, incarnation: int) -> None:
        """Bind the socket to this life of the topic's name."""
        self.incarnation = incarnation
        self.spawn(self._watch_topic())

    def end_with_topic(self) -> None:
        """Say that the topic is gone, and close."""
        error = TopicDeleted(topic=str(self.topic))
        self.push(Gone(topic=str(self.topic), incarnation=self.incarnation))
        self.end_by(error)

    def fail(self, error: BaseException) -> None:
        """Send an error frame and close; a deleted subscription is called by its name.

        Its row is gone, so that whoever looked for it had a number alone.
        """
        if isinstance(error, SubscriptionNotFound):
            error = SubscriptionNotFound(subscription=self.scope["url_route"]["kwargs"]["subscription"])
        super().fail(error)

    async def unless_gone(self, work: Awaitable[None]) -> None:
        """Do work for a subscription; when that is missing because the topic is, end with the topic.

        Nobody leads a topic that is gone. Raises SubscriptionNotFound when the subscription alone is gone,
        TermSuperseded when another node leads the topic, TopicNotFound when the socket had never met it.
        """
        try:
            await work
        except (SubscriptionNotFound, TermSuperseded, TopicNotFound) as error:
            if isinstance(error, TopicNotFound) and not self.incarnation:
                raise
            if await node.crowds.topic_exists(self.incarnation):
                raise
            self.end_with_topic()

    async def _watch_topic(self) -> None:
        with hub.watch(topic_key(self.incarnation)) as watch:
            while await node.crowds.topic_exists(self.incarnation):
                await watch.wait(RECHECK_SECONDS)
        self.end_with_topic()
