"""Rows 13 to 15: the profile `recommended` on real traces, a step load, and how evenly a segment is cut.

Nothing of this is a timing: the clock is virtual, and every run gives the same numbers.
"""

from collections.abc import Iterator

import numpy as np

from bench.harness import Bench, Comparison, bench_row
from replay import keys, traces
from replay.measures import Measures
from replay.run import load_named, replay
from replay.setup import Setup
from scalable.domain.autoscale_cuts import balanced_cuts
from scalable.domain.keyspace import FULL_RANGE

TRIALS, KEYS, PARTS, SAMPLED = 400, 10_000, 32, 10_000
LARGEST_KEY = 0.02
"""A key with more of the load than this can by itself make halves uneven: that is what isolation is for."""


@bench_row(
    number=13,
    title="replay of real traces: the worst of violations and segments over PIP-483's, and of violations and "
    "actions over Pravega's",
    unit="ratio",
    goal="<= 1",
)
def real_traces(bench: Bench) -> Iterator[Comparison]:
    """Play each bundled trace; where both have no violation their ratio is 1."""
    setup = Setup()
    for name in traces.bundled():
        load = load_named(name, setup)
        ours, letter, other = (
            replay(name, load, rule, setup=setup, keys=keys.uniform())[0]
            for rule in ("recommended", "pip-483", "pravega")
        )
        ratios = [
            _ratio(ours.violation_percent, min(letter.violation_percent, other.violation_percent)),
            ours.segments_over_clairvoyant / letter.segments_over_clairvoyant,
            ours.actions / other.actions,
        ]
        note = "; ".join(_figures(each) for each in (ours, letter, other))
        yield Comparison(label=name, floor=[1.0], product=[max(ratios)], note=note)


def _figures(each: Measures) -> str:
    figures = f"{each.violation_percent:.2f} % / {each.segments_over_clairvoyant:.2f}x / {each.actions}"
    return f"{each.profile} {figures}"


def _ratio(ours: float, theirs: float) -> float:
    if theirs == 0:
        return 1.0 if ours == 0 else float("inf")
    return ours / theirs


@bench_row(number=14, title="step load from 1 to 16 segments", unit="rounds, and seconds", goal="<= 2")
def step_load(bench: Bench) -> Iterator[Comparison]:
    """Count the decisions with splits after the step, and the time until no segment is above capacity."""
    setup = Setup(initial_segments=1)
    load = load_named("step", setup)
    found, outcome = replay("step", load, "recommended", setup=setup, keys=keys.uniform())
    rounds = {step for step, _ in outcome.splits if step * setup.step_seconds >= 3_600}
    yield Comparison(label="decision rounds", floor=[1.0], product=[float(len(rounds))])
    seconds = found.converged_after_step_seconds or 0.0
    yield Comparison(label="time, s", floor=[setup.step_seconds], product=[seconds], goal="<= 3")


@bench_row(
    number=15,
    title="imbalance of a cut by the load of 32 parts in 10 s",
    unit="|left - right| / total",
    goal="<= 1",
)
def cuts(bench: Bench) -> Iterator[Comparison]:
    """Sample keys, cut by what was seen, and judge by the true load; the floors are the goals."""
    chance = np.random.default_rng(15)
    found = sorted(_imbalance(chance) for _ in range(TRIALS))
    yield Comparison(label="median, over 0.05", floor=[0.05], product=[found[TRIALS // 2]])
    yield Comparison(label="99th percentile, over 0.10", floor=[0.10], product=[found[TRIALS * 99 // 100]])


def _imbalance(chance: np.random.Generator) -> float:
    weights = np.arange(1, KEYS + 1) ** -chance.uniform(0, 1)
    weights = np.minimum(weights / weights.sum(), LARGEST_KEY)
    weights /= weights.sum()
    hashes = chance.integers(0, FULL_RANGE.size, KEYS)
    seen = chance.multinomial(SAMPLED, weights)
    heat = np.bincount(hashes * PARTS // FULL_RANGE.size, weights=seen, minlength=PARTS)
    (cut,) = balanced_cuts(FULL_RANGE, heat.tolist(), 2)
    return abs(2 * float(weights[hashes < cut].sum()) - 1)
