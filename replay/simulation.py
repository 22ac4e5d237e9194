"""The clock of a replay: load goes by in steps, rules act, and what comes of it is counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from replay.history import History
from replay.keys import KeySpread
from replay.setup import Setup
from replay.traces import Series
from replay.world import MILLISECONDS, World
from scalable.domain.decision import Action, Merge, Split
from scalable.domain.layout import Layout


class Rules(Protocol):
    """What is replayed: asked every `interval_seconds` (0: each step) what to do."""

    interval_seconds: float

    def actions(self, world: World, step: int, now_ms: int) -> Sequence[Action]:
        """Give the actions at a step."""


@dataclass
class Outcome:
    """What happened: by step the load, the segments and the load of the fullest one; and every action."""

    setup: Setup
    load: Series
    segments: Series
    fullest: Series
    layout: Layout
    splits: list[tuple[int, int]] = field(default_factory=list)
    merges: list[tuple[int, int]] = field(default_factory=list)
    rebuckets: list[tuple[int, int]] = field(default_factory=list)
    """Each by its step and the number of new segments."""

    def count(self, action: Action, step: int, added: int) -> None:
        """Keep an action."""
        kinds = {Split: self.splits, Merge: self.merges}
        kinds.get(type(action), self.rebuckets).append((step, added))


def play(load: Series, rules: Rules, history: History, keys: KeySpread) -> Outcome:
    """Play a load: each step is first measured with the layout as it is, then the rules act."""
    setup = history.setup
    world = World(setup, keys)
    outcome = Outcome(setup, load, np.empty(len(load)), np.empty(len(load)), world.layout)
    every = max(1, round(rules.interval_seconds / setup.step_seconds))
    for step, rate in enumerate(load):
        outcome.segments[step] = len(world.layout.active)
        outcome.fullest[step] = rate * world.largest_share
        if step % every == 0:
            now_ms = round(step * setup.step_seconds * MILLISECONDS)
            for action in rules.actions(world, step, now_ms):
                outcome.count(action, step, world.act(action, now_ms))
    outcome.layout = world.layout
    return outcome
