"""The broker's transport, less a fault by which a worker ends when its broker dies under a task.

When the connection is lost, kombu (5.7) takes a channel's address from it before the channel gives back, or
acknowledges, what it holds. That is then no error of the connection, which is survived, but an
AttributeError, by which the worker ends.
"""

from typing import Any

import redis
from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.redis import Channel, Transport


class LastingChannel(Channel):
    """A channel that says that its connection is closed when it is.

    What it held comes again after the visibility time-out; until then the sweeps ask for what waits.
    """

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        if getattr(self.connection, "client", None) is None:
            raise redis.ConnectionError("the connection to the broker is closed")
        parameters: dict[str, Any] = super()._connparams(asynchronous)  # type: ignore[misc]
        return parameters


class LastingTransport(Transport):
    """Redis, with such channels."""

    Channel = LastingChannel


def use_lasting_transport() -> None:
    """Make this the transport of Redis' addresses."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{LastingTransport.__name__}"
