"""The audit stays fast however long it is: filters, and what they offer, are read from an index."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scalable.store import audit
from scalable.store.audit import AuditFilter

pytestmark = pytest.mark.django_db
FILL = """
INSERT INTO scalable_auditevent (at, actor, action, target, request_id, outcome)
SELECT clock_timestamp(), 'role-' || n % 7, 'topic.create', 'topic://public/default/' || n, '',
       CASE n % 5000 WHEN 0 THEN 'forbidden' ELSE 'done' END
  FROM generate_series(1, 20000) AS n
"""


@pytest.fixture
def long_audit() -> None:
    """Many events of one kind, few of another, and statistics of them."""
    with connection.cursor() as cursor:
        cursor.execute(FILL)
    audit.insert(actor="a", action="rare", target="t", before=None, after=None, request_id="", outcome="done")
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE scalable_auditevent")


def explained(statement: str) -> str:
    """The plan of a statement."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {statement}")
        return "\n".join(line for (line,) in cursor.fetchall())


@pytest.mark.parametrize(
    ("wanted", "index", "count"),
    [
        (AuditFilter(action="rare"), "audit_by_action", 1),
        (AuditFilter(outcome="forbidden"), "audit_by_outcome", 4),
        (AuditFilter(action="nothing"), "audit_by_action", 0),
    ],
)
def test_a_filter_reads_its_index(long_audit: None, wanted: AuditFilter, index: str, count: int) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert len(audit.page(wanted, limit=100)) == count
    plan = explained(queries[0]["sql"])
    assert index in plan
    assert "Seq Scan" not in plan


def test_the_values_of_a_column_are_read_from_its_index(long_audit: None) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert audit.values_of("action", limit=9) == ["rare", "topic.create"]
        assert audit.values_of("outcome", limit=9) == ["done", "forbidden"]
    for query, index in zip(queries, ("audit_by_action", "audit_by_outcome"), strict=True):
        plan = explained(query["sql"])
        assert index in plan
        assert "Seq Scan" not in plan
