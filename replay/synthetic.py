"""Made-up loads, each of a shape that strains a rule in its own way; in messages a second by step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from replay.setup import Setup
from replay.traces import Series, steps

HOUR = 3_600.0
THRESHOLD = 10_000.0
"""What a segment splits at by PIP-483."""


def clock(hours: float, setup: Setup) -> Series:
    """Give the instants of so many hours, in seconds."""
    return steps("made-up load", hours * HOUR, setup)


def step(setup: Setup) -> Series:
    """Rise at once, after an hour, from what one segment carries to what sixteen do."""
    return np.where(clock(3, setup) < HOUR, 0.75 * THRESHOLD, 16 * 0.75 * THRESHOLD)


def sine(setup: Setup) -> Series:
    """Swing between 40,000 and 400,000 once in four hours, for two days."""
    return 220_000 + 180_000 * np.sin(2 * np.pi * clock(48, setup) / (4 * HOUR))


def flash_crowd(setup: Setup) -> Series:
    """Rise twelvefold within two minutes, every six hours, and fall off over an hour."""
    since = clock(24, setup) % (6 * HOUR) - HOUR
    rise = np.clip(since / 120, 0, 1)
    fall = np.exp(-np.maximum(0, since - 120) / HOUR * 2)
    return 40_000 + 440_000 * rise * fall


def oscillation(setup: Setup) -> Series:
    """Swing 20 % about the split threshold of each of eight segments, once in four minutes, for two hours."""
    return 8 * THRESHOLD * (1 + 0.2 * np.sin(2 * np.pi * clock(2, setup) / 240))


def sawtooth(setup: Setup) -> Series:
    """Climb for three hours from 20,000 to 500,000 and drop at once."""
    return 20_000 + 480_000 * (clock(24, setup) % (3 * HOUR)) / (3 * HOUR)


def bursts(setup: Setup) -> Series:
    """Jump between levels at random instants, on average every twenty minutes; always the same jumps."""
    chance = np.random.default_rng(483)
    count = len(clock(24, setup))
    jumps = chance.random(count) < setup.step_seconds / 1_200
    levels = np.exp(chance.uniform(np.log(10_000), np.log(450_000), count))
    last = np.maximum.accumulate(np.where(jumps, np.arange(count), 0))
    return levels[last]


def idle(setup: Setup) -> Series:
    """Carry almost nothing, for a day."""
    return np.full(len(clock(24, setup)), 100.0)


SHAPES: dict[str, Callable[[Setup], Series]] = {
    "step": step,
    "sine": sine,
    "flash-crowd": flash_crowd,
    "oscillation": oscillation,
    "sawtooth": sawtooth,
    "bursts": bursts,
    "idle": idle,
}
