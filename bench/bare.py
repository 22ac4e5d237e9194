"""The floor of fan-out: a bare ASGI application that sends one ready frame to every open socket.

`POST /push` sends, `GET /livez` answers. No framework, no queue, nothing read.
"""

import os
from collections.abc import Awaitable, Callable
from typing import Any

Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]

FRAME = "x" * int(os.environ.get("BARE_FRAME_BYTES", "1024"))

sockets: set[Send] = set()


async def application(scope: Any, receive: Receive, send: Send) -> None:
    """Serve one connection."""
    if scope["type"] == "websocket":
        await hold_socket(receive, send)
    elif scope["type"] == "http":
        await answer(scope, send)
    else:
        await live(receive, send)


async def hold_socket(receive: Receive, send: Send) -> None:
    """Keep a socket until its peer leaves."""
    await receive()
    await send({"type": "websocket.accept"})
    sockets.add(send)
    try:
        while (await receive())["type"] != "websocket.disconnect":
            pass
    finally:
        sockets.discard(send)


async def answer(scope: Any, send: Send) -> None:
    """Push when asked to, and say how it went."""
    if scope["path"] == "/push":
        message = {"type": "websocket.send", "text": FRAME}
        for send_to_socket in tuple(sockets):
            await send_to_socket(message)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def live(receive: Receive, send: Send) -> None:
    """Start and stop with the server."""
    for phase in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{phase}.complete"})
