"""The port in memory keeps the promises of all ports."""

import pytest

from scalable.segments.memory import MemorySegments
from scalable.segments.port import SegmentPort
from tests.segments.suite import SegmentSuite


class TestMemory(SegmentSuite):
    histories = 250
    claim_histories = 400

    @pytest.fixture
    def port(self, memory_port: MemorySegments) -> SegmentPort:
        return memory_port
