"""Who drives an operation."""

import os
import socket
import threading


def runner_name() -> str:
    """Name this thread of this process of this host, for the rows that show who holds a lease."""
    return f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"
