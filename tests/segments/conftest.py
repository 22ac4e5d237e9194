"""Ports for the suite of the data plane port (the one on a second database is `external_port`)."""

from collections.abc import Iterator

import pytest

from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.memory import MemorySegments
from tests.segments.samples import remove_samples


@pytest.fixture
def embedded_port(transactional_db: None) -> Iterator[EmbeddedSegments]:
    """Return the port on the metadata database, whose tables the migrations made."""
    port = EmbeddedSegments()
    yield port
    remove_samples(port)


@pytest.fixture
def memory_port() -> MemorySegments:
    """Return the port in memory."""
    return MemorySegments()
