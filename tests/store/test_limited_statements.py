"""A statement that takes so many rows at most takes no more, whatever plan it is given."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection
from django.db.models import Model

from scalable.admin_models import IdempotentRequest
from scalable.models import LoadTile, Topic
from scalable.store import idempotency, retention, rings
from scalable.store.clock import moment
from tests.topology import make_topic

ROOT = Path(__file__).parents[2]
ASKED_ANEW = re.compile(
    r"\bIN\s*\(\s*SELECT\b(?:(?!\"\"\").)*?\bSKIP\s+LOCKED\s*\)", re.DOTALL | re.IGNORECASE
)
PLANS = {
    "as it is chosen": (),
    "row by row": ("hashjoin", "mergejoin", "hashagg", "sort", "material", "memoize"),
    "nothing but hashes": ("nestloop", "mergejoin", "indexscan", "indexonlyscan", "bitmapscan"),
    "nothing but sorts": ("nestloop", "hashjoin", "hashagg"),
}


def due_topics() -> None:
    for number in range(7):
        make_topic(f"due-{number}", segments=1)


def old_keys() -> None:
    for number in range(7):
        idempotency.begin(role="r", key=str(number), fingerprint="f", seconds=-9, kept_seconds=0)
    IdempotentRequest.objects.update(status=204, body="", headers={})


def old_tiles() -> None:
    topic = make_topic("measured", segments=1).incarnation
    for number in range(7):
        LoadTile.objects.create(
            topic_id=topic, segment_id=0, minute=moment(number * 60_000), mean=[0.0] * 32, peak=[0.0] * 32
        )


def swept() -> None:
    assert len(retention.take_due(limit=2, interval_seconds=60)) == 2


@pytest.mark.django_db
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(
    ("fill", "take", "model", "gone"),
    [
        (due_topics, swept, Topic, 0),
        (old_keys, lambda: idempotency.trim(limit=2, kept_seconds=0), IdempotentRequest, 2),
        (old_keys, lambda: idempotency.drop_answered("r", left_seconds=0, limit=2), IdempotentRequest, 2),
        (old_tiles, lambda: rings.trim(now_ms=10**12, limit=2), LoadTile, 2),
    ],
    ids=["topics to sweep", "free keys", "answered requests", "tiles"],
)
def test_a_limit_holds_with_any_plan(
    plan: str, fill: Callable[[], None], take: Callable[[], object], model: type[Model], gone: int
) -> None:
    fill()
    with connection.cursor() as cursor:
        for way in PLANS[plan]:
            cursor.execute(f"SET LOCAL enable_{way} = off")
    before = model._default_manager.count()
    take()
    assert before - model._default_manager.count() == gone


def test_no_statement_passes_over_its_own_locks_in_a_query_that_may_be_asked_anew() -> None:
    sources = [path for kind in ("*.py", "*.sql") for path in (ROOT / "scalable").rglob(kind)]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in sources}
    assert [name for name, text in texts.items() if ASKED_ANEW.search(text)] == []
    assert ASKED_ANEW.search("WHERE id IN (\n SELECT id FROM t LIMIT 2 FOR UPDATE SKIP LOCKED\n)")
