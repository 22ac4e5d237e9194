"""Every WebSocket door of a node, all under `/ws/v2/scalable/`."""

from typing import Any

from channels.routing import URLRouter
from django.urls import path

websocket_urlpatterns: list[Any] = [
    path("ws/v2/scalable/", URLRouter([])),
]
