"""One replay from names: a trace, a rule, a policy and a spread of keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from replay import synthetic, traces
from replay.history import History
from replay.keys import KeySpread
from replay.measures import Measures, measure
from replay.profile import ProfileRules, policy_of
from replay.published import PravegaRules, YdbRules
from replay.setup import Setup
from replay.simulation import Outcome, Rules, play
from replay.traces import Series
from scalable.domain.profiles import PROFILES

PUBLISHED: dict[str, type[PravegaRules | YdbRules]] = {"pravega": PravegaRules, "ydb": YdbRules}
RULES = (*PROFILES, *PUBLISHED)


def load_named(name: str, setup: Setup) -> Series:
    """Give the load of a shape, a bundled trace or a CSV file; raises TraceUnreadable."""
    if name in synthetic.SHAPES:
        return synthetic.SHAPES[name](setup)
    return traces.load_of(traces.read(traces.find(name)), setup)


def rules_named(name: str, history: History, override: Mapping[str, Any]) -> Rules:
    """Give a published rule, or a profile with an override's fields."""
    if name in PUBLISHED:
        return PUBLISHED[name](history)
    return ProfileRules(history, policy_of(name, override, history.setup.max_segments))


def replay(
    trace: str,
    load: Series,
    rule: str,
    *,
    setup: Setup,
    keys: KeySpread,
    override: Mapping[str, Any] | None = None,
    label: str | None = None,
) -> tuple[Measures, Outcome]:
    """Play a load by a rule, and judge what happened."""
    history = History(load, setup)
    outcome = play(load, rules_named(rule, history, override or {}), history, keys)
    return measure(outcome, profile=label or rule, trace=trace, keys=keys.name), outcome
