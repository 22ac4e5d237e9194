"""Many different lists of one namespace: bounded, and none holds up what others are told."""

from typing import Any

import pytest
from pytest_django.fixtures import Settings

from scalable.api import namespace_feeds as module
from scalable.api.namespace_feeds import NamespaceFeeds
from scalable.domain.errors import TooManyRequests
from scalable.services import namespace_watching
from scalable.wire.frames import Hello, WatchTopics, encode
from tests.api.list_watchers import create
from tests.api.peers import ask
from tests.api.test_namespace_feeds import LIMIT_SECONDS, SPACE, Listener, hints_only, join, knock, reads

__all__ = ["hints_only", "reads"]
_services = {name: getattr(namespace_watching, name) for name in ("topic_list", "changes_since")}


async def test_filters_are_bounded_together(hints_only: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FILTER_BYTES_MAX", 20)
    registry, one, other, third = NamespaceFeeds(), Listener(), Listener(), Listener()
    feed = join(registry, one, team="red")
    join(registry, other, team="red", site="")
    with pytest.raises(TooManyRequests):
        join(registry, third, team="red")
    registry.part(third, feed)
    registry.part(other, feed)
    join(registry, third, team="red")
    await third.until()
    for each in (one, third):
        registry.part(each, feed)


async def test_a_socket_whose_filters_are_too_many_is_closed(
    hints_only: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FILTER_BYTES_MAX", 1)
    session = knock()
    await session.send(type="websocket.connect")
    for frame in (Hello(protocol=1), WatchTopics(filters={"team": "red"})):
        await session.send(type="websocket.receive", text=encode(frame))
    while (sent := await session.receive(LIMIT_SECONDS))["type"] != "websocket.close":
        pass
    assert (sent["code"], sent["reason"]) == (4429, "too_many_requests")
    await session.send(type="websocket.disconnect", code=4429)
    await session.ended()
    assert len(module.namespace_feeds) == 0


async def test_changes_and_known_lists_are_told_between_new_ones(
    hints_only: None, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_AT_ONCE", 2)
    registry, old = NamespaceFeeds(), Listener()
    feed = join(registry, old)
    await old.until()
    reads.clear()
    strangers = [Listener() for _ in range(5)]
    for number, each in enumerate(strangers):
        join(registry, each, site=str(number))
    join(registry, friend := Listener())
    await friend.until()
    assert reads.count("topic_list") <= 2  # the first of the strangers' may have begun by now
    for each in strangers:
        await each.until()
    assert reads.count("topic_list") == 5
    assert "topic_list topic_list topic_list" not in " ".join(reads)
    for each in (old, friend, *strangers):
        registry.part(each, feed)


async def test_lists_that_missed_changes_are_all_read_again_whatever_fails_between(
    hints_only: None, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SCALABLE_WATCH_RESYNC_SECONDS = 0.05
    registry, listeners = NamespaceFeeds(), [Listener() for _ in range(3)]
    for listener, site in zip(listeners, "abc", strict=True):
        feed = join(registry, listener, site=site)
        await listener.until()
    fails = iter([False, True])

    def changes_since(**_: object) -> None:
        """As when they are too old to be known."""
        monkeypatch.setattr(namespace_watching, "changes_since", _services["changes_since"])

    def topic_list(**arguments: Any) -> Any:
        if next(fails, False):
            raise OSError("the database is away")
        return _services["topic_list"](**arguments)

    monkeypatch.setattr(namespace_watching, "changes_since", changes_since)
    monkeypatch.setattr(namespace_watching, "topic_list", topic_list)
    names = [await ask(create, SPACE, f"t-{site}", site=site) for site in "abc"]
    for listener, name in zip(listeners, names, strict=True):
        await listener.until(name)
        registry.part(listener, feed)
