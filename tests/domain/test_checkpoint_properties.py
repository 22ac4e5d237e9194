"""A reader that falls back to its last checkpoint again and again reads everything once, parents first."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from scalable.domain.checkpoint import (
    Checkpoint,
    PrunedExtent,
    SegmentExtent,
    checkpoint_from_text,
    resume,
)

Place = tuple[int, int]


class History:
    """A topic that is written, split, merged and pruned, and one reader of it that crashes."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.extents = {0: SegmentExtent(0, 0, terminated=False)}
        self.pruned: dict[int, PrunedExtent] = {}
        self.children: dict[int, tuple[int, ...]] = {}
        self.next_id = 1
        self.written: set[Place] = set()
        self.checkpoint = Checkpoint.earliest(7)
        self.read: list[Place] = []
        self.kept, self.kept_read = self.checkpoint.to_text(), list(self.read)

    @property
    def active(self) -> list[int]:
        return [key for key, one in self.extents.items() if not one.terminated]

    def append(self) -> None:
        key = self.random.choice(self.active)
        one = self.extents[key]
        self.written.add((key, one.end_offset))
        self.extents[key] = SegmentExtent(0, one.end_offset + 1, terminated=False, parent_ids=one.parent_ids)

    def split(self) -> None:
        self._reshape([self.random.choice(self.active)], 2)

    def merge(self) -> None:
        if len(self.active) > 1:
            self._reshape(self.random.sample(self.active, 2), 1)

    def _reshape(self, parents: list[int], count: int) -> None:
        born = tuple(range(self.next_id, self.next_id + count))
        self.next_id += count
        for key in parents:
            one = self.extents[key]
            self.extents[key] = SegmentExtent(0, one.end_offset, terminated=True, parent_ids=one.parent_ids)
            self.children[key] = born
        for key in born:
            self.extents[key] = SegmentExtent(0, 0, terminated=False, parent_ids=tuple(parents))

    def read_one(self) -> bool:
        """Hand out one message as a member does; False when there is none."""
        for key in self.checkpoint.readable(self.extents):
            at = self.checkpoint.positions.get(key, 0)
            if at < self.extents[key].end_offset:
                self.read.append((key, at))
                positions = {**self.checkpoint.positions, key: at + 1}
                self.checkpoint = Checkpoint(7, positions)
                return True
        return False

    def keep(self) -> None:
        self.kept, self.kept_read = self.checkpoint.to_text(), list(self.read)

    def crash(self) -> None:
        """Go on from the last checkpoint that was kept."""
        kept = checkpoint_from_text(self.kept)
        found = resume(kept, self.extents, self.pruned, next_segment_id=self.next_id)
        assert not found.skipped
        self.checkpoint, self.read = Checkpoint(7, found.positions), list(self.kept_read)

    def prune(self) -> None:
        """Let go of the oldest sealed segment that the kept checkpoint has behind it."""
        kept = checkpoint_from_text(self.kept).positions
        for key, one in sorted(self.extents.items()):
            oldest = not self.extents.keys() & set(one.parent_ids)
            if one.terminated and oldest and kept.get(key, 0) >= one.end_offset:
                self.pruned[key] = PrunedExtent(one.end_offset, self.children[key])
                del self.extents[key]
                return

    def step(self) -> None:
        moves = [self.append, self.read_one, self.split, self.merge, self.keep, self.crash, self.prune]
        self.random.choices(moves, weights=[8, 8, 1, 1, 2, 1, 1])[0]()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 200))
def test_everything_is_read_once_and_parents_first(seed: int, steps: int) -> None:
    history = History(Random(seed))
    for _ in range(steps):
        history.step()
    history.crash()
    while history.read_one():
        pass
    assert sorted(history.read) == sorted(history.written)
    last = {key: index for index, (key, _) in enumerate(history.read)}
    first = {key: index for index, (key, offset) in enumerate(history.read) if offset == 0}
    for parent, born in history.children.items():
        assert all(last.get(parent, -1) < first.get(child, len(history.read)) for child in born)
