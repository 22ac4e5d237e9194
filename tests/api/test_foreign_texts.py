"""Whatever a stranger writes into a head or a form is refused or passed over; nothing fails or is traced."""

import asyncio

import pytest

from tests.api.unfinished import Begun, all_told, end_of, ends_of, head
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


CONTENT_TYPES = [
    *(f"{{type}}; charset={name}" for name in ("unicode_escape", "utf-7", "hex", "idna", "undefined")),
    "{type}; charset*=UTF-8''%00",
    "{type}; charset*=hex''utf-8",
    "{type}; charset*=nonsense''utf-8",
    "{type}; a*0=x; a*=y",
    "{type}; a*" + "9" * 5_000 + "=x",
    "{type}; boundary*=undefined''b",
]
READS = ["/login?next=%5Cud800", f"{DOOR}?property=a=%5Cud800", "/admin/v2/scalable-topics/a/b?search=%5Cx00"]


@pytest.mark.parametrize("shape", ["text/plain", "multipart/form-data; boundary=b"])
def test_no_content_type_makes_other_texts_of_a_query(live_node: LiveNode, shape: str) -> None:
    wanted = dict.fromkeys(READS, (200,)) | {READS[2]: (404,)}
    bearer = f"Authorization: {live_node.headers['Authorization']}"
    for content_type in CONTENT_TYPES:
        header = f"{bearer}\r\nContent-Type: {content_type.format(type=shape)}"
        begun = {path: knock(live_node, "GET", path, header) for path in READS}
        ends = asyncio.run(ends_of(live_node, begun))
        assert {path: end.statuses for path, end in ends.items()} == wanted, content_type
    assert_calm(live_node)


FIELD = 'Content-Disposition: form-data; name="username"'
PARTS = {
    "a surrogate": f"{FIELD}\r\n\r\n\\ud800",
    "NUL": f"{FIELD}\r\n\r\na\x00b",
    "parameters that cannot be ordered": f"{FIELD}; a*0=x; a*=y\r\n\r\nada",
    "a parameter of a large number": f"{FIELD}; a*{'9' * 4_500}=x\r\n\r\nada",
    "a parameter of no charset": f"{FIELD}; filename*=undefined''x\r\n\r\nada",
    "a parameter of an odd charset": f"{FIELD}; filename*=hex''x\r\n\r\nada",
}


def form(node: LiveNode, path: str, content_type: str, part: str) -> Begun:
    """A form of one part."""
    body = f"--b\r\n{part}\r\n--b--\r\n".encode()
    own, length = node.url.removeprefix("http://"), str(len(body))
    fields = {"Host": own, "Connection": "close", "Content_Type": content_type, "Content_Length": length}
    return Begun(head(f"POST {path}", **fields) + b"\r\n" + body)


def test_no_form_fails(live_node: LiveNode) -> None:
    shape = "multipart/form-data; boundary=b"
    for kind, part in PARTS.items():
        for content_type in [shape, *(text.format(type=shape) for text in CONTENT_TYPES)]:
            begun = {path: form(live_node, path, content_type, part) for path in ("/login", "/logout")}
            ends = asyncio.run(ends_of(live_node, begun))
            assert all(_is_sound(end.statuses) for end in ends.values()), (kind, content_type)
    assert_calm(live_node)


async def knock_everywhere(node: LiveNode, header: str) -> list[str]:
    """Knock with a header at every place, and tell which of them failed."""
    begun = {f"{method} {path}": knock(node, method, path, header) for method, path in PLACES}
    ends = await ends_of(node, begun)
    return [f"{place}: {end.statuses}" for place, end in ends.items() if not _is_sound(end.statuses)]


def assert_calm(node: LiveNode) -> None:
    """The log of a node, which ends by this, tells of no error."""
    assert not [line for line in all_told(node).splitlines() if "ERROR" in line or "Traceback" in line]


def _is_sound(statuses: tuple[int, ...]) -> bool:
    return len(statuses) == 1 and 200 <= statuses[0] < 500


@pytest.mark.slow
def test_no_text_of_a_head_fails_anywhere(live_node: LiveNode) -> None:
    port = live_node.url.rpartition(":")[2]
    for header in HEADERS:
        for kind, text in TEXTS.items():
            failed = asyncio.run(knock_everywhere(live_node, header.format(port=port, text=text)))
            assert not failed, (header, kind)
    assert_calm(live_node)


def test_a_session_with_a_key_that_none_has_is_none(live_node: LiveNode) -> None:
    port = live_node.url.rpartition(":")[2]
    cookie = rf'Cookie: scalable_session_{port}="\000abcdefghij"'
    for place, status in (("/admin/v2/tenants", 401), ("/topics", 302), ("/login", 200), (SOCKET, 401)):
        end = asyncio.run(end_of(live_node, knock(live_node, "GET", place, cookie)))
        assert end.statuses == (status,), place
