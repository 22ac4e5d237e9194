"""Subscriptions by REST: made, moved, looked into, deleted."""

from __future__ import annotations

from typing import Literal

from scalable.client.rest import Json, RestClient, body_of, listed, topic_path
from scalable.domain.checkpoint import Checkpoint
from scalable.domain.names import TopicName

Kind = Literal["STREAM", "QUEUE", "CHECKPOINT"]
Edge = Literal["earliest", "latest"]


class SubscriptionAdmin(RestClient):
    """What `Admin` does about subscriptions.

    A start is `earliest`, `latest`, a time in milliseconds since the epoch, or a `Checkpoint`: segments that
    it does not name are unread.
    """

    def create_subscription(
        self,
        topic: TopicName | str,
        subscription: str,
        *,
        kind: Kind = "STREAM",
        start: Edge | int | Checkpoint = "earliest",
        key_shared: bool = False,
        holds_pruning: bool = True,
    ) -> None:
        """Create a subscription on every segment, if it is new: an existing one stays as it is.

        Raises SubscriptionTypeMismatch, TopicNotFound, InvalidName, SegmentNotFound, PositionInvalid.
        """
        params: Json = {"type": kind}
        if isinstance(start, str):
            params["initialPosition"] = start
        if key_shared:
            params["keyShared"] = "true"
        if not holds_pruning:
            params["holdsPruning"] = "false"
        params |= _time_of(start)
        self._call("PUT", _path(topic, subscription), params=params, json=_body_of(start))

    def subscriptions(self, topic: TopicName | str) -> list[Json]:
        """List the topic's subscriptions: name, type and settings."""
        return listed(self._json("GET", topic_path(topic, "subscriptions")), "subscriptions")

    def subscription(self, topic: TopicName | str, subscription: str) -> Json:
        """Give a subscription with its backlog by segment and its consumers; raises SubscriptionNotFound."""
        return self._object("GET", _path(topic, subscription))

    def delete_subscription(self, topic: TopicName | str, subscription: str) -> None:
        """Delete a subscription with its cursors, which ends its consumers; raises SubscriptionNotFound."""
        self._call("DELETE", _path(topic, subscription))

    def assignments(self, topic: TopicName | str, subscription: str) -> Json:
        """Give the consumers with what each owns, under which generation; raises SubscriptionNotFound."""
        return self._object("GET", _path(topic, subscription, "assignments"))

    def seek(
        self, topic: TopicName | str, subscription: str, start: int | Checkpoint, *, preview: bool = False
    ) -> Json | None:
        """Go on from a time or a checkpoint, in all segments or in none; a preview only tells the moves.

        Raises SubscriptionNotFound, SubscriptionTypeMismatch, SegmentNotFound, PositionInvalid.
        """
        return self._move(topic, subscription, "seek", _time_of(start), preview=preview, body=_body_of(start))

    def clear_backlog(
        self, topic: TopicName | str, subscription: str, *, preview: bool = False
    ) -> Json | None:
        """Skip all messages that there are; raises SubscriptionNotFound, SubscriptionTypeMismatch."""
        return self._move(topic, subscription, "skip-all", {}, preview=preview)

    def skip(
        self, topic: TopicName | str, subscription: str, count: int, *, preview: bool = False
    ) -> Json | None:
        """Skip the next messages, those of ancestors first; raises as `clear_backlog`."""
        return self._move(topic, subscription, "skip", {"count": count}, preview=preview)

    def peek(self, topic: TopicName | str, subscription: str, *, count: int = 10) -> list[Json]:
        """Give the next messages with the beginnings of their values in base64; nothing is moved."""
        params = {"count": count}
        return listed(self._json("GET", _path(topic, subscription, "peek"), params=params), "messages")

    def stats(self, topic: TopicName | str) -> Json:
        """Give layout, rates, and all subscriptions with backlogs, waits and consumers."""
        return self._object("GET", topic_path(topic, "stats"))

    def _move(
        self,
        topic: TopicName | str,
        subscription: str,
        door: str,
        params: Json,
        *,
        preview: bool,
        body: Json | None = None,
    ) -> Json | None:
        params = {**params, **({"preview": "true"} if preview else {})}
        answer = self._call("POST", _path(topic, subscription, door), params=params, json=body)
        return dict(body_of(answer)) if preview else None


def _path(topic: TopicName | str, subscription: str, *more: str) -> str:
    return topic_path(topic, "subscriptions", subscription, *more)


def _time_of(start: Edge | int | Checkpoint) -> Json:
    return {"timestamp": start} if isinstance(start, int) else {}


def _body_of(start: Edge | int | Checkpoint) -> Json | None:
    return start.to_json() if isinstance(start, Checkpoint) else None
