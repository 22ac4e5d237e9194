"""TCP ports on the loopback interface."""

import socket

HOST = "127.0.0.1"


def is_free(port: int) -> bool:
    """Tell whether nobody listens on `port` now; another process may take it at once."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port(preferred: int = 0) -> int:
    """Return `preferred` when it is free, else a free port of the system's choice."""
    if preferred and is_free(preferred):
        return preferred
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return port
