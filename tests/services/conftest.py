"""Data planes inside the metadata database and outside it; somebody else's transaction."""

from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from scalable.segments.memory import MemorySegments
from scalable.segments.port import SegmentPort
from scalable.segments.registry import use_port
from tests.services.mortal import MortalSegments
from tests.services.ports import PORTS


@pytest.fixture(params=PORTS)
def port(request: pytest.FixtureRequest) -> Iterator[SegmentPort]:
    """The data plane inside the metadata database, then one outside it."""
    with use_port(PORTS[request.param]()) as chosen:
        yield chosen


@pytest.fixture
def external() -> Iterator[MemorySegments]:
    """A data plane outside the metadata database."""
    memory = MemorySegments()
    with use_port(memory):
        yield memory


@pytest.fixture
def mortal() -> Iterator[MortalSegments]:
    """A data plane outside the metadata database whose caller may die."""
    port = MortalSegments()
    with use_port(port):
        yield port


@pytest.fixture
def second_connection(transactional_db: None) -> Iterator[Callable[[str], None]]:
    """A connection of somebody else, with a transaction open."""
    other = connection.copy()
    other.set_autocommit(False)

    def execute(statement: str) -> None:
        with other.cursor() as cursor:
            cursor.execute(statement)

    yield execute
    other.close()
