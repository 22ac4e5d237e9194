"""Every WebSocket door of a node, all under `/ws/v2/scalable/`."""

from typing import Any

from django.conf import settings
from django.urls import path, re_path

from scalable.api.errors import no_such_path
from scalable.api.sockets.base import Socket
from scalable.api.sockets.consume import ConsumeSocket
from scalable.api.sockets.controller import ControllerSocket
from scalable.api.sockets.handshake import deny
from scalable.api.sockets.lookup import LookupSocket
from scalable.api.sockets.namespace_watch import NamespaceWatchSocket
from scalable.api.sockets.produce import ProduceSocket
from scalable.api.sockets.queue import QueueSocket

ROOT = "ws/v2/scalable"
NAMESPACE = "<str:tenant>/<str:namespace>"
TOPIC = f"{NAMESPACE}/<str:topic>"


def door(route: str, socket: type[Socket]) -> Any:
    """A socket at a path below the root; to the type checker, `path` leads to views alone."""
    application: Any = socket.as_asgi()
    return path(f"{ROOT}/{route}", application)


async def no_door(scope: Any, receive: Any, send: Any) -> None:
    """Turn away whoever knocks where no socket is."""
    await receive()
    await deny(scope, send, no_such_path(scope["path"]))


def _elsewhere() -> Any:
    application: Any = no_door
    return re_path("", application)


doors: list[Any] = [
    door(f"lookup/{TOPIC}", LookupSocket),
    door(f"topics/{NAMESPACE}", NamespaceWatchSocket),
    door(f"produce/{TOPIC}", ProduceSocket),
    door(f"consume/{TOPIC}/<str:subscription>", ConsumeSocket),
    door(f"queue/{TOPIC}/<str:subscription>", QueueSocket),
    door(f"controller/{TOPIC}/<str:subscription>", ControllerSocket),
]
websocket_urlpatterns = [*(doors if settings.SCALABLE_TOPICS_ENABLED else ()), _elsewhere()]
