"""How long things are kept: a setting of the topic over its namespace's over the instance's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

Value = TypeVar("Value")

FOR_EVER_SECONDS = -1
"""The retention with which nothing is ever deleted."""


class SettingSource(StrEnum):
    """Whose setting holds."""

    TOPIC = "topic"
    NAMESPACE = "namespace"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Resolved(Generic[Value]):
    """A setting that holds, and whose it is."""

    value: Value
    source: SettingSource


def resolve(topic: Value | None, namespace: Value | None, default: Value) -> Resolved[Value]:
    """Give the topic's setting over its namespace's over the default; None is unset, 0 is not."""
    if topic is not None:
        return Resolved(topic, SettingSource.TOPIC)
    if namespace is not None:
        return Resolved(namespace, SettingSource.NAMESPACE)
    return Resolved(default, SettingSource.DEFAULT)


def is_past_retention(retention_seconds: float, *, since_ms: int, now_ms: int) -> bool:
    """Tell whether what was finished at `since_ms` need not be kept any longer for its age.

    With 0 that is at once, with -1 never; the last instant of the retention counts as past it.
    """
    if retention_seconds < 0:
        return False
    return now_ms - since_ms >= retention_seconds * 1000
