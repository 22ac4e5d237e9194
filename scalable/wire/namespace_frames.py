"""Frames of the namespace watch (PR-25648): which topics there are, and which come and go."""

from typing import Annotated

import msgspec

from scalable.wire.frame import Frame, ServerSent

FilterKey = Annotated[str, msgspec.Meta(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]
FilterValue = Annotated[str, msgspec.Meta(max_length=4096, pattern=r"^[^\x00]*$")]
MAX_FILTER_BYTES = 32 * 1024
"""How many bytes the names and values of a filter may have together, in UTF-8."""
Filters = Annotated[dict[FilterKey, FilterValue], msgspec.Meta(max_length=100)]
ListHash = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}\Z")]


class WatchTopics(Frame, frozen=True, tag="watch_topics"):
    """Client: tell me the topics that have all of these properties, unless I hold the list of this hash."""

    filters: Filters = {}
    hash: ListHash | None = None


class TopicsSnapshot(ServerSent, frozen=True, tag="topics_snapshot"):
    """Server: a part of the whole list, by full names; so many parts are `remaining` behind it.

    `generation` counts the pushes of this socket, from 1.
    """

    generation: int
    remaining: int
    topics: list[str]


class TopicsDiff(ServerSent, frozen=True, tag="topics_diff"):
    """Server: what changed; `removed` is applied before `added`, and a name may be in both."""

    generation: int
    removed: list[str]
    added: list[str]
