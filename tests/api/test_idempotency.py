"""Requests with an idempotency key are done once, and answered the same each time."""

import json
import threading

import httpx
import pytest
from django.db import connection

from scalable.admin_models import IdempotentRequest
from scalable.domain.errors import IdempotencyKeyBusy, IdempotencyKeyReused
from scalable.services import idempotency
from tests.api.rest import NAMESPACE, Orders, Rest, rows
from tests.processes import LiveNode

PATH = f"{NAMESPACE}/orders"


def keyed(key: str) -> dict[str, str]:
    """The header of a key."""
    return {"Idempotency_Key": key}


def test_a_request_that_comes_again_is_not_done_again(rest: Rest) -> None:
    first = rest.call("PUT", PATH, {"owner": "ada"}, **keyed("one"))
    before = rows()
    again = rest.call("PUT", PATH, {"owner": "ada"}, **keyed("one"))
    assert (first.status_code, again.status_code) == (204, 204)
    assert again["Idempotency-Replayed"] == "true"
    assert not first.has_header("Idempotency-Replayed")
    assert rows() == before
    assert rest.refused("PUT", PATH, {"owner": "ada"}) == (409, "topic_exists")  # without the key


def test_a_refusal_is_an_answer_too(rest: Rest) -> None:
    path = f"{PATH}/split/9"
    assert rest.refused("POST", path, **keyed("one")) == (404, "topic_not_found")
    rest.call("PUT", PATH)
    assert rest.refused("POST", path, **keyed("one")) == (404, "topic_not_found")
    assert rest.refused("POST", path, **keyed("two")) == (404, "segment_not_found")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [("PUT", PATH, {"owner": "eve"}), ("PUT", f"{PATH}2", {}), ("PUT", f"{PATH}?numInitialSegments=2", {})],
)
def test_another_request_under_the_key_is_refused(rest: Rest, method: str, path: str, body: object) -> None:
    rest.call("PUT", PATH, {}, **keyed("one"))
    before = rest.json(NAMESPACE)
    assert rest.refused(method, path, body, **keyed("one")) == (422, "idempotency_key_reused")
    assert rest.json(NAMESPACE) == before


def test_an_operation_is_answered_with_its_address_again(rest: Rest, orders: Orders) -> None:
    path = f"{PATH}/split/{orders.free}"
    first = rest.call("POST", path, Prefer="respond-async", **keyed("split"))
    again = rest.call("POST", path, Prefer="respond-async", **keyed("split"))
    assert (again.status_code, again.json(), again["Location"]) == (202, first.json(), first["Location"])


def test_keys_belong_to_a_role(rest: Rest) -> None:
    rest.call("POST", f"/admin/v2/tenants/public/permissions/{'ada'}", ["admin"])
    assert rest.call("PUT", PATH, **keyed("one")).status_code == 204
    assert Rest("ada").refused("PUT", PATH, **keyed("one")) == (409, "topic_exists")


@pytest.mark.parametrize("key", ["", "x" * 256, "ä", "a\tb"])
def test_a_key_that_cannot_be(rest: Rest, key: str) -> None:
    assert rest.refused("PUT", PATH, **keyed(key)) == (400, "invalid_parameter")
    assert rest.call("GET", PATH).status_code == 404


def test_without_the_right_a_key_tells_nothing(rest: Rest) -> None:
    rest.call("PUT", PATH, **keyed("one"))
    assert Rest("nobody").refused("PUT", PATH, **keyed("one")) == (403, "forbidden")
    assert IdempotentRequest.objects.count() == 1


def test_a_new_token_is_not_kept(rest: Rest) -> None:
    minted = [rest.call("POST", "/admin/v2/tokens", {"role": "r"}, **keyed("one")).json() for _ in range(2)]
    assert minted[0]["id"] != minted[1]["id"]
    assert not IdempotentRequest.objects.exists()


def test_reads_know_no_keys(rest: Rest) -> None:
    assert rest.refused("GET", PATH, **keyed("one")) == (404, "topic_not_found")
    rest.call("PUT", PATH)
    assert rest.call("GET", PATH, **keyed("one")).status_code == 200


# Bounded, and over after a time.


def let_time_pass() -> None:
    """Bring the end of every key's time."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE scalable_idempotentrequest SET expires_at = clock_timestamp()")


def let_hours_pass(key: str, hours: int) -> None:
    """Make a key so much older."""
    aged = "UPDATE scalable_idempotentrequest SET expires_at = expires_at - make_interval(hours => %s)"
    with connection.cursor() as cursor:
        cursor.execute(f"{aged} WHERE key = %s", (hours, key))


def kept_keys() -> set[str]:
    """The keys that stand for something."""
    return set(IdempotentRequest.objects.values_list("key", flat=True))


def test_a_key_is_free_again_after_its_time(rest: Rest) -> None:
    rest.call("PUT", PATH, **keyed("one"))
    let_time_pass()
    assert rest.refused("PUT", PATH, **keyed("one")) == (409, "topic_exists")
    let_time_pass()
    assert idempotency.forget_old_keys() == 1
    assert not IdempotentRequest.objects.exists()


def test_while_it_is_worked_on_a_key_is_busy_and_free_once_that_took_too_long(rest: Rest) -> None:
    """As a process leaves it that died over the request."""
    assert isinstance(idempotency.begin(role="r", key="k", fingerprint="f"), int)
    with pytest.raises(IdempotencyKeyBusy):
        idempotency.begin(role="r", key="k", fingerprint="f")
    with pytest.raises(IdempotencyKeyReused):
        idempotency.begin(role="r", key="k", fingerprint="g")
    let_time_pass()
    assert isinstance(idempotency.begin(role="r", key="k", fingerprint="g"), int)


def test_a_fault_of_the_server_frees_the_key(rest: Rest) -> None:
    row_id = idempotency.begin(role="r", key="k", fingerprint="f")
    assert isinstance(row_id, int)
    idempotency.finish(row_id, status=503, body="{}", headers={})
    assert isinstance(idempotency.begin(role="r", key="k", fingerprint="f"), int)


def test_a_role_has_so_many_keys_and_no_more(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "MAX_KEYS", 2)
    for key in "ab":
        assert rest.call("PUT", f"{PATH}{key}", **keyed(key)).status_code == 204
    assert rest.refused("PUT", PATH, **keyed("c")) == (503, "idempotency_keys_full")
    assert rest.call("PUT", f"{PATH}a", **keyed("a")).status_code == 204  # one that is known
    let_time_pass()
    assert rest.call("PUT", PATH, **keyed("c")).status_code == 204


def test_the_oldest_answers_make_room_once_they_are_an_hour_old(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "MAX_KEYS", 4)
    monkeypatch.setattr(idempotency, "DROPPED_AT_ONCE", 1)
    assert isinstance(idempotency.begin(role="admin", key="in work", fingerprint="f"), int)
    for key in ("oldest", "old", "young"):
        assert rest.call("PUT", f"{PATH}-{key}", **keyed(key)).status_code == 204
    for key, hours in (("oldest", 3), ("old", 2)):
        let_hours_pass(key, hours)
    assert rest.call("PUT", f"{PATH}1", **keyed("1")).status_code == 204
    assert kept_keys() == {"in work", "old", "young", "1"}
    assert rest.call("PUT", f"{PATH}2", **keyed("2")).status_code == 204
    assert kept_keys() == {"in work", "young", "1", "2"}
    assert rest.refused("PUT", f"{PATH}3", **keyed("3")) == (503, "idempotency_keys_full")
    assert rest.call("PUT", f"{PATH}-young", **keyed("young"))["Idempotency-Replayed"] == "true"


def test_the_answers_of_others_do_not_make_room(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "MAX_KEYS", 1)
    row_id = idempotency.begin(role="r", key="theirs", fingerprint="f")
    assert isinstance(row_id, int)
    idempotency.finish(row_id, status=204, body="", headers={})
    let_hours_pass("theirs", 2)
    assert rest.call("PUT", PATH, **keyed("own")).status_code == 204
    assert rest.refused("PUT", f"{PATH}2", **keyed("own 2")) == (503, "idempotency_keys_full")
    assert "theirs" in kept_keys()


def test_two_keys_are_no_key(live_node: LiveNode) -> None:
    headers = [*live_node.headers.items(), ("Idempotency-Key", "one"), ("Idempotency-Key", "two")]
    answer = httpx.put(f"{live_node.url}{PATH}", json={}, headers=headers, trust_env=False)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")
    assert httpx.get(f"{live_node.url}{PATH}", headers=live_node.headers).status_code == 404


def test_of_two_at_once_one_is_done(live_node: LiveNode) -> None:
    answers: list[httpx.Response] = []

    def mint() -> None:
        with httpx.Client(base_url=live_node.url, headers=live_node.headers, trust_env=False) as client:
            headers = {"Idempotency-Key": "both"}
            answers.append(client.put(PATH, json={"a": "b"}, headers=headers, timeout=60))

    threads = [threading.Thread(target=mint) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    codes = [answer.json()["code"] if answer.status_code != 204 else "" for answer in answers]
    assert codes.count("") >= 1
    assert set(codes) <= {"", "idempotency_key_busy"}
    assert sum("Idempotency-Replayed" not in answer.headers for answer in answers if not answer.is_error) == 1
    assert json.loads(httpx.get(f"{live_node.url}{PATH}", headers=live_node.headers).content)["epoch"] == 0
