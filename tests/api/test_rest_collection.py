"""The paged collection of topics: filtered, sorted, counted, in a number of statements that does not grow."""

import itertools
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scalable.domain.names import TopicName
from scalable.models import Segment, Topic
from scalable.services import loads, pruning, topics
from scalable.store import overview
from tests.api.rest import NAMESPACE, Orders, Rest, settle

COLLECTION = "/admin/v2/scalable-topics/public/default"
SORTS = ("name", "created", "segments", "rate")
FILTERS = ("", "search=T1", "property=odd=1", "state=STEADY", "search=t&property=odd=0&state=STEADY")


def make_topics(count: int) -> None:
    """Make rows of topics with a segment each, which is enough for a list."""
    home = Topic.objects.get(name="first")
    columns = "namespace_id, epoch, revision, next_segment_id, properties, created_at"
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO scalable_topic (name, {columns}, active_segments, msg_rate_in) "
            "SELECT 't' || n, namespace_id, epoch, revision, next_segment_id, "
            "       jsonb_build_object('odd', (n %% 2)::text), created_at + n * interval '1 second', "
            "       n %% 7 + 1, n * 13 %% 101 "
            "  FROM scalable_topic, generate_series(1, %s) AS n WHERE id = %s",
            [count, home.pk],
        )
        cursor.execute(
            "INSERT INTO scalable_segment (topic_id, segment_id, hash_start, hash_end, state, parent_ids, "
            "       child_ids, entry_bucket_splits, created_epoch, sealed_epoch, created_at) "
            "SELECT id, 0, 0, 65535, 'ACTIVE', '{}', '{}', '{}', 0, 0, created_at "
            "  FROM scalable_topic WHERE name LIKE 't%%' AND namespace_id = %s",
            [home.namespace_id],
        )


@pytest.fixture
def many(rest: Rest) -> Rest:
    """A namespace with 201 topics."""
    rest.call("PUT", f"{NAMESPACE}/first", {"odd": "none"})
    make_topics(200)
    return rest


def names(rest: Rest, query: str) -> list[str]:
    """The names of a page."""
    return [each["name"] for each in rest.json(f"{COLLECTION}?{query}")["topics"]]


@pytest.mark.parametrize("sort", SORTS)
def test_pages_follow_one_another_in_every_order(many: Rest, sort: str) -> None:
    whole = names(many, f"sort={sort}&limit=1000")
    assert len(set(whole)) == len(whole) == 201
    pages = [names(many, f"sort={sort}&limit=50&offset={offset}") for offset in range(0, 250, 50)]
    assert list(itertools.chain(*pages)) == whole
    assert names(many, f"sort={sort}&descending=true&limit=1000") == whole[::-1]


def test_orders_are_those_of_the_figures(many: Rest) -> None:
    for sort, figure in (("segments", "activeSegments"), ("rate", "msgRateIn"), ("created", "createdAtMs")):
        page = many.json(f"{COLLECTION}?sort={sort}&limit=1000")["topics"]
        figures = [each[figure] for each in page]
        assert figures == sorted(figures)


def test_filters_and_how_many_match(many: Rest) -> None:
    page = many.json(f"{COLLECTION}?property=odd=1&search=T1&limit=3")
    assert (page["total"], page["totalExact"]) == (56, True)  # 1, five of 11 to 19, fifty of 101 to 199
    assert all(each["properties"] == {"odd": "1"} for each in page["topics"])
    assert many.json(COLLECTION)["total"] == 201
    assert many.json(f"{COLLECTION}?search=%25")["total"] == 0  # no pattern
    assert many.refused("GET", f"{COLLECTION}?property=odd") == (412, "invalid_filter")
    assert many.refused("GET", f"{COLLECTION}?sort=luck") == (400, "invalid_parameter")


def test_a_topic_under_change_is_told(rest: Rest, orders: Orders) -> None:
    rest.call("PUT", f"{NAMESPACE}/calm")
    assert names(rest, "state=RESHAPING") == ["orders"]
    assert names(rest, "state=STEADY") == ["calm"]
    assert {each["name"]: each["state"] for each in rest.json(COLLECTION)["topics"]} == {
        "orders": "RESHAPING",
        "calm": "STEADY",
    }


def statements(rest: Rest, query: str) -> int:
    """How many SQL statements a page costs."""
    with CaptureQueriesContext(connection) as captured:
        assert len(names(rest, query)) == 50
    return len(captured)


def test_a_page_costs_the_same_number_of_statements_however_many_topics_there_are(many: Rest) -> None:
    queries = [f"sort={sort}&{filtered}&limit=50" for sort in SORTS for filtered in FILTERS]
    before = [statements(many, query) for query in queries]
    assert set(before) <= {before[0]}
    assert before[0] <= 8
    Topic.objects.filter(name__startswith="t").delete()
    make_topics(1_000)
    assert [statements(many, query) for query in queries] == before


def test_the_bare_list_costs_the_same_number_of_statements_too(many: Rest) -> None:
    def cost() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert len(many.json(f"{NAMESPACE}?limit=50")) == 50
        return len(captured)

    before = cost()
    Topic.objects.filter(name__startswith="t").delete()
    make_topics(1_000)
    assert cost() == before


def test_so_many_matches_are_counted_and_no_more(many: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "COUNTED", 100)
    page = many.json(f"{COLLECTION}?search=t&offset=150")
    assert (page["total"], page["totalExact"], len(page["topics"])) == (100, False, 50)
    assert many.json(COLLECTION)["total"] == 201


# What lists are sorted by is what is there.


def figures() -> Iterator[tuple[int, int, int, int]]:
    """Of each topic its segments as kept for lists, and as they are."""
    for topic in Topic.objects.filter(name="orders"):
        segments = Segment.objects.filter(topic=topic)
        active = segments.filter(state="ACTIVE").count()
        yield topic.active_segments, active, topic.sealed_segments, segments.count() - active


@pytest.mark.django_db(transaction=True)
def test_figures_follow_every_change_of_the_layout(rest: Rest) -> None:
    path = f"{NAMESPACE}/orders"
    rest.call("PUT", f"{path}?numInitialSegments=3")
    steps: list[tuple[str, object]] = [
        ("split/0", None),
        ("merge", {"segmentIds": [1, 2]}),
        ("rebucket/3?bucketCount=7", None),
    ]
    for step, body in steps:
        settle(rest, f"{path}/{step}", body)
        assert all(kept == there and was == is_ for kept, there, was, is_ in figures())
    pruning.sweep_topic(
        incarnation=topics.get_topic(name=TopicName("public", "default", "orders")).incarnation
    )
    ((kept, there, was, is_),) = figures()
    assert (kept, was) == (there, is_) == (3, 0)


def test_the_rate_is_the_one_last_reported(rest: Rest) -> None:
    path = f"{NAMESPACE}/orders"
    rest.call("PUT", f"{path}?numInitialSegments=2")
    name = TopicName("public", "default", "orders")
    incarnation = topics.get_topic(name=name).incarnation
    for watermark_ms, rate in ((1_000, 10.0), (2_000, 40.0)):
        reported = [
            {
                "topic": str(name),
                "incarnation": incarnation,
                "segmentId": segment_id,
                "msgRateIn": rate * (segment_id + 1),
                "bytesRateIn": 0.0,
                "msgRateOut": 0.0,
                "bytesRateOut": 0.0,
            }
            for segment_id in (0, 1)
        ]
        loads.report_loads(reporter="r", watermark_ms=watermark_ms, loads=reported)
        assert rest.json(COLLECTION)["topics"][0]["msgRateIn"] == rate * 3
