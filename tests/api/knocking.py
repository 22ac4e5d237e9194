"""A typed face of asgiref's communicator: speaks ASGI to an application inside this process."""

from collections.abc import Awaitable, Callable
from typing import Any

from asgiref.testing import ApplicationCommunicator

Message = dict[str, Any]
Application = Callable[[Any, Any, Any], Awaitable[None]]


class Session:
    """One connection to an ASGI application."""

    def __init__(self, application: Application, scope: Message) -> None:
        self._communicator: Any = ApplicationCommunicator(application, scope)  # type: ignore[no-untyped-call]

    async def send(self, **message: object) -> None:
        """Send a message to the application."""
        await self._communicator.send_input(message)

    async def receive(self, timeout_seconds: float = 10) -> Message:
        """The next message of the application."""
        message: Message = await self._communicator.receive_output(timeout_seconds)
        return message

    async def ended(self, timeout_seconds: float = 15) -> None:
        """Wait until the application has returned; raises what it raised."""
        await self._communicator.wait(timeout_seconds)


def socket_scope(path: str, *, headers: dict[str, str], subprotocols: list[str]) -> Message:
    """The scope of a WebSocket handshake, for this machine unless the headers name another host."""
    address, _, query = path.partition("?")
    headers = {"host": "localhost", **headers}
    return {
        "type": "websocket",
        "path": address,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "subprotocols": subprotocols,
    }
