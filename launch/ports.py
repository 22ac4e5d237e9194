"""TCP ports, on the loopback interface unless another address of this machine is named."""

import errno
import socket
import sys

HOST = "127.0.0.1"


def is_free(port: int, host: str = HOST) -> bool:
    """Tell whether nobody listens on `port` now; another process may take it at once."""
    with socket.socket(_family(host)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(preferred: int = 0, host: str = HOST) -> int:
    """Return `preferred` when it is free, else a free port of the system's choice."""
    if preferred and is_free(preferred, host):
        return preferred
    with socket.socket(_family(host)) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
    return port


class HeldPorts:
    """Ports of one instance, held against others on this machine until `release`: nobody listens on them yet.

    Else two that start at once would choose the same one, and each would take the node of the first for its
    own; and one that starts while a node restarts would take its port. They are held by names that end with
    this process, which Linux alone has: elsewhere a port is only looked at.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._names: list[socket.socket] = []

    def take(self, port: int) -> bool:
        """Hold a port if it is free and no other instance holds it."""
        return is_free(port, self._host) and (sys.platform != "linux" or self._hold(port))

    def take_free(self, preferred: int) -> int:
        """Hold `preferred` when it can be had, else a free port of the system's choice."""
        port = preferred
        while not port or not self.take(port):
            port = free_port(host=self._host)
        return port

    def release(self) -> None:
        """Let others have the ports; safe to repeat."""
        while self._names:
            self._names.pop().close()

    def _hold(self, port: int) -> bool:
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0scalable-topics {self._host}:{port}")
        except OSError as error:
            name.close()
            return error.errno != errno.EADDRINUSE  # where there are no such names nothing is held
        self._names.append(name)
        return True


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
