"""Sends answers: nobody who reads slowly, or is gone, keeps a connection to the database."""

import logging
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections

from scalable.api.limits import Application, Message, Receive, Send

logger = logging.getLogger(__name__)


class FreeAnswers:
    """An ASGI application around Django, which gives its connections back only after the answer was taken."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        await self._application(scope, receive, _Answer(send).send)


class _Answer:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_lost = False

    async def send(self, message: Message) -> None:
        """Pass a message on; one that nobody takes any more is thrown away.

        Django, whose task this is, would end by the error without giving back what it holds.
        """
        if message["type"] == "http.response.start":
            await sync_to_async(close_old_connections)()  # in the thread in which the view ran
        if self._is_lost:
            return
        try:
            await self._send(message)
        except (OSError, RuntimeError) as error:  # uvloop says the latter of a transport that is closed
            logger.info("an answer was not taken: %s", error)
            self._is_lost = True
