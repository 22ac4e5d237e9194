"""The picture of a DAG in text: every layout, each segment once."""

from __future__ import annotations

from random import Random

import pytest
from rich.console import Console

from scalable.cli.tree import MAX_LINES, draw
from scalable.client import Topology
from scalable.domain.layout import Layout
from scalable.wire.frames import SegmentFrame


def topology_of(layout: Layout) -> Topology:
    frames = {
        each.segment_id: SegmentFrame(
            segmentId=each.segment_id,
            start=each.hash_range.start,
            end=each.hash_range.end,
            state="ACTIVE" if each.is_active else "SEALED",
            parentIds=list(each.parent_ids),
            childIds=list(each.child_ids),
            createdAtEpoch=each.created_epoch,
            sealedAtEpoch=each.sealed_epoch,
            createdAtMs=0,
            sealedAtMs=0,
        )
        for each in layout.segments.values()
    }
    return Topology(
        incarnation=1,
        epoch=layout.epoch,
        revision=1,
        term=1,
        next_segment_id=layout.next_segment_id,
        controller_url=None,
        controller_url_tls=None,
        segments=frames,
    )


def drawn(layout: Layout, *, active_only: bool = False) -> list[str]:
    console = Console(width=200, record=True, file=None, quiet=False)
    with console.capture() as capture:
        console.print(draw(topology_of(layout), loads={}, active_only=active_only))
    return capture.get().splitlines()[1:]


def random_layout(seed: int, steps: int) -> Layout:
    random, layout = Random(seed), Layout.initial(2, 0)
    for step in range(steps):
        active = sorted(layout.active, key=lambda each: each.hash_range.start)
        place = random.randrange(len(active))
        if random.random() < 0.7 or len(active) < 2:
            plan = layout.plan_split(active[place].segment_id)
        else:
            place = min(place, len(active) - 2)
            plan = layout.plan_merge([active[place].segment_id, active[place + 1].segment_id])
        layout = layout.apply(plan, step)
    return layout


@pytest.mark.parametrize("seed", range(20))
def test_each_segment_is_drawn_once(seed: int) -> None:
    layout = random_layout(seed, 30)
    numbers = [int(line.lstrip("│├└─ ").split()[0]) for line in drawn(layout)]
    assert sorted(numbers) == sorted(layout.segments)
    active = [int(line.lstrip("│├└─ ").split()[0]) for line in drawn(layout, active_only=True)]
    assert active == [each.segment_id for each in sorted(layout.active, key=lambda each: each.hash_range)]


@pytest.mark.parametrize("active_only", [False, True])
def test_a_large_layout_is_cut_and_says_so(active_only: bool) -> None:
    lines = drawn(Layout.initial(1_000, 0), active_only=active_only)
    assert len(lines) == MAX_LINES + 1
    assert f"and {1_000 - MAX_LINES} more" in lines[-1]
