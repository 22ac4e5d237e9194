"""A web node as an ASGI application: HTTP by Django, sockets by Channels, and the node's own work."""

import logging
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "scalable.settings")

from django.core.asgi import get_asgi_application

# Sets Django up, which the modules imported below need.
django_application = get_asgi_application()

from channels.routing import URLRouter  # noqa: E402
from django.conf import settings  # noqa: E402
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware  # noqa: E402

from scalable.api.answers import FreeAnswers  # noqa: E402
from scalable.api.limits import LimitedBodies  # noqa: E402
from scalable.api.node import node  # noqa: E402
from scalable.api.observing import Observed  # noqa: E402
from scalable.api.requests import Utf8Request  # noqa: E402
from scalable.api.sockets.routing import websocket_urlpatterns  # noqa: E402

HTTP_PROTOCOL = "scalable.api.http_protocol"
logger = logging.getLogger(__name__)

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

django_application.request_class = Utf8Request
http_application = Observed(LimitedBodies(FreeAnswers(django_application)))
socket_application = URLRouter(websocket_urlpatterns)
observed_socket_application = Observed(socket_application)  # type: ignore[arg-type]


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """The callable that the server runs."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
    elif scope["type"] == "websocket":
        await observed_socket_application(scope, receive, send)
    else:
        await http_application(scope, receive, send)


if settings.SCALABLE_BEHIND_PROXY:
    # Else `X-Forwarded-For` is what any caller says, who could be another address each time.
    application = ProxyHeadersMiddleware(application, settings.SCALABLE_PROXY_ADDRESSES)  # type: ignore[assignment,arg-type]


async def _live(receive: Receive, send: Send) -> None:
    await receive()
    if HTTP_PROTOCOL not in sys.modules:
        logger.warning(
            "Unfinished requests stay open: start the server with --http %s:BoundedHttp", HTTP_PROTOCOL
        )
    try:
        await node.start()
    except Exception as error:
        await send({"type": "lifespan.startup.failed", "message": repr(error)})
        raise
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await node.stop()
    await send({"type": "lifespan.shutdown.complete"})
