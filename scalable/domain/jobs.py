"""Batch jobs on Spark: kinds, states, and what each kind may be told."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any

from scalable.domain.errors import InvalidParameter
from scalable.domain.names import NamespaceName
from scalable.domain.policy import parse_override, resolve, validate
from scalable.domain.profiles import PROFILES

PUBLISHED_RULES = ("pravega", "ydb")
"""Rules that a replay compares with, beside the profiles."""
MAX_POLICIES = 16
MAX_SEGMENTS = 65_536
MAX_RATE = 1e12
MAX_WARM_UP_SECONDS = 86_400.0
FIRST_DAY = date(1970, 1, 1)
"""Minutes of a history are counted from here."""
DAY_OPTIONS = ("day", "lastDay", "before")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_POLICY_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class JobKind(StrEnum):
    """What is done; the value is the name of the module that does it."""

    DAILY_REPORT = "daily_report"
    COMPACT = "compact"
    POLICY_REPLAY = "policy_replay"


class JobState(StrEnum):
    """How far a job is."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_over(self) -> bool:
        """Tell whether nothing follows."""
        return self not in UNFINISHED


UNFINISHED = (JobState.QUEUED, JobState.RUNNING)


@dataclass(frozen=True, slots=True)
class Counts:
    """Stages and tasks of a job, done and known so far."""

    stages_done: int = 0
    stages_total: int = 0
    tasks_done: int = 0
    tasks_total: int = 0


OPTIONS: Mapping[JobKind, frozenset[str]] = {
    JobKind.DAILY_REPORT: frozenset({"day", "namespace", "segmentRate"}),
    JobKind.COMPACT: frozenset({"before"}),
    JobKind.POLICY_REPLAY: frozenset(
        {
            *("day", "lastDay", "namespace", "profiles", "policies"),
            *("capacity", "maxSegments", "warmUpSeconds"),
        }
    ),
}
"""The options of each kind; what is left out has the default of the job itself."""


def parse_day(text: str) -> date:
    """Read a day written as `YYYY-MM-DD`; raises ValueError for anything else, and for one before 1970.

    `date.fromisoformat` alone also takes `20261127` and `2026-W48-5`.
    """
    day = date.fromisoformat(text)
    if not _DAY.fullmatch(text) or day < FIRST_DAY:
        raise ValueError(f"{text!r} is no day such as 2026-11-27")
    return day


def check_options(kind: JobKind, options: Mapping[str, Any], *, today: date) -> dict[str, Any]:
    """Read what a job is told; a day (UTC) is `today` at the latest.

    Raises InvalidParameter, InvalidName, and for policies UnknownField, PolicyUnreadable, PolicyInvalid.
    """
    checked = {}
    for name, value in options.items():
        if name not in OPTIONS[kind]:
            raise _refused(name, value, f"a job of the kind {kind} has no such option")
        checked[name] = _day(name, value, today) if name in DAY_OPTIONS else _CHECKS[name](name, value)
    first, last = checked.get("day"), checked.get("lastDay")
    if last is not None and (first is None or last < first):
        raise _refused("lastDay", last, "it is not after the day")
    return checked


def _refused(name: str, value: object, problem: str) -> InvalidParameter:
    return InvalidParameter(parameter=name, value=str(value)[:100], problem=problem)


def _day(name: str, value: Any, today: date) -> str:
    try:
        day = parse_day(value)
    except (TypeError, ValueError):
        raise _refused(name, value, f"it is no day such as 2026-11-27, from {FIRST_DAY} on") from None
    if day > today:
        raise _refused(name, value, f"it has not begun: today, in UTC, is {today}")
    return day.isoformat()


def _namespace(name: str, value: Any) -> str:
    return str(NamespaceName.parse(value)) if value else ""


def _number(most: float, *, least: str = "above 0") -> Callable[[str, Any], float]:
    def check(name: str, value: Any) -> float:
        if not 0 <= value <= most or (value == 0 and least == "above 0"):
            raise _refused(name, value, f"it is {least}, and {most:g} at most")
        return float(value)

    return check


def _count(name: str, value: Any) -> int:
    return int(_number(MAX_SEGMENTS)(name, value))


def _profiles(name: str, value: Sequence[str]) -> list[str]:
    known = (*PROFILES, *PUBLISHED_RULES)
    for profile in value:
        if profile not in known:
            raise _refused(name, profile, f"only {', '.join(known)} are known")
    return list(dict.fromkeys(value))


def check_policies(name: str, value: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Read policies by the names under which their results are shown; raises what `check_options` does."""
    if len(value) > MAX_POLICIES:
        raise _refused(name, len(value), f"it has {MAX_POLICIES} policies at most")
    found = {}
    for policy, body in value.items():
        if not _POLICY_NAME.fullmatch(policy) or policy in PROFILES or policy in PUBLISHED_RULES:
            raise _refused(name, policy, "a name has a-z, 0-9, . _ - and is not that of a profile")
        found[policy] = parse_override(body)
        validate(resolve(found[policy]).policy)
    return found


_CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "namespace": _namespace,
    "segmentRate": _number(MAX_RATE),
    "capacity": _number(MAX_RATE),
    "maxSegments": _count,
    "warmUpSeconds": _number(MAX_WARM_UP_SECONDS, least="0 or more"),
    "profiles": _profiles,
    "policies": check_policies,
}
