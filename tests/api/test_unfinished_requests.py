"""A node waits for the head and the body of a request for a while, for whomever, and frees what it held."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx

from launch.ports import free_port
from launch.sandbox import token
from launch.services import server_argv, web_spec
from launch.tls import Tls
from scalable.wire.tls import client_context
from tests.api.peers import socket
from tests.api.unfinished import WAIT_SECONDS, Begun, callers, end_of, ends_of, head
from tests.faults.waiting import until
from tests.launch.test_tls import LOCAL, Authority
from tests.processes import LiveNode, ProcessFactory

TOPIC = "/admin/v2/scalable/public/default/slow"
PUT = f"PUT {TOPIC}"
HOST = {"Host": "127.0.0.1"}
SHORT = "1"
LONG = "60"
MANY = 50

PROBE = head("GET /livez", **HOST) + b"\r\n"
HEADS = {
    "nothing": Begun(b""),
    "half a line": Begun(b"GET /li"),
    "half a header": Begun(head("GET /livez") + b"Host: 127"),
    "no end": Begun(head("GET /livez", **HOST)),
    "headers that drip": Begun(head("GET /livez", **HOST), b"X-A: b\r\n"),
    "one header that drips": Begun(head("GET /livez", **HOST) + b"X-A: ", b"b"),
    "empty lines that drip": Begun(b"\r\n", b"\r\n"),
    "half a handshake": Begun(head("GET /ws/v2/scalable/topics/public/default", **HOST, Upgrade="websocket")),
}


def announced(line: str = PUT, **headers: str) -> bytes:
    """A whole head of a request with a body of some length."""
    return head(line, **HOST, **headers, Content_Length="400") + b"\r\n"


def in_chunks(**headers: str) -> bytes:
    """A whole head of a request with a body in chunks."""
    return head(PUT, **HOST, **headers, Transfer_Encoding="chunked") + b"\r\n"


def bodies(**headers: str) -> dict[str, Begun]:
    """Bodies that have no end."""
    return {
        "nothing": Begun(announced(**headers)),
        "a part": Begun(announced(**headers) + b"{"),
        "a body that drips": Begun(announced(**headers) + b"{", b" "),
        "no chunk": Begun(in_chunks(**headers)),
        "half a chunk": Begun(in_chunks(**headers) + b"20\r\n{"),
        "chunks that drip": Begun(in_chunks(**headers) + b"1\r\n{\r\n", b"1\r\n \r\n"),
        "a trailer that drips": Begun(in_chunks(**headers) + b"2\r\n{}\r\n0\r\nX-A: ", b"b"),
    }


def test_a_head_that_has_no_end_is_not_awaited(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_REQUEST_HEAD_SECONDS=SHORT)
    ends = asyncio.run(ends_of(node, HEADS))
    assert {name: end.answer for name, end in ends.items()} == dict.fromkeys(HEADS, b"")
    assert min(end.seconds for end in ends.values()) >= float(SHORT)
    behind = {name: Begun(PROBE + begun.sent, begun.dripped) for name, begun in HEADS.items()}
    statuses = {name: end.statuses for name, end in asyncio.run(ends_of(node, behind)).items()}
    assert statuses == dict.fromkeys(HEADS, (200,))


def test_a_head_without_bounds_is_refused(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_REQUEST_HEAD_SECONDS=LONG, SCALABLE_REQUEST_BODY_SECONDS=LONG)
    much = b"x" * 40_000
    authorized = in_chunks(**node.headers)
    flood = {
        "a line": Begun(b"GET /", much),
        "a header": Begun(head("GET /livez", **HOST) + b"X-A: ", much),
        "headers": Begun(head("GET /livez", **HOST), b"X-A: " + much + b"\r\n"),
        "trailers": Begun(authorized + b"2\r\n{}\r\n0\r\n", b"X-A: " + much + b"\r\n"),
    }
    ends = asyncio.run(ends_of(node, flood))
    assert {name: end.statuses for name, end in ends.items()} == dict.fromkeys(flood, (400,))


def test_a_body_that_has_no_end_is_not_awaited(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_REQUEST_BODY_SECONDS=SHORT)
    known = bodies(**node.headers)
    ends = asyncio.run(ends_of(node, known))
    assert {name: (end.statuses, end.code) for name, end in ends.items()} == dict.fromkeys(
        known, ((408,), "body_too_slow")
    )
    assert min(end.seconds for end in ends.values()) >= float(SHORT)
    unsure = {
        "of some session": Begun(announced(Cookie=f"{cookie_name(node)}=who-knows") + b"{"),
        "of the login": Begun(announced("POST /login") + b"username=a"),
        "of nothing": Begun(announced("POST /nowhere") + b"{"),
    }
    statuses = {name: end.statuses for name, end in asyncio.run(ends_of(node, unsure)).items()}
    assert statuses == dict.fromkeys(unsure, (408,))
    assert is_missing(node)


def is_missing(node: LiveNode) -> bool:
    return httpx.get(node.url + TOPIC, headers=node.headers, trust_env=False).status_code == 404


def cookie_name(node: LiveNode) -> str:
    return f"scalable_session_{node.url.rpartition(':')[2]}"


def test_a_stranger_is_refused_before_any_body_is_there(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_REQUEST_HEAD_SECONDS=SHORT, SCALABLE_REQUEST_BODY_SECONDS=LONG)
    strangers = {
        "nobody": {},
        "a token of somebody else": {"Authorization": "Bearer a.b.c"},
        "two tokens": {"Authorization": f"Bearer {node.admin_token} {node.admin_token}"},
        "a bad token beside a session": {
            "Authorization": "bearer x",
            "Cookie": f"{cookie_name(node)}=who-knows",
        },
        "another cookie": {"Cookie": "other=1"},
        "another scheme": {"Authorization": "Basic YTpi"},
    }
    begun = {
        f"{name}: {kind}": body
        for name, headers in strangers.items()
        for kind, body in bodies(**headers).items()
    }
    ends = asyncio.run(ends_of(node, begun))
    assert {name: (end.statuses, end.code) for name, end in ends.items()} == dict.fromkeys(
        begun, ((401,), "unauthenticated")
    )


def test_a_stranger_who_sends_all_is_refused_and_may_go_on(live_node: LiveNode) -> None:
    with httpx.Client(base_url=live_node.url, trust_env=False) as client:
        for _ in range(2):
            answer = client.put(TOPIC, content=b" " * 1_000_000)
            assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        assert client.post(f"{TOPIC}/none/such/door/at/all", json={}).status_code == 404
        assert client.put(TOPIC, json={}, headers=live_node.headers).status_code == 204


def test_a_server_without_the_limits_says_so(
    processes: ProcessFactory, service_environment: dict[str, str]
) -> None:
    port = free_port()
    spec = web_spec(port=port, environment=service_environment)
    bare = replace(spec, argv=server_argv("scalable.asgi:application", port=port))
    told = "start the server with --http scalable.api.http_protocol:BoundedHttp"
    assert told in processes.run(bare).log.tail()
    assert told not in processes.node().process.log.tail()


async def steadily(size_bytes: int, *, bytes_per_second: int) -> AsyncIterator[bytes]:
    """A body of an empty object, in time."""
    yield b"{"
    for _ in range(0, size_bytes, bytes_per_second // 10):
        await asyncio.sleep(0.1)
        yield b" " * (bytes_per_second // 10)
    yield b"}"


def test_what_takes_long_and_is_not_unfinished_goes_on(processes: ProcessFactory) -> None:
    """Slow and steady bodies, waits for an operation (there is no worker), idle connections, sockets."""
    node = processes.node(
        SCALABLE_REQUEST_HEAD_SECONDS=SHORT,
        SCALABLE_REQUEST_BODY_SECONDS=SHORT,
        SCALABLE_OPERATION_WAIT_SECONDS="3",
    )

    async def scenario() -> None:
        async with (
            socket(node, "topics/public/default") as peer,
            httpx.AsyncClient(base_url=node.url, headers=node.headers, timeout=40, trust_env=False) as client,
        ):
            body = steadily(64_000, bytes_per_second=16_000)
            assert (await client.put(TOPIC, content=body)).status_code == 204
            assert (await client.post(f"{TOPIC}/split/0")).status_code == 202
            await asyncio.sleep(2 * float(SHORT))
            assert (await client.get(TOPIC)).status_code == 200
            async with asyncio.timeout(WAIT_SECONDS):
                await (await peer.connection.ping())

    asyncio.run(scenario())


def test_what_was_not_finished_leaves_nothing_behind(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_REQUEST_HEAD_SECONDS=SHORT, SCALABLE_REQUEST_BODY_SECONDS=SHORT)
    assert is_missing(node)

    async def scenario() -> None:
        begun = [*HEADS.values(), *bodies(**node.headers).values(), *bodies().values()]
        await asyncio.gather(*(end_of(node, begun[number % len(begun)]) for number in range(MANY)))

    asyncio.run(scenario())
    until(lambda: not callers(node), what="the end of all connections")


def test_encrypted_connections_have_the_same_limits(
    processes: ProcessFactory, service_environment: dict[str, str], tmp_path: Path
) -> None:
    authority = Authority(tmp_path, "authority")
    issued = authority.issue("node", *LOCAL)
    limits = {"SCALABLE_REQUEST_HEAD_SECONDS": SHORT, "SCALABLE_REQUEST_BODY_SECONDS": SHORT}
    port, tls = free_port(), Tls(issued.cert, issued.key)
    process = processes.run(web_spec(port=port, environment={**service_environment, **limits}, tls=tls))
    node = LiveNode(f"https://127.0.0.1:{port}", process, token("admin"), token("system"))
    begun = {"head": HEADS["headers that drip"], "body": bodies(**node.headers)["a body that drips"]}
    ends = asyncio.run(ends_of(node, begun, client_context(ca_file=str(authority.file))))
    assert (ends["head"].answer, ends["body"].statuses) == (b"", (408,))
