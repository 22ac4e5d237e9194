"""Both data planes, each with what a worker process needs to find it, and workers that can be struck."""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis

from launch.process import ManagedProcess, ProcessSpec
from launch.services import worker_spec
from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.registry import use_port
from tests.processes import ProcessFactory


@dataclass(frozen=True)
class Plane:
    """A data plane as this process and the workers see it."""

    port: EmbeddedSegments
    environment: dict[str, str]


@pytest.fixture(params=["embedded", "external"])
def plane(request: pytest.FixtureRequest, service_environment: dict[str, str]) -> Iterator[Plane]:
    """The data plane inside the metadata database, then one in a database of its own."""
    if request.param == "embedded":
        port, environment = EmbeddedSegments(), {}
    else:
        port = request.getfixturevalue("external_port")
        name = request.getfixturevalue("external_database")
        url = urlsplit(service_environment["DATABASE_URL"])._replace(path=f"/{name}")
        environment = {"SCALABLE_SEGMENTS_DATABASE_URL": urlunsplit(url)}
    with use_port(port):
        yield Plane(port, environment)


@pytest.fixture
def broker(redis_url: str) -> Iterator[redis.Redis]:
    """A connection to the Valkey that the workers use, for the words of struck drivers."""
    with redis.Redis.from_url(redis_url, socket_timeout=None) as client:
        yield client


@dataclass(frozen=True)
class Workers:
    """Starts workers that run `tests.faults.jobs`."""

    processes: ProcessFactory
    environment: dict[str, str]

    def prefork(self, *, children: int, **environment: str) -> ManagedProcess:
        """Start a worker each of whose drivers is a process of its own, struck without the others."""
        return self._start("prefork", children, environment)

    def threads(self, **environment: str) -> ManagedProcess:
        """Start a worker as the product does: a blow to one driver hits the whole of it."""
        return self._start("threads", 2, environment)

    def _start(self, pool: str, concurrency: int, environment: dict[str, str]) -> ManagedProcess:
        name = f"struck-{len(self.processes.processes)}"
        spec = worker_spec(
            environment={**self.environment, **environment}, name=name, concurrency=concurrency
        )
        replaced = {"tasks.app": "tests.faults.worker", "threads": pool}
        argv = tuple(replaced.get(part, part) for part in spec.argv)
        return self.processes.run(
            ProcessSpec(name=name, argv=argv, environment=spec.environment, ready=spec.ready)
        )


@pytest.fixture
def workers(processes: ProcessFactory, plane: Plane, service_environment: dict[str, str]) -> Workers:
    """Start workers on the test database and the data plane under test."""
    return Workers(processes, {**service_environment, **plane.environment})
