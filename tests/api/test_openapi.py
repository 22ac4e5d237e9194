"""The OpenAPI description tells the truth, and no request that it allows makes the server fail."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders

from scalable.api.errors import ANSWERS
from scalable.api.serializers import Body
from scalable.api.urls import urlpatterns
from scalable.api.views.base import DoorView
from scalable.api.views.description import description
from tests.api.peers import rest as call
from tests.api.rest import Rest
from tests.processes import ProcessFactory

UNDESCRIBED = {"openapi", "docs"}
RUN_SECONDS = 550

CONFIGURATION = """
[parameters]
"path.tenant" = "public"
"path.namespace" = "default"
"path.topic" = "orders"
"path.segment_id" = 1
"path.other_segment_id" = 2
"path.descriptor" = "8000-bfff-2"
"path.subscription" = "s"

[phases.coverage]
unexpected-methods = ["PATCH"]

# What is needed by all others is not deleted.
[[operations]]
include-operation-id = ["deleteTopic", "deleteNamespaceLife", "deleteTenant", "deleteSubscription"]
[operations.parameters]
"path.tenant" = "gone"
"path.topic" = "gone"
"path.subscription" = "gone"

[[operations]]
include-operation-id = "postMigrate"
[operations.checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "501"]
"""


def test_every_door_is_described_with_all_it_may_answer() -> None:
    paths = description()["paths"]
    for pattern in urlpatterns:
        view = getattr(pattern.callback, "view_class", None)
        assert view is not None
        assert issubclass(view, DoorView)
        if pattern.name in UNDESCRIBED:
            continue
        path = "/" + re.sub(r"<str:(\w+)>", r"{\1}", str(pattern.pattern))
        for method, door in view.doors.items():
            answers = paths[path][method.lower()]["responses"]
            expected = {str(status) for status in door.answers}
            expected |= {str(ANSWERS[error.code].status) for error in door.errors}
            assert ("415" in answers) == (door.body is not None), (method, path)
            assert expected <= set(answers), (method, path)
            for error in door.errors:
                assert f"`{error.code}`" in answers[str(ANSWERS[error.code].status)]["description"]


def test_another_type_of_body_and_another_method_are_refused_as_described(db: None) -> None:
    path = "/admin/v2/scalable/public/default/typed"
    answer = Rest().call("PUT", path, b"a=1", Content_Type="text/plain")
    assert (answer.status_code, answer.json()["code"]) == (415, "unreadable_body")
    assert answer.json()["reason"] == 'The body cannot be read: "text/plain" is not JSON in UTF-8.'
    answer = Rest().call("PATCH", path)
    described = description()["paths"]["/admin/v2/scalable/{tenant}/{namespace}/{topic}"]
    assert answer.status_code == 405
    assert {method.lower() for method in answer["Allow"].split(", ")} - {"head", "options"} == set(described)
    assert "405" in description()["info"]["description"]


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [
        operation["operationId"] for path in description()["paths"].values() for operation in path.values()
    ]
    assert len(names) == len(set(names))


def test_no_parameter_may_be_null() -> None:
    paths = description()["paths"]
    operations = [operation for path in paths.values() for operation in path.values()]
    assert not re.search("'null'|None", str([operation.get("parameters", []) for operation in operations]))


def _shapes(shape: type[Body]) -> Iterator[type[Body]]:
    for below in shape.__subclasses__():
        yield below
        yield from _shapes(below)


def test_no_two_bodies_have_one_name() -> None:
    """The description knows them by their names alone."""
    names = [shape.__name__ for shape in _shapes(Body) if shape.__module__.startswith("scalable.api")]
    assert len(names) == len(set(names))


def test_the_pages_need_nobody_elses_server(db: None) -> None:
    page = Rest().call("GET", "/docs").content.decode()
    assert "://" not in page
    assets = re.findall(r'(?:href|src)="/static/([^"]+)"', page)
    assert len(assets) == 8
    assert not re.search(r"<script(?![^>]* src=)", page)
    assert all(finders.find(asset) for asset in assets)


def test_a_browser_without_login_is_led_to_it_and_back(db: None) -> None:
    answer = Rest(None).call("GET", "/docs", Accept="text/html,*/*;q=0.8")
    assert (answer.status_code, answer["Location"]) == (302, "/login?next=/docs")
    assert Rest(None).refused("GET", "/docs") == (401, "unauthenticated")


def test_every_tag_of_an_operation_is_named_in_the_order_of_the_pages() -> None:
    used = {tag for path in description()["paths"].values() for each in path.values() for tag in each["tags"]}
    assert used == {tag["name"] for tag in description()["tags"]}


@pytest.mark.slow
@pytest.mark.timeout(RUN_SECONDS + 60)
@pytest.mark.parametrize(
    ("role", "phases", "paths"),
    [("admin", "coverage,fuzzing", "."), ("system", "coverage", "/segments/|/scalable-load/")],
)
def test_requests_of_the_description(
    processes: ProcessFactory, tmp_path: Path, role: str, phases: str, paths: str
) -> None:
    """Hundreds of requests, valid and not: none ends in a server error, or in an answer that is not told."""
    node = processes.node(SCALABLE_OPERATION_WAIT_SECONDS="0.05", SCALABLE_LOG_LEVEL="ERROR")
    processes.worker()
    call(node, "PUT", "public/default/orders", params={"numInitialSegments": 4})
    call(node, "PUT", "public/default/orders/subscriptions/s")
    (tmp_path / "schemathesis.toml").write_text(CONFIGURATION)
    token = {"admin": node.admin_token, "system": node.system_token}[role]
    checks = (
        "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
        "negative_data_rejection,unsupported_method"
    )
    run = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{node.url}/openapi.json"),
            *("--header", f"Authorization:Bearer {token}", "--checks", checks),
            *("--phases", phases, "--max-examples", "4", "--seed", "1"),
            *("--include-path-regex", paths),
            *("--suppress-health-check", "all", "--warnings", "off"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-30_000:] + run.stderr[-2_000:]
