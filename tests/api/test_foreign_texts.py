"""Whatever a stranger writes into a head or a form is refused or passed over; nothing fails or is traced."""

import asyncio

import pytest

from tests.api.unfinished import Begun, end_of, ends_of, head
from tests.processes import LiveNode

DOOR = "/admin/v2/scalable/public/default"
SOCKET = "/ws/v2/scalable/lookup/public/default/none"
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
PLACES = [
    ("GET", DOOR),
    ("PUT", f"{DOOR}/none"),
    ("GET", "/admin/v2/elsewhere"),
    ("GET", "/openapi.json"),
    ("GET", "/"),
    ("GET", "/topics/public/default"),
    ("GET", "/manage/"),
    ("GET", "/login"),
    ("POST", "/login"),
    ("POST", "/logout"),
    ("GET", "/livez"),
    ("GET", SOCKET),
]
TEXTS = {
    "a quoted NUL": r'"\000abcdefghij"',
    "another in the midst": r'"abcdef\000ghij"',
    "quoted bytes that are no UTF-8": r'"\377\376abcdefgh"',
    "an escaped NUL": "abcd%00efghij",
    "a surrogate": r'"\ud800abcdefgh"',
    "half of a surrogate in UTF-8": r'"\355\240\200abcdefgh"',
    "other letters": "äöüßéèabcd",
    "many letters": "a" * 5_000,
    "a key of 41 letters": "a" * 41,
    "a key that nobody has": "a" * 32,
    "nothing": "",
}
HEADERS = [
    "Cookie: scalable_session_{port}={text}",
    "Cookie: csrftoken={text}",
    "Cookie: messages={text}",
    "X-CSRFToken: {text}",
    "X-Request-Id: {text}",
    "Authorization: Bearer {text}",
    "Authorization: {text}",
    "Idempotency-Key: {text}",
    "X-Forwarded-For: {text}",
    "Referer: {text}",
    "User-Agent: {text}",
    "Accept-Language: {text}",
]


def knock(node: LiveNode, method: str, path: str, header: str) -> Begun:
    """A request with a header more, written as it is."""
    own = node.url.removeprefix("http://")
    ends = {**UPGRADE, "Origin": node.url} if path == SOCKET else {"Connection": "close"}
    lines = head(f"{method} {path}", Host=own, **ends, Content_Length="0")
    return Begun(lines + f"{header}\r\n\r\n".encode())


async def knock_everywhere(node: LiveNode, header: str) -> list[str]:
    """Knock with a header at every place, and tell which of them failed."""
    begun = {f"{method} {path}": knock(node, method, path, header) for method, path in PLACES}
    ends = await ends_of(node, begun)
    return [f"{place}: {end.statuses}" for place, end in ends.items() if not _is_sound(end.statuses)]


def _is_sound(statuses: tuple[int, ...]) -> bool:
    return len(statuses) == 1 and 200 <= statuses[0] < 500


@pytest.mark.slow
def test_no_text_of_a_head_fails_anywhere(live_node: LiveNode) -> None:
    port = live_node.url.rpartition(":")[2]
    for header in HEADERS:
        for kind, text in TEXTS.items():
            failed = asyncio.run(knock_everywhere(live_node, header.format(port=port, text=text)))
            assert not failed, (header, kind)
    told = live_node.process.log.tail(5_000)
    assert not [line for line in told.splitlines() if "ERROR" in line or "Traceback" in line]


def test_a_session_with_a_key_that_none_has_is_none(live_node: LiveNode) -> None:
    port = live_node.url.rpartition(":")[2]
    cookie = rf'Cookie: scalable_session_{port}="\000abcdefghij"'
    for place, status in (("/admin/v2/tenants", 401), ("/topics", 302), ("/login", 200), (SOCKET, 401)):
        end = asyncio.run(end_of(live_node, knock(live_node, "GET", place, cookie)))
        assert end.statuses == (status,), place
