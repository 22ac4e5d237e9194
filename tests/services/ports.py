"""The data planes that services are tested on."""

from collections.abc import Callable

from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.memory import MemorySegments
from scalable.segments.port import SegmentPort

PORTS: dict[str, Callable[[], SegmentPort]] = {"embedded": EmbeddedSegments, "external": MemorySegments}
