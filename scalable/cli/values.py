"""What is typed at the command line: names, properties, spans of time, points in time, starts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Any

import click

from scalable.domain.checkpoint import Checkpoint, checkpoint_from_text
from scalable.domain.errors import ScalableError
from scalable.domain.jobs import FIRST_DAY, parse_day
from scalable.domain.json_names import unique_names
from scalable.domain.json_text import load_shallow_json
from scalable.domain.names import SEGMENT_SCHEME, TOPIC_SCHEME, NamespaceName, SegmentName, TopicName

UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
ORDINARY_SCHEME = "persistent://"
LONGEST_SPAN_SECONDS = 100 * 366 * 86_400
LONGEST_TIMEOUT_SECONDS = 7 * 86_400.0
_SPAN = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[smhdw]?)", re.ASCII)


def is_text(value: str) -> bool:
    """Tell whether all of it can be written as UTF-8: a lone surrogate stands for what was no text."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class TopicType(click.ParamType[TopicName]):
    """`tenant/namespace/name`, with or without the scheme."""

    name = "topic"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicName:
        if isinstance(value, TopicName):
            return value
        try:
            return TopicName.parse(value if "://" in value else TOPIC_SCHEME + value)
        except ScalableError as error:
            self.fail(error.reason, param, ctx)


class OrdinaryTopicType(TopicType):
    """The same of an ordinary topic, whose scheme is another."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicName:
        plain = value.removeprefix(ORDINARY_SCHEME) if isinstance(value, str) else value
        return super().convert(value if "://" in plain and plain != value else plain, param, ctx)


class SegmentPlaceType(click.ParamType["TopicName | SegmentName"]):
    """The whole name of a segment, or its topic's."""

    name = "segment"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> TopicName | SegmentName:
        if not isinstance(value, str) or not value.startswith(SEGMENT_SCHEME):
            return TOPIC.convert(value, param, ctx)
        try:
            return SegmentName.parse(value)
        except ScalableError as error:
            self.fail(error.reason, param, ctx)


class TimeoutType(click.ParamType[float]):
    """Seconds that an operating system can wait; click's own range lets what is no number pass."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = click.FLOAT.convert(value, param, ctx)
        if not 0 < seconds <= LONGEST_TIMEOUT_SECONDS:
            self.fail(f"{value} is not above 0 and at most {LONGEST_TIMEOUT_SECONDS:g}", param, ctx)
        return seconds


class NamespaceType(click.ParamType[str]):
    """`tenant/namespace`."""

    name = "tenant/namespace"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value.count("/") != 1 or not all(value.split("/")):
            self.fail(f"{value!r} is not tenant/namespace", param, ctx)
        return str(value)


class ScopeType(click.ParamType["TopicName | NamespaceName | str"]):
    """`tenant`, `tenant/namespace` or `tenant/namespace/name`; where `tenants` is false no tenant alone."""

    def __init__(self, *, tenants: bool) -> None:
        self._tenants = tenants
        self.name = "scope" if tenants else "topic|tenant/namespace"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> TopicName | NamespaceName | str:
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        slashes = value.removeprefix(TOPIC_SCHEME).count("/")
        try:
            if slashes == 0 and self._tenants and value:
                return value
            return NamespaceName.parse(value) if slashes == 1 else TOPIC.convert(value, param, ctx)
        except ScalableError as error:
            self.fail(error.reason, param, ctx)


class PairType(click.ParamType[tuple[str, str]]):
    """`key=value`; the first `=` divides."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, found, rest = value.partition("=")
        if not key or not found:
            self.fail(f"{value!r} is not key=value", param, ctx)
        return key, rest


class SpanType(click.ParamType[float]):
    """A span of time, in seconds: `90`, `90s`, `15m`, `1h`, `2d`, `1w`."""

    name = "span"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, int | float):
            return float(value)
        found = _SPAN.fullmatch(value)
        if found is None:
            self.fail(f"{value!r} is no span of time such as 90s, 15m, 1h, 2d", param, ctx)
        seconds = float(found["number"]) * UNIT_SECONDS.get(found["unit"], 1)
        if seconds > LONGEST_SPAN_SECONDS:
            self.fail(f"{value!r} is more than a hundred years", param, ctx)
        return seconds


class MomentType(click.ParamType[int]):
    """A point in time, in milliseconds since 1970: a span ago (`1h`), or ISO 8601 with a zone."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if _SPAN.fullmatch(value):
            ago = SPAN.convert(value, param, ctx)
            return max(0, int((datetime.now(UTC).timestamp() - ago) * 1000))
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is neither a span ago such as 1h nor a time by ISO 8601", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{value!r} has no time zone; append Z or +01:00", param, ctx)
        return int(moment.timestamp() * 1000)


class DayType(click.ParamType[date]):
    """A day, `YYYY-MM-DD`; whether it has begun, the server's clock says."""

    name = "YYYY-MM-DD"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> date:
        if isinstance(value, date):
            return value
        try:
            return parse_day(value)
        except ValueError:
            self.fail(f"{value!r} is no day such as 2026-11-27, from {FIRST_DAY} on", param, ctx)


class StartType(click.ParamType["str | int | Checkpoint"]):
    """Where reading begins: `earliest`, `latest`, a moment, or the text of a checkpoint."""

    name = "earliest|latest|moment|checkpoint"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str | int | Checkpoint:
        if not isinstance(value, str) or value in ("earliest", "latest"):
            return value  # type: ignore[no-any-return]
        try:
            return checkpoint_from_text(value)
        except ScalableError:
            return MOMENT.convert(value, param, ctx)


TOPIC, SEGMENT_PLACE, NAMESPACE, SCOPE, PLACE, PAIR, SPAN, MOMENT, DAY, START, TIMEOUT = (
    TopicType(),
    SegmentPlaceType(),
    NamespaceType(),
    ScopeType(tenants=True),
    ScopeType(tenants=False),
    PairType(),
    SpanType(),
    MomentType(),
    DayType(),
    StartType(),
    TimeoutType(),
)


def properties_of(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Join pairs; raises UsageError when a key comes twice."""
    found: dict[str, str] = {}
    for key, value in pairs:
        if key in found:
            raise click.UsageError(f"{key!r} is given twice")
        found[key] = value
    return found


def read_json(text: str) -> Any:
    """Read JSON; raises ValueError, also for NaN, Infinity and 1e400, which no request can hold.

    What has a name twice raises RepeatedName, what nests too deep NestedTooDeep.
    """
    return load_shallow_json(
        text, object_pairs_hook=unique_names, parse_constant=_finite, parse_float=_finite
    )


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number
