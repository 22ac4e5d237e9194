"""Names that want to be something else: from their making to their end all works, or they are refused."""

import json
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.processes import LiveNode

TAKEN = {
    "dots": "a.b..c...",
    "only dots": "...",
    "a percent sign": "100%",
    "an escape of a letter": "%41",
    "an escape of a slash": "%2F",
    "escapes of dots": "%2e%2e",
    "non-ASCII": "Zürich-名前-🚀",
    "two forms of one letter": "e\u0301",
    "right to left": "אבג",
    "255 characters": "x" * 255,
    "255 wide characters": "🚀" * 255,
    "like a segment": "0000-ffff-0",
    "like a door": "subscriptions",
    "another door": "autoScalePolicy",
    "markup": "<b onmouseover=alert(1)>&amp;\"'",
    "a query": "a?b=c&d#e",
    "a template": "{{7*7}}${x}",
    "spaces": " a b ",
    "SQL": "'; DROP TABLE scalable_topic; --",
    "a scheme": "topic:",
    "a pattern": "%_\\",
    "a number": "0",
}
REFUSED = {
    "a slash": "a/b",
    "a closing tag": "</script>",
    "a path to another door": "x/subscriptions/s",
    "nothing but a slash": "/",
    "the parent": "..",
    "itself": ".",
    "256 characters": "x" * 256,
    "NUL": "a\x00b",
    "a line feed": "a\nb",
    "an escape character": "\x1b[31m",
    "a line separator": "a\u2028b",
}
TENANTS, NAMESPACES = "/admin/v2/tenants", "/admin/v2/namespaces"
TOPICS = "/admin/v2/scalable"


@pytest.fixture
def admin(live_node: LiveNode) -> Iterator[httpx.Client]:
    with httpx.Client(
        base_url=live_node.url, headers=live_node.headers, timeout=60, trust_env=False
    ) as client:
        yield client


def ask(admin: httpx.Client, method: str, path: str, body: object = None) -> httpx.Response:
    """Send a path just as it is written: a client that resolves `..` would ask for something else."""
    base = httpx.URL(admin.base_url)
    url = httpx.URL(scheme=base.scheme, host=base.host, port=base.port, raw_path=path.encode())
    return admin.request(method, url, json=body)


def escaped(name: str) -> str:
    """A name as a part of a path; dots too, which clients and proxies resolve otherwise."""
    return quote(name, safe="").replace(".", "%2E")


@pytest.mark.slow
def test_hostile_names_from_their_making_to_their_end(admin: httpx.Client) -> None:
    for kind, name in TAKEN.items():
        part, role = escaped(name), name.strip()  # with spaces around it, it would look like another
        tenant, namespace = f"{TENANTS}/{part}", f"{NAMESPACES}/{part}/{part}"
        topic = f"{TOPICS}/{part}/{part}/{part}"
        subscription = f"{topic}/subscriptions/{part}"
        for method, path, body in (
            ("PUT", tenant, {"adminRoles": [role]}),
            ("PUT", namespace, None),
            ("PUT", f"{topic}?numInitialSegments=2", {name: name}),
            ("PUT", f"{subscription}?type=QUEUE", None),
            ("POST", f"{subscription}/skip-all", None),
            ("POST", f"{topic}/autoScalePolicy", {"maxSegments": 3}),
            ("POST", f"{topic}/permissions/{escaped(role)}", ["consume"]),
            ("GET", f"{topic}/segments/0/stats", None),
            ("GET", f"{topic}/stats", None),
            ("GET", f"{topic}/locate?key={quote(name, safe='')}", None),
            ("POST", f"{topic}/split/0?preview=true", None),
        ):
            answer = ask(admin, method, path, body)
            assert answer.status_code in {200, 204}, (kind, method, path, answer.text)
        assert ask(admin, "GET", tenant).json()["adminRoles"] == [role], kind
        assert ask(admin, "GET", topic).json()["name"] == f"topic://{name}/{name}/{name}", kind
        assert ask(admin, "GET", topic).json()["properties"] == {name: name}, kind
        listed = ask(admin, "GET", f"{TOPICS}/{part}/{part}?property={quote(f'{name}={name}', safe='')}")
        if "=" not in name:  # the first one divides key and value
            assert listed.json() == [f"topic://{name}/{name}/{name}"], kind
        assert ask(admin, "GET", f"{NAMESPACES}/{part}").json() == [f"{name}/{name}"], kind
        subscriptions = ask(admin, "GET", f"{topic}/subscriptions").json()["subscriptions"]
        assert [each["name"] for each in subscriptions] == [name], kind
        figures = ask(admin, "GET", f"{TOPICS}-topics/{part}/{part}?search={quote(name, safe='')}")
        assert [each["name"] for each in figures.json()["topics"]] == [name], kind
        for path in (subscription, topic, namespace, tenant):
            assert ask(admin, "DELETE", path).status_code == 204, (kind, path)
        assert name not in ask(admin, "GET", TENANTS).json(), kind


@pytest.mark.slow
def test_names_that_cannot_be_are_refused_at_every_place(admin: httpx.Client) -> None:
    for kind, name in REFUSED.items():
        part = escaped(name)
        for path in (
            f"{TENANTS}/{part}",
            f"{NAMESPACES}/public/{part}",
            f"{TOPICS}/public/default/{part}",
            f"{TOPICS}/public/default/orders/subscriptions/{part}",
        ):
            for method in ("PUT", "DELETE"):
                answer = ask(admin, method, path)
                assert (answer.status_code, answer.json()["code"]) == (400, "invalid_name"), (kind, path)
                assert answer.headers["Content-Type"].startswith("application/json")
    assert ask(admin, "GET", f"{TOPICS}/public/default").json() == []


@pytest.mark.parametrize("part", ["%ff", "%C3%28", "%ED%A0%80", "a%2Fb", "a%2fb"])
def test_what_would_become_another_name_is_refused(admin: httpx.Client, part: str) -> None:
    answer = ask(admin, "PUT", f"{TOPICS}/public/default/{part}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_name")
    assert ask(admin, "GET", f"{TOPICS}/public/default").json() == []


@pytest.mark.parametrize("query", ["key=%FF", "key=a&at=%C3%28", "%ff=1", "key=%ED%A0%80"])
def test_a_query_that_would_become_another_text_is_refused(admin: httpx.Client, query: str) -> None:
    orders = f"{TOPICS}/public/default/orders"
    ask(admin, "PUT", orders)
    answer = ask(admin, "GET", f"{orders}/locate?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")
    assert answer.json()["fields"]["parameter"] in {"key", "at", "\ufffd"}
    assert ask(admin, "GET", f"{orders}/locate?key=%EF%BF%BD").status_code == 200  # that very character


def test_a_quoted_slash_opens_no_other_door(admin: httpx.Client) -> None:
    """Resolved, the path would delete the subscription of another topic than the one that is meant."""
    orders = f"{TOPICS}/public/default/orders"
    ask(admin, "PUT", orders)
    ask(admin, "PUT", f"{orders}/subscriptions/s")
    assert ask(admin, "DELETE", f"{orders}%2Fsubscriptions%2Fs").status_code == 400
    assert len(ask(admin, "GET", f"{orders}/subscriptions").json()["subscriptions"]) == 1


@pytest.mark.parametrize(
    "path",
    ["topics/public/%ff", "topics/public%2fdefault", "lookup/public/default/%C3%28", "queue/a/b/c%2Fd"],
)
async def test_sockets_refuse_what_would_become_another_name(live_node: LiveNode, path: str) -> None:
    address = f"{live_node.socket_url}/ws/v2/scalable/{path}"
    with pytest.raises(InvalidStatus) as refusal:
        await connect(address, additional_headers=live_node.headers, proxy=None)
    answer = refusal.value.response
    assert (answer.status_code, json.loads(answer.body)["code"]) == (400, "invalid_name")
