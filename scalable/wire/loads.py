"""Load reports and tiles: the JSON that the load pipeline sends.

All of it is bounded, finite and free of unknown fields, or it is refused as a whole.
"""

from collections.abc import Sequence
from math import isfinite
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from scalable.domain.errors import LoadReportUnreadable

TILE_PARTS = 32
MAX_REPORTED_LOADS = 10_000
MAX_REPORTED_TILES = 2_000
MAX_BIGINT = 2**63 - 1
MAX_TIME_MS = 253_402_300_799_000
"""The last second of the year 9999: what a timestamp of the metadata can hold."""
MAX_RATE = 1e30
"""More a second than any sample tells, and little enough to be added up and multiplied."""

Identifier = Annotated[int, Meta(ge=0, le=MAX_BIGINT)]
TimeMs = Annotated[int, Meta(ge=0, le=MAX_TIME_MS)]
Rate = Annotated[float, Meta(ge=0, le=MAX_RATE)]
Parts = Annotated[list[Rate], Meta(min_length=TILE_PARTS, max_length=TILE_PARTS)]
_Shape = TypeVar("_Shape", bound=msgspec.Struct)


class ReportedLoad(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """The rates of one segment: messages and bytes per second, in and out."""

    topic: str
    incarnation: Identifier
    segment_id: Identifier
    msg_rate_in: Rate
    bytes_rate_in: Rate
    msg_rate_out: Rate
    bytes_rate_out: Rate

    @property
    def rates(self) -> tuple[float, float, float, float]:
        """Messages in, bytes in, messages out, bytes out; each a second."""
        return self.msg_rate_in, self.bytes_rate_in, self.msg_rate_out, self.bytes_rate_out


class ReportedTile(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True, rename="camel"):
    """One minute of a segment: mean and largest rate of incoming messages a second, per 1/32 of its range.

    The mean is over the part of the minute for which the segment was observed.
    """

    topic: str
    incarnation: Identifier
    segment_id: Identifier
    minute_ms: TimeMs
    mean: Parts
    max: Parts
    observed_ms: Annotated[int, Meta(ge=1, le=60_000)] = 60_000


def parse_loads(loads: object) -> list[ReportedLoad]:
    """Read the loads of a report; raises LoadReportUnreadable."""
    parsed = _convert(loads, ReportedLoad, MAX_REPORTED_LOADS)
    for number, load in enumerate(parsed):
        _check_finite(load.rates, f"loads[{number}]")
    return parsed


def parse_tiles(tiles: object) -> list[ReportedTile]:
    """Read a list of tiles; raises LoadReportUnreadable."""
    parsed = _convert(tiles, ReportedTile, MAX_REPORTED_TILES)
    for number, tile in enumerate(parsed):
        _check_finite([*tile.mean, *tile.max], f"tiles[{number}]")
        if tile.minute_ms % 60_000:
            raise LoadReportUnreadable(problem=f"tiles[{number}].minuteMs is not the start of a minute")
    return parsed


def _convert(value: object, shape: type[_Shape], limit: int) -> list[_Shape]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise LoadReportUnreadable(problem="expected a list")
    if len(value) > limit:
        raise LoadReportUnreadable(problem=f"{len(value)} entries are more than the limit of {limit}")
    try:
        return msgspec.convert(value, list[shape])  # type: ignore[valid-type]
    except (msgspec.ValidationError, OverflowError) as error:
        raise LoadReportUnreadable(problem=str(error)) from error


def _check_finite(rates: Sequence[float], where: str) -> None:
    if not all(isfinite(rate) and rate >= 0 for rate in rates):
        raise LoadReportUnreadable(
            problem=f"{where} has a rate that is not a finite, positive number or zero"
        )
