"""The tables of docs/autoscale.md and the numbers of its goals, each made by one command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from replay import keys, table, traces
from replay.keys import KeySpread
from replay.measures import Measures
from replay.run import RULES, load_named, replay
from replay.setup import Setup
from replay.windows import WINDOWS
from scalable.domain.policy import COUNTS, DEFAULTS
from scalable.domain.profiles import RECOMMENDED

VARIED = (
    "autoScaleIntervalSeconds",
    "splitMsgRateInThreshold",
    "splitCooldownSeconds",
    "mergeCooldownSeconds",
    "splitTargetShare",
    "dominantKeyShare",
    "lookAheadSeconds",
    "mergeTargetShare",
    "mergePeakSeconds",
    "mergeMinAgeSeconds",
    "maxSplitChildren",
    "minMergeSegments",
    "maxMergeSegments",
    "maxActionsPerTick",
)
CHANGE = 0.25
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "n-way split": {"maxSplitChildren": 2},
    "several operations a tick": {"maxActionsPerTick": 1},
    "load-balanced cuts": {"loadBalancedSplit": False},
    "isolation of a dominant key": {"isolateDominantKey": False},
    "short interval": {"autoScaleIntervalSeconds": 60},
    "look-ahead": {"lookAheadSeconds": 0},
    "merges of runs": {"maxMergeSegments": 2, "minMergeSegments": 2},
    "least length of runs": {"minMergeSegments": 2},
    "target of merges": {"mergeTargetShare": 0},
    "peaks in merges": {"mergePeakSeconds": 0},
    "least age of merges": {"mergeMinAgeSeconds": 0},
    "room at the cap": {"mergeMakesRoom": False},
}
"""What `recommended` has beyond PIP-483, and how each is taken away."""


def comparison(setup: Setup) -> str:
    """Compare all rules on the bundled traces."""
    results = (
        replay(name, load_named(name, setup), rule, setup=setup, keys=keys.uniform())[0]
        for name in traces.bundled()
        for rule in RULES
    )
    return table.markdown(results)


def held_out(setup: Setup) -> str:
    """Compare all rules on other windows; the last column names what is not kept."""
    lines = ["| window | " + " | ".join(COMPARED) + " | above |", "|---" * (len(COMPARED) + 2) + "|"]
    for name, window in WINDOWS.items():
        load = window(setup)
        found = {rule: replay(name, load, rule, setup=setup, keys=keys.uniform())[0] for rule in COMPARED}
        cells = [_cell(found[rule]) for rule in COMPARED]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {', '.join(_above(found))} |")
    return "\n".join(lines) + "\n"


COMPARED = ("pip-483", "pravega", "ydb", "recommended")


def _above(found: Mapping[str, Measures]) -> Iterator[str]:
    """Name each figure in which `recommended` is above a rule that it should not be above."""
    ours = found["recommended"]
    for rule, other in (("pip-483", "segments_over_clairvoyant"), ("pravega", "actions")):
        for figure in ("violation_percent", other):
            if getattr(ours, figure) > getattr(found[rule], figure):
                yield f"{figure.replace('_', ' ')} of {rule}"


def sensitivity(setup: Setup) -> str:
    """Vary each constant of the profile `recommended` by a quarter."""
    variants: dict[str, Mapping[str, Any]] = {"as it is": {}}
    for name in VARIED:
        for factor in (1 - CHANGE, 1 + CHANGE):
            value = _varied(name, factor)
            variants[f"{name} {value:g}"] = {name: value}
    return _by_variant(setup, variants, [(name, keys.uniform()) for name in traces.bundled()])


def _varied(name: str, factor: float) -> float:
    value: float = RECOMMENDED.get(name, DEFAULTS[name]) * factor
    if name in COUNTS:
        return round(value)
    return min(value, 1.0) if name.endswith("Share") else float(round(value, 3))


def ablation(setup: Setup) -> str:
    """Take each option of the profile `recommended` away, one at a time; then give it to PIP-483 alone."""
    without = {f"without {name}": change for name, change in OPTIONS.items()}
    plays = [(name, keys.uniform()) for name in traces.bundled()]
    plays += [("nyc_taxi", keys.dominant(0.6)), ("nyc_taxi", keys.zipf(1.0))]
    return _by_variant(setup, {"recommended": {}, **without}, plays)


def _by_variant(
    setup: Setup, variants: Mapping[str, Mapping[str, Any]], plays: Iterable[tuple[str, KeySpread]]
) -> str:
    """Give a table of a row for each variant and a column for each play: violation %, segments, actions."""
    plays = list(plays)
    loads = {name: load_named(name, setup) for name, _ in plays}
    titles = [name if spread.name == "uniform" else f"{name}, {spread.name}" for name, spread in plays]
    lines = ["| | " + " | ".join(titles) + " |", "|---" * (len(plays) + 1) + "|"]
    for label, override in variants.items():
        cells = [
            _cell(replay(name, loads[name], "recommended", setup=setup, keys=spread, override=override)[0])
            for name, spread in plays
        ]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(each: Measures) -> str:
    return f"{each.violation_percent:.2f} / {each.segments_over_clairvoyant:.2f}x / {each.actions}"


STUDIES: dict[str, Callable[[Setup], str]] = {
    "comparison": comparison,
    "held-out": held_out,
    "sensitivity": sensitivity,
    "ablation": ablation,
}
