"""The tables of docs/autoscale.md and the numbers of its goals, each made by one command.

A study gives its table line by line, as its replays end; they are shared by all cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from multiprocessing import get_context
from typing import Any

from replay import keys, table, traces
from replay.keys import KeySpread
from replay.measures import Measures
from replay.run import RULES, load_named, replay
from replay.setup import Setup
from replay.traces import Series
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
    "mergeRepeatSeconds",
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
    "waits after merges in vain": {"mergeRepeatSeconds": 0},
    "room at the cap": {"mergeMakesRoom": False},
}
"""What `recommended` has beyond PIP-483, and how each is taken away."""


@dataclass(frozen=True)
class Game:
    """One replay of a study."""

    name: str
    load: Series
    rule: str
    keys: KeySpread = field(default_factory=keys.uniform)
    override: Mapping[str, Any] = field(default_factory=dict)


def _judge(game: Game, setup: Setup) -> Measures:
    return replay(game.name, game.load, game.rule, setup=setup, keys=game.keys, override=game.override)[0]


def _played(games: Iterable[Game], setup: Setup) -> Iterator[Measures]:
    """Give what became of each, in their order, as they end."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        yield from pool.map(partial(_judge, setup=setup), games)


def comparison(setup: Setup) -> Iterator[str]:
    """Compare all rules on the bundled traces."""
    games = [Game(name, load_named(name, setup), rule) for name in traces.bundled() for rule in RULES]
    yield table.markdown(_played(games, setup))


def held_out(setup: Setup) -> Iterator[str]:
    """Compare all rules on other windows; the last column names what is not kept."""
    yield "| window | " + " | ".join(COMPARED) + " | above |\n" + "|---" * (len(COMPARED) + 2) + "|\n"
    games = [Game(name, window(setup), rule) for name, window in WINDOWS.items() for rule in COMPARED]
    played = _played(games, setup)
    for name in WINDOWS:
        found = dict(zip(COMPARED, islice(played, len(COMPARED)), strict=True))
        cells = [_cell(found[rule]) for rule in COMPARED]
        yield f"| {name} | " + " | ".join(cells) + f" | {', '.join(_above(found))} |\n"


COMPARED = ("pip-483", "pravega", "ydb", "recommended")


def _above(found: Mapping[str, Measures]) -> Iterator[str]:
    """Name each figure in which `recommended` is above a rule that it should not be above."""
    ours = found["recommended"]
    for rule, other in (("pip-483", "segments_over_clairvoyant"), ("pravega", "actions")):
        for figure in ("violation_percent", other):
            if getattr(ours, figure) > getattr(found[rule], figure):
                yield f"{figure.replace('_', ' ')} of {rule}"


def sensitivity(setup: Setup) -> Iterator[str]:
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


def ablation(setup: Setup) -> Iterator[str]:
    """Take each option of the profile `recommended` away, one at a time; then give it to PIP-483 alone."""
    without = {f"without {name}": change for name, change in OPTIONS.items()}
    plays = [(name, keys.uniform()) for name in traces.bundled()]
    plays += [("nyc_taxi", keys.dominant(0.6)), ("nyc_taxi", keys.zipf(1.0))]
    return _by_variant(setup, {"recommended": {}, **without}, plays)


def _by_variant(
    setup: Setup, variants: Mapping[str, Mapping[str, Any]], plays: Sequence[tuple[str, KeySpread]]
) -> Iterator[str]:
    """Give a table of a row for each variant and a column for each play: violation %, segments, actions."""
    titles = [name if spread.name == "uniform" else f"{name}, {spread.name}" for name, spread in plays]
    yield "| | " + " | ".join(titles) + " |\n" + "|---" * (len(plays) + 1) + "|\n"
    loads = {name: load_named(name, setup) for name, _ in plays}
    games = [
        Game(name, loads[name], "recommended", spread, override)
        for override in variants.values()
        for name, spread in plays
    ]
    played = _played(games, setup)
    for label in variants:
        yield f"| {label} | " + " | ".join(map(_cell, islice(played, len(plays)))) + " |\n"


def _cell(each: Measures) -> str:
    return f"{each.violation_percent:.2f} / {each.segments_over_clairvoyant:.2f}x / {each.actions}"


STUDIES: dict[str, Callable[[Setup], Iterator[str]]] = {
    "comparison": comparison,
    "held-out": held_out,
    "sensitivity": sensitivity,
    "ablation": ablation,
}
