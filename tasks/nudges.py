"""Asks workers for tasks: a nudge may be lost, and the sweeps make up for it."""

import logging
from collections.abc import Sequence

from scalable.sender import Sender
from tasks.app import app

logger = logging.getLogger(__name__)

EXPIRES_SECONDS = 120
"""A nudge that waited for so long was repeated by the sweep meanwhile."""
MOST = 10_000
ANSWER_SECONDS = 2.0
"""A broker that hangs is given up for one nudge after so long."""

Nudge = tuple[str, str | int]
"""The task, and what it is about."""


class Nudges(Sender[Nudge]):
    """Queues tasks; a request whose change was committed does not wait for the broker."""

    def __init__(self) -> None:
        super().__init__("nudges", most=MOST, goodbye_seconds=2 * ANSWER_SECONDS)

    def reset(self) -> None:
        """Begin anew, over a connection of its own."""
        super().reset()
        options = {**app.conf.broker_transport_options, "socket_timeout": ANSWER_SECONDS}
        self._connection = app.connection_for_write(transport_options=options)

    def send(self, things: Sequence[Nudge]) -> None:
        """Queue what waits, until the broker fails, which is logged."""
        for done, (task, argument) in enumerate(things):
            try:
                self._queue(task, argument)
            except Exception as error:
                rest = len(things) - done - 1
                more = f", nor {rest} more" if rest else ""
                logger.warning("%s(%s) was not queued%s: %s", task, argument, more, error)
                return

    def _queue(self, task: str, argument: str | int) -> None:
        app.send_task(
            task,
            args=[argument],
            expires=EXPIRES_SECONDS,
            ignore_result=True,
            connection=self._connection,
        )


nudges = Nudges()
nudges.at_home()
