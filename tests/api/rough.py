"""A WebSocket peer on a plain socket, which sends what no library would."""

import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from scalable.wire.frames import PROTOCOL_VERSION, Hello
from tests.api.peers import ROOT
from tests.api.test_hosts import UPGRADE, request
from tests.processes import LiveNode

TEXT, BINARY, CONTINUATION, CLOSE, PING = 0x1, 0x2, 0x0, 0x8, 0x9
HELLO = msgspec.json.encode(Hello(protocol=PROTOCOL_VERSION))


def piece(opcode: int, data: bytes = b"", *, final: bool = True) -> bytes:
    """A frame of a client, with a mask of nothing."""
    size = len(data)
    length = bytes((0x80 | size,)) if size < 126 else bytes((0xFE, *size.to_bytes(2)))
    return bytes((0x80 * final | opcode,)) + length + bytes(4) + data


def handshake(node: LiveNode, path: str, headers: Mapping[str, str]) -> bytes:
    """The request for a socket."""
    place = urlsplit(node.url).netloc
    return request(f"{ROOT}/{path}", (place,), {**UPGRADE, **headers}).sent


def link_to(node: LiveNode, *, receive_bytes: int | None = None) -> socket.socket:
    """Connect, and take little of what comes."""
    place = urlsplit(node.url)
    link = socket.socket()
    if receive_bytes is not None:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    link.settimeout(20)
    link.connect((place.hostname, place.port))
    return link


def accepted(
    node: LiveNode, path: str, *, token: str | None = None, receive_bytes: int | None = None
) -> socket.socket:
    """Open a socket, as the superuser unless another token is given, and say hello."""
    link = link_to(node, receive_bytes=receive_bytes)
    link.sendall(handshake(node, path, {"Authorization": f"Bearer {token or node.admin_token}"}))
    assert link.recv(12) == b"HTTP/1.1 101"
    link.sendall(piece(TEXT, HELLO))
    return link


def code_at_the_end(link: socket.socket) -> int | None:
    """Read until the connection is closed; give the code of the close frame, None where there was none."""
    came = bytearray()
    try:
        while part := link.recv(65_536):
            came += part
    except ConnectionResetError:
        pass
    return _close_code(bytes(came).partition(b"\r\n\r\n")[2] if b"\r\n\r\n" in came else bytes(came))


def _close_code(frames: bytes) -> int | None:
    while frames:
        size, begin = frames[1], 2
        if size == 126:
            size, begin = int.from_bytes(frames[2:4]), 4
        if frames[0] == 0x80 | CLOSE:
            return int.from_bytes(frames[begin : begin + 2])
        frames = frames[begin + size :]
    return None
