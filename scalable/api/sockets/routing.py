"""Every WebSocket door of a node, all under `/ws/v2/scalable/`."""

from typing import Any

from django.urls import path

from scalable.api.sockets.base import Socket
from scalable.api.sockets.consume import ConsumeSocket
from scalable.api.sockets.controller import ControllerSocket
from scalable.api.sockets.lookup import LookupSocket
from scalable.api.sockets.produce import ProduceSocket

ROOT = "ws/v2/scalable"
TOPIC = "<str:tenant>/<str:namespace>/<str:topic>"


def door(route: str, socket: type[Socket]) -> Any:
    """A socket at a path below the root; to the type checker, `path` leads to views alone."""
    application: Any = socket.as_asgi()
    return path(f"{ROOT}/{route}", application)


websocket_urlpatterns: list[Any] = [
    door(f"lookup/{TOPIC}", LookupSocket),
    door(f"produce/{TOPIC}", ProduceSocket),
    door(f"consume/{TOPIC}/<str:subscription>", ConsumeSocket),
    door(f"controller/{TOPIC}/<str:subscription>", ControllerSocket),
]
