"""How each process of the product is started; the supervisor, the tests and the benches all use these."""

import sys
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from celery import Celery
from kombu.exceptions import OperationalError
from redis import RedisError

from launch.addresses import HERE, Addresses
from launch.ports import HOST
from launch.process import ProcessSpec
from launch.tls import Tls
from spark.withheld import WITHHELD

SETTINGS = {"DJANGO_SETTINGS_MODULE": "scalable.settings", "PYTHONUNBUFFERED": "1"}
QUIET = ("--quiet",)
"""Celery greets with a picture, which is no line of a log."""


def server_argv(application: str, *, port: int, tls: Tls | None = None, host: str = HOST) -> tuple[str, ...]:
    """Give the command line of the ASGI server for an application.

    Frames are not compressed: a compressor for each socket costs more memory and processor than small frames
    are worth. Which address a caller has is what the application says (`scalable/asgi.py`).
    """
    return (
        *(sys.executable, "-m", "uvicorn", application, "--host", host, "--port", str(port)),
        *("--lifespan", "on", "--timeout-graceful-shutdown", "3", "--log-level", "info"),
        *("--no-access-log", "--no-proxy-headers", "--ws-per-message-deflate", "false"),
        *(tls.server_options if tls else ()),
    )


def node_argv(*, port: int, tls: Tls | None = None, host: str = HOST) -> tuple[str, ...]:
    """Give the command line of a web node, which lets no request be begun without an end."""
    server = server_argv("scalable.asgi:application", port=port, tls=tls, host=host)
    return (*server, "--http", "scalable.api.http_protocol:BoundedHttp")


def web_spec(
    *,
    port: int,
    environment: Mapping[str, str],
    name: str = "web",
    tls: Tls | None = None,
    addresses: Addresses = HERE,
) -> ProcessSpec:
    """Describe a web node that listens on `port`, encrypted or not; it is ready when `/livez` answers.

    Others reach it where it listens, unless `environment` names another address (SCALABLE_NODE_URL).
    """
    url = addresses.local_url(port, tls)
    return ProcessSpec(
        name=name,
        argv=node_argv(port=port, tls=tls, host=addresses.host),
        environment={
            **SETTINGS,
            "SCALABLE_NODE_URL": url,
            **(tls.environment() if tls else {}),
            **environment,
        },
        ready=lambda: serves(f"{url}/livez", tls),
    )


def worker_spec(*, environment: Mapping[str, str], name: str = "worker", concurrency: int = 4) -> ProcessSpec:
    """Describe a Celery worker; it is ready when it answers a ping.

    Its work waits for the database, so threads of one process do it: less memory, and a kill or a pause of
    the process is one of the whole worker.
    """
    return ProcessSpec(
        name=name,
        argv=(
            *(
                sys.executable,
                "-m",
                "celery",
                "-A",
                "tasks.app",
                *QUIET,
                "worker",
                "--hostname",
                f"{name}@{HOST}",
            ),
            *("--pool", "threads", "--concurrency", str(concurrency), "--loglevel", "INFO"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        ),
        environment={**SETTINGS, **environment},
        ready=lambda: _answers_ping(environment["REDIS_URL"], f"{name}@{HOST}"),
    )


def beat_spec(*, environment: Mapping[str, str], schedule: Path) -> ProcessSpec:
    """Describe Celery beat, which keeps its last runs in the file `schedule`."""
    return ProcessSpec(
        name="beat",
        argv=(
            *(sys.executable, "-m", "celery", "-A", "tasks.app", *QUIET, "beat", "--loglevel", "WARNING"),
            *("--pidfile", "", "--schedule", str(schedule)),
        ),
        environment={**SETTINGS, **environment},
    )


def reporter_spec(
    *, urls: Sequence[str], directory: Path, java: Mapping[str, str], tls: Tls | None = None
) -> ProcessSpec:
    """Describe the Spark job that turns load samples into load reports, for any of the nodes.

    It works through the public API alone: addresses and secrets of the servers behind it are withheld.
    """
    return ProcessSpec(
        name="spark",
        argv=(
            *(sys.executable, "-m", "spark.load_report", "--url", ",".join(urls)),
            *("--token-file", str(directory / "system-token")),
            *("--directory", str(directory / "spark" / "load-report")),
        ),
        environment={
            "PYTHONUNBUFFERED": "1",
            **java,
            **(tls.environment() if tls else {}),
        },
        withheld=tuple(WITHHELD),
        stop_timeout_seconds=5,  # a job that is killed resumes from its checkpoint
    )


def serves(url: str, tls: Tls | None = None) -> bool:
    """Tell whether an address answers 200."""
    try:
        with urllib.request.urlopen(url, timeout=2, context=tls.context if tls else None) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def _answers_ping(redis_url: str, hostname: str) -> bool:
    # The same key prefix as in the product's settings; those are not loaded here, since this process serves
    # nothing.
    with Celery(broker=redis_url, set_as_current=False) as app:
        app.conf.broker_transport_options = {"global_keyprefix": "scalable:celery:"}
        try:
            return bool(app.control.ping(destination=[hostname], timeout=0.5, limit=1))
        except (OperationalError, RedisError):
            return False
