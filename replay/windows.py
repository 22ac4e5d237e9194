"""Loads to try rules on beside the bundled ones: other parts of those traces, some bent, and shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from replay import synthetic, traces
from replay.setup import Setup
from replay.traces import Series, Trace

AMZN, ELB, TAXI = "Twitter_volume_AMZN", "elb_request_count_8c0756", "nyc_taxi"
DAY_SECONDS = 86_400.0
WEEK_SECONDS = 7 * DAY_SECONDS
CAPACITY_OF_EIGHT = 8 * 11_500.0
"""About what eight segments are split at by the profile `recommended`."""


def part(
    setup: Setup, name: str, days: tuple[float, float], *, backwards: bool = False, pace: float = 1.0
) -> Series:
    """Give the load of some days of a bundled trace, backwards, or with the clock going faster or slower."""
    whole = traces.read(traces.find(name))
    first, end = np.searchsorted(whole.seconds, np.array(days) * DAY_SECONDS)
    seconds, values = whole.seconds[first:end] - whole.seconds[first], whole.values[first:end]
    if backwards:
        seconds, values = seconds[-1] - seconds[::-1], values[::-1]
    count = len(values)
    setup = replace(setup, points=count, coarse_points=count)
    return traces.load_of(Trace(name, seconds / pace, values), setup)


def scaled(setup: Setup, name: str, factor: float) -> Series:
    """Give a bundled trace with more or less load; the cap stays."""
    setup = replace(setup, scale_rate=setup.scale_rate * factor)
    return traces.load_of(traces.read(traces.find(name)), setup)


def with_bursts(setup: Setup, name: str, days: tuple[float, float]) -> Series:
    """Add, every two hours on average, ten minutes of 150,000 more that come within half a minute."""
    load, chance = part(setup, name, days), np.random.default_rng(7_483)
    starts = np.flatnonzero(chance.random(len(load)) < setup.step_seconds / 7_200) * setup.step_seconds
    clock, extra = np.arange(len(load)) * setup.step_seconds, np.zeros(len(load))
    for start in starts:
        since = clock - start
        extra += 150_000 * np.clip(since / 30, 0, 1) * np.clip((630 - since) / 30, 0, 1)
    bursty: Series = np.minimum(load + extra, setup.cap_rate)
    return bursty


def with_noise(setup: Setup, load: Callable[[Setup], Series], share: float) -> Series:
    """Multiply a load by noise that differs from step to step."""
    base, chance = load(setup), np.random.default_rng(11)
    noisy: Series = base * (1 + share * chance.uniform(-1, 1, len(base)))
    return noisy


def ramps(setup: Setup) -> Series:
    """Rise tenfold within five minutes, stay an hour, and fall as fast, every four hours."""
    clock = synthetic.clock(24, setup) % (4 * synthetic.HOUR) - synthetic.HOUR
    up = np.clip(clock / 300, 0, 1) * np.clip((synthetic.HOUR - clock) / 300, 0, 1)
    return 40_000 + 360_000 * up


def steps(setup: Setup) -> Series:
    """Jump every three hours to one of 30,000 to 600,000."""
    levels = np.array([60_000, 240_000, 120_000, 480_000, 30_000, 600_000, 90_000, 300_000.0])
    load: Series = levels[(synthetic.clock(24, setup) // (3 * synthetic.HOUR)).astype(int)]
    return load


def wave(setup: Setup, hours: float, lowest: float, highest: float) -> Series:
    """Swing between two rates, once in so many hours, for two days."""
    middle, swing = (highest + lowest) / 2, (highest - lowest) / 2
    return middle - swing * np.cos(2 * np.pi * synthetic.clock(48, setup) / (hours * synthetic.HOUR))


def level(setup: Setup, rate: float) -> Series:
    """Stay at a rate for a day."""
    return np.full(len(synthetic.clock(24, setup)), rate)


def points(setup: Setup, kind: str) -> Series:
    """Bridge points that are five minutes apart, as most recorded traces are, for two days.

    Of the kind `log-normal` each is drawn by itself about 80,000; of `spikes` they lie about 60,000, but each
    hour or so one is four to eight times as high; of `on-off` they stay high or low for an hour or so.
    """
    chance, count = np.random.default_rng(300), round(48 * synthetic.HOUR / 300)
    level = 60_000 * (1 + 0.1 * chance.uniform(-1, 1, count))
    turns = chance.random(count) < 1 / 12
    values = {
        "log-normal": 80_000 * np.exp(0.8 * chance.standard_normal(count)),
        "spikes": level * np.where(turns, chance.uniform(4, 8, count), 1.0),
        "on-off": level * np.where(np.cumsum(turns) % 2, 5.0, 0.5),
    }[kind]
    load: Series = np.interp(synthetic.clock(48, setup), np.arange(count) * 300.0, values)
    return np.minimum(load, setup.cap_rate)


WINDOWS: dict[str, Callable[[Setup], Series]] = {
    **{
        f"AMZN, week {number}": partial(part, name=AMZN, days=(7.0 * number - 7, 7.0 * number))
        for number in (2, 4, 5, 7)
    },
    "AMZN, week 6 backwards": partial(part, name=AMZN, days=(35, 42), backwards=True),
    "AMZN, week 3 three times as fast": partial(part, name=AMZN, days=(14, 21), pace=3),
    "AMZN, week 4 and bursts": partial(with_bursts, name=AMZN, days=(21, 28)),
    "ELB, week 2": partial(part, name=ELB, days=(7, 14)),
    "ELB, week 1 backwards": partial(part, name=ELB, days=(0, 7), backwards=True),
    "ELB, days 8 to 10 at a third of the pace": partial(part, name=ELB, days=(7, 10), pace=1 / 3),
    "ELB, week 2 twice as fast": partial(part, name=ELB, days=(7, 14), pace=2),
    "taxi, weeks 7 and 8": partial(part, name=TAXI, days=(42, 56)),
    "taxi, weeks 20 and 21 backwards": partial(part, name=TAXI, days=(133, 147), backwards=True),
    "taxi, weeks 11 to 14 four times as fast": partial(part, name=TAXI, days=(70, 98), pace=4),
    "taxi, weeks 7 and 8 and bursts": partial(with_bursts, name=TAXI, days=(42, 56)),
    **{
        f"{short}, {factor:g} times the load": partial(scaled, name=name, factor=factor)
        for short, name in (("AMZN", AMZN), ("ELB", ELB), ("taxi", TAXI))
        for factor in (0.3, 3.0)
    },
    "steps": steps,
    "tenfold in five minutes": ramps,
    "wave of a day": partial(wave, hours=24, lowest=40_000, highest=400_000),
    "wave of two hours": partial(wave, hours=2, lowest=60_000, highest=360_000),
    "wave of half an hour": partial(wave, hours=0.5, lowest=100_000, highest=300_000),
    "wave of a day and noise of 10 %": partial(
        with_noise, load=partial(wave, hours=24, lowest=40_000, highest=400_000), share=0.1
    ),
    "noise of 20 % about a threshold": partial(
        with_noise, load=partial(level, rate=CAPACITY_OF_EIGHT), share=0.2
    ),
    "level of 200,000": partial(level, rate=200_000),
    **{f"points, {kind}": partial(points, kind=kind) for kind in ("log-normal", "spikes", "on-off")},
    **synthetic.SHAPES,
}
"""By name; what a policy is checked by once its constants are chosen."""
