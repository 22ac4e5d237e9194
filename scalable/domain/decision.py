"""What the autoscaler decides, and why: the rule that fired, or every guard that held a rule back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class GuardCode(StrEnum):
    """Why a rule may not act now."""

    POLICY_INVALID = "POLICY_INVALID"
    DISABLED = "DISABLED"
    OPERATION_IN_FLIGHT = "OPERATION_IN_FLIGHT"
    MAX_SEGMENTS = "MAX_SEGMENTS"
    SPLIT_COOLDOWN = "SPLIT_COOLDOWN"
    SEGMENT_TOO_NARROW = "SEGMENT_TOO_NARROW"
    MIN_SEGMENTS = "MIN_SEGMENTS"
    MERGE_COOLDOWN = "MERGE_COOLDOWN"
    MERGE_WINDOW = "MERGE_WINDOW"
    MAX_DAG_DEPTH = "MAX_DAG_DEPTH"
    LOAD_UNKNOWN = "LOAD_UNKNOWN"
    SEGMENT_LOAD_UNKNOWN = "SEGMENT_LOAD_UNKNOWN"


CONSUMER_RULE = "consumer-count"
COLD_RULE = "cold"
LOAD_RULES = "load"
ALL_RULES = "all"
STEADY = "steady"


@dataclass(frozen=True, slots=True)
class Split:
    """Split one segment at its midpoint."""

    segment_id: int

    @property
    def segment_ids(self) -> tuple[int, ...]:
        """Name the segments that the action seals."""
        return (self.segment_id,)


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge two neighbours, named in range order."""

    segment_ids: tuple[int, ...]


Action = Split | Merge


@dataclass(frozen=True, slots=True)
class Guard:
    """A guard that holds a rule back: what is now against what it needs, and when time alone lifts it."""

    code: GuardCode
    rule: str
    segment_ids: tuple[int, ...] = ()
    current: float | None = None
    threshold: float | None = None
    next_eligible_at_ms: int | None = None
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """Give the guard as shown in a decision's explanation."""
        return {
            "guard": self.code.value,
            "rule": self.rule,
            "segmentIds": list(self.segment_ids),
            "current": self.current,
            "threshold": self.threshold,
            "nextEligibleAtMs": self.next_eligible_at_ms,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class Margin:
    """How near a rule is to firing: the value that decides it against its threshold."""

    rule: str
    metric: str
    segment_ids: tuple[int, ...]
    current: float
    threshold: float
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """Give the margin as shown in a decision's explanation."""
        return {
            "rule": self.rule,
            "metric": self.metric,
            "segmentIds": list(self.segment_ids),
            "current": self.current,
            "threshold": self.threshold,
            "detail": self.detail,
        }


@dataclass(frozen=True, slots=True)
class Wish:
    """What a rule would do, with the margin by which it fired and the guards that hold it back."""

    rule: str
    action: Action | None
    margin: Margin
    guards: tuple[Guard, ...] = ()

    @property
    def next_eligible_at_ms(self) -> int | None:
        """Give the instant at which time alone has lifted all guards, or None when it will not."""
        instants = [guard.next_eligible_at_ms for guard in self.guards]
        known = [instant for instant in instants if instant is not None]
        return max(known) if known and len(known) == len(instants) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """At most one action, the rule behind it or the first guard that held one back, and the reasoning."""

    rule: str
    at_ms: int
    epoch: int
    action: Action | None = None
    fired: Margin | None = None
    held_by: tuple[Guard, ...] = ()
    margins: tuple[Margin, ...] = ()
    next_eligible_at_ms: int | None = None

    @property
    def kind(self) -> str | None:
        """Give SPLIT, MERGE, or None."""
        if self.action is None:
            return None
        return "SPLIT" if isinstance(self.action, Split) else "MERGE"

    @property
    def segment_ids(self) -> tuple[int, ...]:
        """Name the segments that the action would seal."""
        return self.action.segment_ids if self.action else ()

    @property
    def key(self) -> str:
        """Give a text that changes with anything but times and measured values, for the journal."""
        guards = (f"{guard.code}:{guard.rule}:{_joined(guard.segment_ids)}" for guard in self.held_by)
        return "|".join([self.rule, self.kind or "", _joined(self.segment_ids), *guards])

    @property
    def explanation(self) -> dict[str, Any]:
        """Give the reasoning as JSON: what fired, what held which rule back, and how near each rule is."""
        return {
            "key": self.key,
            "rule": self.rule,
            "action": self.kind,
            "segmentIds": list(self.segment_ids),
            "atMs": self.at_ms,
            "epoch": self.epoch,
            "fired": self.fired.to_json() if self.fired else None,
            "heldBy": [guard.to_json() for guard in self.held_by],
            "margins": [margin.to_json() for margin in self.margins],
            "nextEligibleAtMs": self.next_eligible_at_ms,
        }


def _joined(segment_ids: Iterable[int]) -> str:
    return ",".join(str(segment_id) for segment_id in segment_ids)
