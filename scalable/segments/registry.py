"""Which adapter keeps the segments: that of a second database where the settings name one."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.port import SegmentPort
from scalable.segments.schema import install_schema

EXTERNAL_ALIAS = "segments"
_overrides: list[SegmentPort] = []


def segment_port() -> SegmentPort:
    """Give the adapter of the settings: `embedded` (metadata database) or `external` (a second one)."""
    return _overrides[-1] if _overrides else _configured(settings.SCALABLE_SEGMENT_PORT)


@contextmanager
def use_port(port: SegmentPort) -> Iterator[SegmentPort]:
    """Let `segment_port` give another adapter to all threads, for tests."""
    _overrides.append(port)
    try:
        yield port
    finally:
        _overrides.remove(port)


@cache
def _configured(name: str) -> SegmentPort:
    if name == "embedded":
        return EmbeddedSegments()
    if name == "external" and EXTERNAL_ALIAS in connections:
        install_schema(connections[EXTERNAL_ALIAS])
        return EmbeddedSegments(using=EXTERNAL_ALIAS)
    raise ImproperlyConfigured(f"SCALABLE_SEGMENT_PORT {name!r} is unknown or has no database")
