"""Starts Python programs of the product as forks of a process that has imported the libraries already.

The tests start more than a thousand web nodes and workers, and each would spend most of its start on the same
imports. What is imported here knows nothing of settings or of the environment; all that does is imported by
the fork, which is a process of its own in every other way (session, environment, descriptors, signals).

Run as a module. On its standard input, a socket, come requests: the length of a JSON object in 4 bytes, with
a descriptor for the output of the program, and the object: `argv` (after `python -m`), `environment` and
`directory`. The answer is the number of the process, 4 bytes. It is nobody's child here: whoever asked
adopts it (`tests/warm_processes.py`).
"""

import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import sys
import warnings
from typing import Any, NoReturn

LIBRARIES = (
    *("asgiref.sync", "celery", "celery.apps.beat", "celery.apps.worker", "celery.bin.celery"),
    *("celery.concurrency.thread", "channels.generic.websocket", "cryptography.x509", "django"),
    *("django.contrib.admin", "django.contrib.sessions.backends.db", "django.contrib.staticfiles.finders"),
    *("django.core.asgi", "django.db.backends.postgresql.base", "django.db.models", "django.forms"),
    *("django.template.backends.django", "django.urls", "django.utils.log", "django.views.generic"),
    *("email.mime.text", "httptools", "jwt", "kombu.transport.redis", "msgspec", "prometheus_client"),
    *("psycopg", "psycopg_pool", "redis.asyncio", "requests", "rest_framework.serializers", "sqlparse"),
    *("uvicorn.main", "uvicorn.protocols.http.httptools_impl", "uvloop", "whitenoise.middleware", "yaml"),
    *("zoneinfo", "zstandard"),
)
PURE = ("scalable.domain", "scalable.wire")


def main() -> None:
    """Import, then fork until whoever started this one is gone."""
    _import()
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=os.dup(sys.stdin.fileno())) as starter:
        while request := _received(starter):
            message, output = request
            if pid := _forked(starter):
                os.close(output)
                starter.sendall(pid.to_bytes(4, "big"))
                continue
            starter.close()
            _become(message, output)


def _import() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for name in LIBRARIES:
            importlib.import_module(name)
    for name in PURE:
        package = importlib.import_module(name)
        for found in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(found.name)


def _received(starter: socket.socket) -> tuple[Any, int] | None:
    """Take one request, which comes with its length and its descriptor."""
    head, descriptors, _, _ = socket.recv_fds(starter, 4, 1)
    if not head:
        return None
    size, body = int.from_bytes(head, "big"), b""
    while len(body) < size:
        more = starter.recv(size - len(body))
        if not more:
            return None
        body += more
    return json.loads(body), descriptors[0]


def _forked(starter: socket.socket) -> int:
    """Fork twice, so that the program is left without a parent; give its number, or 0 in the program."""
    reader, writer = os.pipe()
    if (between := os.fork()) == 0:
        if (pid := os.fork()) == 0:
            os.close(reader)
            os.close(writer)
            return 0
        os.write(writer, pid.to_bytes(4, "big"))
        os._exit(0)
    os.close(writer)
    pid = int.from_bytes(os.read(reader, 4), "big")
    os.close(reader)
    os.waitpid(between, 0)
    return pid


def _become(message: Any, output: int) -> NoReturn:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, standard in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, standard)
    os.closerange(3, max(nothing, output) + 1)
    os.environ.clear()
    os.environ.update(message["environment"])
    os.chdir(message["directory"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.path[:1] = filter(None, [message["directory"], *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    module, *arguments = message["argv"]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit(0)


if __name__ == "__main__":
    main()
