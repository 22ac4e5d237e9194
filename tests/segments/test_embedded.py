"""The segment log in PostgreSQL, in the metadata database and in a second one, keeps what ports promise."""

import pytest

from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.port import SegmentPort
from tests.segments.suite import SegmentSuite


class TestMetadataDatabase(SegmentSuite):
    @pytest.fixture
    def port(self, embedded_port: EmbeddedSegments) -> SegmentPort:
        return embedded_port


class TestSecondDatabase(SegmentSuite):
    @pytest.fixture
    def port(self, external_port: EmbeddedSegments) -> SegmentPort:
        return external_port
