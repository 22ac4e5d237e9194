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
    REBUCKET_COOLDOWN = "REBUCKET_COOLDOWN"
    CONSUMERS_NEED_BUCKETS = "CONSUMERS_NEED_BUCKETS"
    CONSUMERS_NEED_SEGMENTS = "CONSUMERS_NEED_SEGMENTS"
    RECENT_PEAK = "RECENT_PEAK"
    RUN_TOO_SHORT = "RUN_TOO_SHORT"
    SEGMENT_TOO_YOUNG = "SEGMENT_TOO_YOUNG"
    DOMINANT_KEY = "DOMINANT_KEY"
    PEAK_UNKNOWN = "PEAK_UNKNOWN"
    TREND_UNKNOWN = "TREND_UNKNOWN"
    OPERATION_FAILED = "OPERATION_FAILED"
    OPERATION_ABORTED = "OPERATION_ABORTED"
    MERGED_IN_VAIN = "MERGED_IN_VAIN"


CONSUMER_RULE = "consumer-count"
COLD_RULE = "cold"
LOAD_RULES = "load"
ALL_RULES = "all"
STEADY = "steady"


@dataclass(frozen=True, slots=True)
class Split:
    """Split one segment before each of `cuts`, the first hashes of later children; at its midpoint without.

    `cuts` ascend.
    """

    segment_id: int
    cuts: tuple[int, ...] = ()

    @property
    def segment_ids(self) -> tuple[int, ...]:
        """Name the segments that the action seals."""
        return (self.segment_id,)


@dataclass(frozen=True, slots=True)
class Merge:
    """Merge two or more neighbours, named in range order."""

    segment_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rebucket:
    """Replace each segment by one of the same range with so many entry buckets (PIP-486)."""

    segment_ids: tuple[int, ...]
    bucket_count: int


Action = Split | Merge | Rebucket
KINDS: dict[type[Action], str] = {Split: "SPLIT", Merge: "MERGE", Rebucket: "REBUCKET"}


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
    """What to do now, the rule behind it or the first guard that held one back, and the reasoning.

    `actions` are on disjoint segments, `fired_by` has the margin of each. `rule` is that of the first, and
    `held_by` what holds back the rules that come before it.
    """

    rule: str
    at_ms: int
    epoch: int
    actions: tuple[Action, ...] = ()
    fired_by: tuple[Margin, ...] = ()
    held_by: tuple[Guard, ...] = ()
    margins: tuple[Margin, ...] = ()
    next_eligible_at_ms: int | None = None

    @property
    def action(self) -> Action | None:
        """Give the first action, or None."""
        return self.actions[0] if self.actions else None

    @property
    def fired(self) -> Margin | None:
        """Give the margin by which the first action's rule fired."""
        return self.fired_by[0] if self.fired_by else None

    @property
    def kind(self) -> str | None:
        """Give SPLIT, MERGE or REBUCKET, the kind of the first action, or None."""
        return KINDS[type(self.action)] if self.action else None

    @property
    def segment_ids(self) -> tuple[int, ...]:
        """Name the segments that the actions would seal."""
        return tuple(segment_id for action in self.actions for segment_id in action.segment_ids)

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
            "actions": [
                action_json(action, margin)
                for action, margin in zip(self.actions, self.fired_by, strict=True)
            ],
            "fired": self.fired.to_json() if self.fired else None,
            "heldBy": [guard.to_json() for guard in self.held_by],
            "margins": [margin.to_json() for margin in self.margins],
            "nextEligibleAtMs": self.next_eligible_at_ms,
        }


def action_json(action: Action, fired: Margin) -> dict[str, Any]:
    """Give one of a decision's actions as JSON, with what made its rule fire."""
    body: dict[str, Any] = {"action": KINDS[type(action)], "segmentIds": list(action.segment_ids)}
    if isinstance(action, Split):
        body["cuts"] = list(action.cuts)
    elif isinstance(action, Rebucket):
        body["bucketCount"] = action.bucket_count
    return {**body, "rule": fired.rule, "fired": fired.to_json()}


def _joined(segment_ids: Iterable[int]) -> str:
    return ",".join(str(segment_id) for segment_id in segment_ids)
