"""What was done under an idempotency key is not done again when its answer was lost."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import httpx
import psutil
import pytest
from django.db import connection, transaction

from scalable.admin_models import IdempotentRequest
from scalable.audit_models import AuditEvent
from scalable.domain.errors import IdempotencyAnswerLost, IdempotencyKeyBusy
from scalable.services import auditing, idempotency
from scalable.store import idempotency as store
from tests.api.rest import NAMESPACE, Rest
from tests.api.test_idempotency import keyed, let_hours_pass, let_time_pass
from tests.faults.waiting import until
from tests.processes import ProcessFactory

PATH = f"{NAMESPACE}/orders"
TOO_LARGE = "x" * (idempotency.MAX_BODY_CHARACTERS + 1)
LOST = (409, "idempotency_answer_lost")


def take(key: str = "k") -> int:
    """Begin a request of a role, and work on it."""
    row_id = idempotency.begin(role="r", key=key, fingerprint="f")
    assert isinstance(row_id, int)
    idempotency.work_on(row_id, key=key)
    return row_id


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are not kept, as when the process dies right after its work."""
    monkeypatch.setattr(store, "finish", lambda row_id, **answer: None)


def test_while_the_first_may_still_answer_its_key_is_busy_and_then_its_answer_is_lost(
    rest: Rest, lost: None
) -> None:
    assert rest.call("PUT", PATH, **keyed("one")).status_code == 204
    assert rest.refused("PUT", PATH, **keyed("one")) == (409, "idempotency_key_busy")
    let_time_pass()
    assert rest.refused("PUT", PATH, **keyed("one")) == LOST
    assert rest.call("DELETE", PATH).status_code == 204  # by another one, without a key
    assert rest.refused("PUT", PATH, **keyed("one")) == LOST
    assert rest.call("GET", PATH).status_code == 404, "it was not done again"
    assert rest.refused("PUT", f"{PATH}2", **keyed("one")) == (422, "idempotency_key_reused")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", f"{PATH}/properties", {"a": "b"}),
        ("PUT", f"{PATH}/subscriptions/billing", None),
        ("POST", f"{PATH}/autoScalePolicy", {"enabled": True}),
        ("POST", f"{PATH}/lifetimes", {"retentionSeconds": 3}),
        ("POST", f"{PATH}/split/0", None),
        ("PUT", "/admin/v2/tenants/acme", {"adminRoles": ["ada"]}),
        ("PUT", "/admin/v2/namespaces/public/other", None),
        ("POST", "/admin/v2/tenants/public/permissions/ada", ["produce"]),
        ("DELETE", PATH, None),
    ],
)
def test_every_kind_of_change_marks_its_key(
    rest: Rest, lost: None, method: str, path: str, body: object
) -> None:
    rest.call("PUT", PATH)
    assert rest.call(method, path, body, Prefer="respond-async", **keyed("one")).status_code < 300
    let_time_pass()
    before = AuditEvent.objects.count()
    assert rest.refused(method, path, body, Prefer="respond-async", **keyed("one")) == LOST
    done = AuditEvent.objects.filter(outcome=auditing.DONE).count()
    assert done == before


def test_a_key_whose_answer_was_lost_is_free_a_day_later(rest: Rest, lost: None) -> None:
    rest.call("PUT", PATH, **keyed("one"))
    let_time_pass()
    let_hours_pass("one", 23)
    assert idempotency.forget_old_keys() == 0
    assert rest.refused("PUT", PATH, **keyed("one")) == LOST
    let_hours_pass("one", 2)
    assert rest.refused("PUT", PATH, **keyed("one")) == (409, "topic_exists")
    let_hours_pass("one", 26)
    assert idempotency.forget_old_keys() == 1


@pytest.mark.parametrize(("status", "body"), [(500, "{}"), (200, TOO_LARGE)])
def test_a_fault_behind_the_commit_frees_no_key(rest: Rest, status: int, body: str) -> None:
    row_id = take()
    with transaction.atomic():
        auditing.record("topic.create", "orders")
    idempotency.finish(row_id, status=status, body=body, headers={})
    with pytest.raises(IdempotencyAnswerLost):
        take()


def test_what_was_rolled_back_frees_its_key(rest: Rest) -> None:
    row_id = take()
    with transaction.atomic():
        auditing.record("topic.create", "orders")
        transaction.set_rollback(True)
    idempotency.finish(row_id, status=500, body="{}", headers={})
    assert isinstance(idempotency.begin(role="r", key="k", fingerprint="f"), int)


def test_who_was_too_slow_does_nothing_once_another_has_its_key(rest: Rest) -> None:
    slow = take()
    let_time_pass()
    other = idempotency.begin(role="r", key="k", fingerprint="f")
    with pytest.raises(IdempotencyKeyBusy), transaction.atomic():
        auditing.record("topic.create", "orders")
    assert not AuditEvent.objects.filter(target="orders").exists()
    idempotency.finish(slow, status=409, body="{}", headers={})
    kept = IdempotentRequest.objects.get()
    assert (kept.pk, kept.status, kept.is_done) == (other, None, False)


def test_what_goes_on_after_the_answer_marks_nothing(rest: Rest) -> None:
    row_id = take()
    goes_on = copy_context()  # as a thread has it that was begun before
    idempotency.finish(row_id, status=202, body="{}", headers={})
    with transaction.atomic():
        goes_on.run(auditing.record, "segment.delete", "orders")
    assert not IdempotentRequest.objects.get().is_done


# The same with a process that dies.

HOLD = 4711
HOLD_ANSWERS = f"""
CREATE FUNCTION hold_answer() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_advisory_xact_lock({HOLD}); RETURN NEW; END $$;
CREATE TRIGGER hold_answer BEFORE UPDATE OF status ON scalable_idempotentrequest
   FOR EACH ROW EXECUTE FUNCTION hold_answer();
"""
WAITING = f"SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = {HOLD} AND NOT granted"


def waiting() -> list[int]:
    """The database's processes that would keep an answer."""
    with connection.cursor() as cursor:
        cursor.execute(WAITING)
        return [pid for (pid,) in cursor.fetchall()]


@pytest.fixture
def answers_held(transactional_db: None) -> Iterator[None]:
    """Let each request do its work, and stop before its answer is kept."""
    with connection.cursor() as cursor:
        cursor.execute(HOLD_ANSWERS)
        cursor.execute("SELECT pg_advisory_lock(%s)", [HOLD])
    yield
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_unlock(%s)", [HOLD])
        cursor.execute("DROP FUNCTION hold_answer CASCADE")


def test_a_node_that_dies_between_its_work_and_its_answer(
    processes: ProcessFactory, answers_held: None
) -> None:
    node = processes.node()
    headers = {**node.headers, "Idempotency-Key": "one"}
    client = httpx.Client(base_url=node.url, headers=headers, timeout=60, trust_env=False)
    with client, ThreadPoolExecutor(1) as thread:
        answer = thread.submit(client.put, PATH)
        until(lambda: bool(waiting()), what="the work to be done")
        psutil.Process(node.process.pid).kill()
        assert isinstance(answer.exception(60), httpx.TransportError)
    with connection.cursor() as cursor:
        for pid in waiting():
            cursor.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
    assert Rest().refused("PUT", PATH, **keyed("one")) == (409, "idempotency_key_busy")
    let_time_pass()
    assert Rest().refused("PUT", PATH, **keyed("one")) == LOST
    assert Rest().call("GET", PATH).status_code == 200
