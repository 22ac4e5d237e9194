"""Statistics and previews of a topic cost the same number of statements, however large it is."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scalable.domain.names import TopicName
from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.registry import use_port
from scalable.services import scaling, seeking, settling, subscription_stats
from scalable.services.positions import AtTime
from tests.services.group import Group
from tests.services.test_subscriptions import create
from tests.topology import ACTOR, append_everywhere, drive, make_topic

pytestmark = pytest.mark.django_db


class _Counted(EmbeddedSegments):
    """Counts the statements of the data plane, which Django does not see."""

    statements = 0

    def _execute(self, statement: str, values: Mapping[str, object]) -> psycopg.Cursor[tuple[Any, ...]]:
        self.statements += 1
        return super()._execute(statement, values)


def _preview_of_a_time(name: TopicName) -> object:
    return seeking.seek(name=name, subscription="s0", start=AtTime(time.time_ns() // 1_000_000), preview=True)


CALLS: dict[str, Callable[[TopicName], object]] = {
    "stats": lambda name: subscription_stats.topic_stats(name=name),
    "subscription": lambda name: subscription_stats.subscription_stats(name=name, subscription="s0"),
    "assignments": lambda name: subscription_stats.assignments(name=name, subscription="s0"),
    "seek": _preview_of_a_time,
    "clear": lambda name: seeking.clear_backlog(name=name, subscription="s0", preview=True),
}


@pytest.mark.parametrize("call", CALLS)
def test_the_number_of_statements_does_not_grow(call: str) -> None:
    costs = []
    for segments, subscriptions, messages in ((1, 1, 1), (40, 6, 5)):
        with use_port(_Counted()) as port:
            assert isinstance(port, _Counted)
            topic = make_topic(f"of-{segments}", segments=segments)
            for number in range(subscriptions):
                create(topic, f"s{number}", key_shared=number % 2 == 1)
            for number in range(messages):
                append_everywhere(topic, str(number))
            port.statements = 0
            with CaptureQueriesContext(connection) as seen:
                CALLS[call](topic.name)
            costs.append((port.statements, len(seen)))
    assert costs[0] == costs[1]


@pytest.mark.parametrize(("sealed", "reads"), [(0, 0), (1, 1), (6, 1)])
def test_what_is_acknowledged_is_read_at_once_and_only_where_something_is_sealed(
    sealed: int, reads: int
) -> None:
    with use_port(_Counted()) as port:
        assert isinstance(port, _Counted)
        topic = make_topic("settled", segments=8)
        group = Group(topic, key_shared=True)
        append_everywhere(topic, "unread")
        group.join("a")
        for segment_id in range(sealed):
            drive(scaling.request_split(name=topic.name, segment_id=segment_id, actor=ACTOR))
        port.statements = 0
        assert not settling.settle_subscription(subscription_id=group.subscription_id)
        assert port.statements == reads
