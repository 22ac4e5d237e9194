"""Doors and sockets are for the hosts of a node, are told of exactly one, and share no connection."""

import asyncio

from tests.api.unfinished import Begun, ends_of
from tests.processes import LiveNode, ProcessFactory

OTHER = "elsewhere.example"
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def request(path: str, hosts: tuple[str, ...], headers: dict[str, str], *, version: str = "1.1") -> Begun:
    """A whole request with a `Host` for each of the hosts."""
    fields = [*(("Host", host) for host in hosts), *headers.items()]
    lines = [f"GET {path} HTTP/{version}", *(f"{name}: {value}" for name, value in fields), "", ""]
    return Begun("\r\n".join(lines).encode())


def test_a_request_names_one_host_of_the_node(live_node: LiveNode) -> None:
    own = live_node.url.removeprefix("http://")
    wrong = [(), ("",), (OTHER,), (own, own), (own, OTHER), (OTHER, own), (f"{own},{OTHER}",)]
    doors = {
        "/livez": {"Connection": "close"},
        "/admin/v2/tenants": {**live_node.headers, "Connection": "close"},
        "/ws/v2/scalable/topics/public/default": {**live_node.headers, **UPGRADE},
        "/ws/v2/scalable/lookup/public/default/none": {**live_node.headers, **UPGRADE},
    }
    begun = {
        f"{path} for {hosts}": request(path, hosts, headers)
        for path, headers in doors.items()
        for hosts in wrong
    }
    ends = asyncio.run(ends_of(live_node, begun))
    assert {name: end.statuses for name, end in ends.items()} == dict.fromkeys(begun, (400,))


def test_a_request_of_the_old_protocol_need_name_no_host(live_node: LiveNode) -> None:
    begun = {"probe": request("/livez", (), {}, version="1.0")}
    assert asyncio.run(ends_of(live_node, begun))["probe"].statuses == (200,)


def test_a_socket_does_not_begin_before_what_was_asked_first_is_answered(processes: ProcessFactory) -> None:
    node = processes.node(SCALABLE_REQUEST_HEAD_SECONDS="0.5")
    own = (node.url.removeprefix("http://"),)
    first = request("/admin/v2/tenants", own, node.headers)
    socket = request("/ws/v2/scalable/topics/public/default", own, {**node.headers, **UPGRADE})
    ends = asyncio.run(ends_of(node, {"both": Begun(first.sent + socket.sent)}))
    assert ends["both"].statuses == (200, 404)


def test_who_names_no_host_of_the_node_leaves_a_line_in_its_log(live_node: LiveNode) -> None:
    asyncio.run(ends_of(live_node, {"stranger": request("/livez", (), {"Connection": "close"})}))
    told = live_node.process.log.tail(20)
    assert not [line for line in told.splitlines() if "ERROR" in line or "Traceback" in line]
