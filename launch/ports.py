"""TCP ports, on the loopback interface unless another address of this machine is named."""

import socket

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


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
