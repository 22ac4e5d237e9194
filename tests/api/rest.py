"""REST calls through the whole of Django, and a topic with a segment in each state a request may meet."""

import json
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.test import Client

from scalable.domain.keyspace import HashRange
from scalable.services import access, driver

ROOT = "/admin/v2/scalable"
NAMESPACE = f"{ROOT}/public/default"


class Rest:
    """Calls doors as one role; a body is sent as JSON unless it is bytes."""

    def __init__(self, role: str | None = "admin", *, token: str | None = None) -> None:
        given = token or (access.mint_token(role=role) if role else None)
        self._headers = {"Authorization": f"Bearer {given}"} if given else {}
        self._client = Client(enforce_csrf_checks=True)

    def call(self, method: str, path: str, body: object = None, **headers: str) -> Any:
        """Send a request and give Django's response."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"Content-Type": "application/json", **self._headers, **names}
        return self._client.generic(method, path, data, sent.pop("Content-Type"), headers=sent)

    def json(self, path: str, **headers: str) -> Any:
        """The JSON body of a GET that succeeds."""
        answer = self.call("GET", path, **headers)
        assert answer.status_code == 200, answer.content
        return answer.json()

    def refused(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
        """Status and code of a request that is refused, in the one form of all refusals."""
        answer = self.call(method, path, body, **headers)
        refusal = answer.json()
        assert set(refusal) == {"reason", "code", "fields", "hint"}, answer.content
        assert refusal["reason"]
        assert refusal["hint"]
        assert "{" not in refusal["hint"]
        return answer.status_code, refusal["code"]


@dataclass(frozen=True)
class Orders:
    """A topic with a sealed segment, a claimed one, one that is a single hash wide, and free ones."""

    path: str
    sealed: int
    claimed: int
    narrow: int
    free: int
    operation_id: str
    finished_operation_id: str
    epoch: int


def drive(operation_id: str) -> None:
    """Do a worker's work here and now."""
    driver.drive_operation(operation_id=operation_id, runner="test")


def settle(rest: Rest, path: str, body: object = None) -> dict[str, Any]:
    """Ask for a split or merge, drive it, and give the operation."""
    operation = rest.call("POST", path, body, Prefer="respond-async").json()
    drive(operation["operationId"])
    done: dict[str, Any] = rest.json(
        f"{path.partition('/orders')[0]}/orders/operations/{operation['operationId']}"
    )
    assert done["outcome"] == "SUCCEEDED", done
    return done


def make_orders(rest: Rest) -> Orders:
    """Make the topic and bring its segments into their states."""
    path = f"{NAMESPACE}/orders"
    assert rest.call("PUT", f"{path}?numInitialSegments=4").status_code == 204
    first_start = HashRange(0, 65535).parts(4)[0].start
    finished = settle(rest, f"{path}/split/0", {"boundaries": [first_start + 1]})
    claimed = rest.call("POST", f"{path}/split/3", Prefer="respond-async").json()
    return Orders(
        path=path,
        sealed=0,
        claimed=3,
        narrow=4,
        free=1,
        operation_id=claimed["operationId"],
        finished_operation_id=finished["operationId"],
        epoch=1,
    )


def rows() -> dict[str, list[str]]:
    """All rows of the product, to compare before and after, but for the audit and keys of requests."""
    models = apps.get_app_config("scalable").get_models()
    return {
        model.__name__: sorted(map(repr, model._default_manager.values_list()))
        for model in models
        if model.__name__ not in {"AuditEvent", "IdempotentRequest"}
    }
