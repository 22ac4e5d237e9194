"""How often one may ask and log in, what pages one may see, and what a browser is told to do with answers."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from django.contrib.auth.models import User
from django.core.checks import registry
from django.test import Client
from pytest_django.fixtures import Settings

from launch.embedded.service import kept_secret
from launch.sandbox import LiveNode, ProcessFactory
from scalable.api import deployment
from scalable.api.pages import OPEN, RIGHTS
from scalable.api.rates import CALLERS_MAX, Rates, counted_address, rates
from scalable.audit_models import AuditEvent
from scalable.domain.access import Scope
from scalable.domain.errors import TooManyRequests
from scalable.services import grants
from tests.api.peers import raw_socket
from tests.api.rest import NAMESPACE, Rest
from webui.urls import urlpatterns as pages

ROOT = Path(__file__).parents[2]
PASSWORD = "correct horse battery"


# Requests.


def test_a_bucket_is_emptied_and_fills_up_again(settings: Settings) -> None:
    settings.SCALABLE_REQUESTS_PER_SECOND = 2
    now = 100.0
    buckets = Rates(lambda: now)
    for _ in range(4):
        buckets.take("one")
    with pytest.raises(TooManyRequests) as refused:
        buckets.take("one")
    assert (refused.value.limit, refused.value.retry_after_seconds) == (2, 0.5)
    buckets.take("other")
    now += 0.5
    buckets.take("one")
    with pytest.raises(TooManyRequests):
        buckets.take("one")


def test_buckets_are_bounded_in_number(settings: Settings) -> None:
    settings.SCALABLE_REQUESTS_PER_SECOND = 1
    buckets = Rates(lambda: 0.0)
    for number in range(CALLERS_MAX + 10):
        buckets.take(str(number))
    assert len(buckets._buckets) == CALLERS_MAX


@pytest.fixture
def seldom(settings: Settings) -> Iterator[None]:
    """Let each caller ask once or twice."""
    settings.SCALABLE_REQUESTS_PER_SECOND = 0.001
    rates._buckets.clear()
    yield
    rates._buckets.clear()


def test_who_asks_too_often_is_told_when_to_come_back(db: None, seldom: None) -> None:
    assert Rest().call("GET", NAMESPACE).status_code == 200
    answer = Rest().call("GET", NAMESPACE)
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_requests")
    assert int(answer["Retry-After"]) >= 1
    assert Rest("system").call("GET", NAMESPACE).status_code == 200


def test_guessing_tokens_is_limited_too(db: None, seldom: None) -> None:
    assert Rest(token="guess").refused("GET", NAMESPACE) == (401, "unauthenticated")
    assert Rest(token="guess again").refused("GET", NAMESPACE) == (429, "too_many_requests")


@pytest.mark.parametrize(("behind", "statuses"), [("false", [401, 429, 429]), ("true", [401, 401, 429])])
def test_an_address_is_what_the_connection_says_unless_a_proxy_stands_before(
    processes: ProcessFactory, behind: str, statuses: list[int]
) -> None:
    node = processes.node(SCALABLE_REQUESTS_PER_SECOND="0.001", SCALABLE_BEHIND_PROXY=behind)
    answers = [
        httpx.get(
            f"{node.url}{NAMESPACE}",
            headers={"Authorization": "Bearer guess", "X-Forwarded-For": address},
            trust_env=False,
        )
        for address in ("10.0.0.1", "10.0.0.2", "10.0.0.3, 10.0.0.2")
    ]
    assert [answer.status_code for answer in answers] == statuses


# Logins.


@pytest.fixture
def ada(db: None, redis_url: str, settings: Settings) -> User:
    """A user, and few attempts."""
    settings.SCALABLE_LOGIN_ATTEMPTS, settings.SCALABLE_LOGIN_ATTEMPTS_PER_ADDRESS = 3, 8
    return User.objects.create_user("ada", password=PASSWORD)


def log_in(name: str, password: str, address: str = "10.0.0.1") -> int:
    form = {"username": name, "password": password}
    return Client().post("/login", form, REMOTE_ADDR=address).status_code


def test_logins_are_throttled_by_name_and_address(ada: User) -> None:
    assert [log_in("ada", "wrong") for _ in range(4)] == [200, 200, 200, 429]
    assert log_in("ada", PASSWORD) == 429  # the right one comes too late, and nothing is learned
    assert log_in("ada", PASSWORD, "10.0.0.2") == 302


def test_the_addresses_of_one_ipv6_host_are_counted_together(ada: User) -> None:
    assert [log_in("ada", "wrong", f"2001:db8::{n}") for n in range(4)] == [200, 200, 200, 429]
    assert log_in("ada", PASSWORD, "2001:db8:0:1::1") == 302  # somebody else's network


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("unknown", "unknown"),
    ],
)
def test_what_an_address_is_counted_by(address: str, counted: str) -> None:
    assert counted_address(address) == counted


@pytest.mark.parametrize("spelling", ["ada ", "\tada", "\uff41da", "ad\u1d43", "ada\u3000"])
def test_another_spelling_of_a_name_is_no_other_name(ada: User, spelling: str) -> None:
    assert [log_in("ada", "wrong") for _ in range(3)] == [200] * 3
    assert log_in(spelling, PASSWORD) == 429
    assert log_in(spelling, PASSWORD, "10.0.0.2") == 302  # to the form it is that name


def test_a_login_that_succeeds_takes_its_failures_back(ada: User) -> None:
    assert [log_in("ada", "wrong") for _ in range(2)] == [200, 200]
    assert log_in("ada", PASSWORD) == 302
    assert [log_in("ada", "wrong") for _ in range(3)] == [200, 200, 200]


def test_one_address_cannot_try_name_after_name(ada: User) -> None:
    assert [log_in(f"name-{number}", "wrong") for number in range(9)] == [200] * 8 + [429]


def throttled_logins() -> list[tuple[str, str, str]]:
    events = AuditEvent.objects.filter(outcome="too_many_requests").order_by("pk")
    return list(events.values_list("actor", "action", "target"))


def test_of_the_logins_that_are_throttled_the_first_is_noted(ada: User) -> None:
    for _ in range(6):
        log_in("ada", "wrong")
    assert throttled_logins() == [("nobody", "login", "users/ada")]
    for number in range(6):
        log_in(f"name-{number}", "wrong")
    assert [target for *_, target in throttled_logins()] == ["users/ada", "users/name-2"]
    for _ in range(6):
        log_in("another", "wrong")
    log_in("ada", PASSWORD, "10.0.0.2")
    assert len(throttled_logins()) == 2


def test_a_refused_login_says_when_to_come_back(ada: User) -> None:
    for _ in range(3):
        log_in("ada", "wrong")
    answer = Client().post("/login", {"username": "ada", "password": "x"}, REMOTE_ADDR="10.0.0.1")
    assert 1 <= int(answer["Retry-After"]) <= 300


# Pages.

PATHS = {
    str(page.name): "/"
    + str(page.pattern)
    .replace("<str:tenant>", "public")
    .replace("<str:namespace>", "default")
    .replace("<str:topic>", "nothing")
    for page in pages
}
GRANTED = {"producer": "produce", "consumer": "consume", "looker": "lookup", "owner": "admin"}


def test_every_page_has_a_rule() -> None:
    assert set(PATHS) == set(RIGHTS) | OPEN


@pytest.mark.parametrize("name", sorted(RIGHTS))
def test_who_may_see_a_page(db: None, name: str) -> None:
    for role, action in GRANTED.items():
        scope = Scope("public", "default")
        grants.grant(scope=scope, role=f"user:{role}", actions=[action], actor="test")
    for caller in (*GRANTED, "stranger", "superuser"):
        user = User.objects.create_user(caller, is_superuser=caller == "superuser")
        client = Client()
        client.force_login(user)
        entered = {"home", "topics"} | ({"topic", "namespace"} if caller != "stranger" else set())
        allowed = caller == "superuser" or name in entered
        assert client.get(PATHS[name]).status_code in ({200, 302} if allowed else {403}), caller
    answer = Client().get(PATHS[name])
    assert (answer.status_code, answer["Location"].partition("?")[0]) == (302, "/login")


def test_a_page_that_is_refused_looks_the_same_whether_there_is_anything(rest: Rest) -> None:
    rest.call("PUT", f"{NAMESPACE}/there")
    client = Client()
    client.force_login(User.objects.create_user("stranger"))
    there, nothing = (client.get(f"/topics/public/default/{name}") for name in ("there", "nothing"))
    assert (there.status_code, nothing.status_code) == (403, 403)
    hidden = re.compile(rb'name="csrfmiddlewaretoken" value="[^"]+"')
    assert hidden.sub(b"", there.content) == hidden.sub(b"", nothing.content)


# Browsers.


@pytest.mark.parametrize("query", ["q=%00", "role__exact=%00", "%00=1", "actor=a&actor=%00", "o=%00"])
@pytest.mark.parametrize(
    "page", ["scalable/auditevent", "scalable/servicetoken", "scalable/grant", "auth/user"]
)
def test_pages_of_django_are_asked_for_nothing_that_no_column_holds(db: None, page: str, query: str) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("ada", password="x"))
    assert client.get(f"/manage/{page}/?{query}").status_code == 400
    assert client.get(f"/manage/{page}/?q=%20").status_code == 200


@pytest.mark.parametrize("path", ["/login", "/topics", "/docs", NAMESPACE, "/livez", "/nowhere"])
def test_no_answer_lets_a_browser_run_anything_foreign(db: None, path: str) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("ada", password="x"))
    answer = client.get(path)
    policy = dict(part.strip().partition(" ")[::2] for part in answer["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy.get("script-src", "'none'") in {"'self'", "'none'"}  # neither inline nor eval
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "*" not in answer["Content-Security-Policy"]
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["Cache-Control"]
    if answer["Content-Type"].startswith("text/html"):
        assert b"<script>" not in answer.content


async def test_no_log_has_what_stands_in_an_address(live_node: LiveNode) -> None:
    path = f"lookup/public/default/nothing?token={live_node.admin_token}"
    async with raw_socket(live_node, path):
        pass
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (
            await client.get(f"{live_node.url}{NAMESPACE}?token={live_node.admin_token}")
        ).status_code == 401
    live_node.process.stop()
    log = live_node.process.log.path.read_text()
    assert "lookup/public/default/nothing" in log
    assert live_node.admin_token not in log


# Production.

PRODUCTION = {
    "SCALABLE_NODE_URL": "https://topics.example.com",
    "SCALABLE_SECRET_KEY": "Zk3vQ8" * 12,
    "SCALABLE_TOKEN_SECRET": "t0Ps3cr" * 10,
}


def check_deployment(**environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "scalable.settings", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_production_settings_pass_the_deployment_check(tmp_path: Path) -> None:
    """With the secrets that `./run` makes."""
    files = {name: tmp_path / name for name in ("SCALABLE_SECRET_KEY", "SCALABLE_TOKEN_SECRET")}
    for file in files.values():
        kept_secret(file)
    given = {name: value for name, value in PRODUCTION.items() if name not in files}
    checked = check_deployment(**given, **{f"{name}_FILE": str(file) for name, file in files.items()})
    assert checked.returncode == 0, checked.stderr
    assert "no issues" in checked.stdout


def test_the_deployment_check_names_what_is_missing(settings: Settings) -> None:
    settings.SCALABLE_SECRET_KEY_GIVEN = settings.SCALABLE_TOKEN_SECRET_GIVEN = False
    settings.SCALABLE_NODE_URL = "http://topics.example.com"
    found = [*deployment.check_secrets(None), *deployment.check_encryption(None)]
    assert [each.id for each in found] == ["scalable.W001", "scalable.W002", "scalable.W003"]
    registered = registry.registry.get_checks(include_deployment_checks=True)
    assert {deployment.check_secrets, deployment.check_lengths, deployment.check_encryption} <= set(
        registered
    )


@pytest.mark.parametrize(("length", "found"), [(1, ["scalable.W005"]), (31, ["scalable.W005"]), (32, [])])
def test_the_deployment_check_names_a_secret_that_can_be_guessed(
    settings: Settings, length: int, found: list[str]
) -> None:
    settings.SCALABLE_TOKEN_SECRET = "x" * length
    assert [each.id for each in deployment.check_lengths(None)] == found


def test_a_secret_in_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(PRODUCTION["SCALABLE_SECRET_KEY"] + "\n")
    given = {name: value for name, value in PRODUCTION.items() if name != "SCALABLE_SECRET_KEY"}
    secret.chmod(0o644)
    checked = check_deployment(**given, SCALABLE_SECRET_KEY_FILE=str(secret))
    assert checked.returncode != 0
    assert "can be read by others" in checked.stderr
