"""Which messages below a cursor's frontier are not acknowledged, and who holds them; kept in memory.

Every message between the position and the frontier is in one row, or it is acknowledged. A row lies within
one batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

MAX_RANGES = 100_000
"""With so many rows a cursor's frontier stands still."""


@dataclass(frozen=True, slots=True)
class Row:
    """Messages [first, end) of one batch with one fate: held by a session, or waiting until they are due."""

    batch_offset: int
    first: int
    end: int
    due_ms: float
    deliveries: int = 0
    session: str | None = None

    @property
    def count(self) -> int:
        """The number of messages."""
        return self.end - self.first

    def part(self, first: int, end: int) -> "Row":
        """Give the messages that also lie in [first, end)."""
        return replace(self, first=max(self.first, first), end=min(self.end, end))


@dataclass(slots=True)
class Pending:
    """The rows of one cursor in order, and its frontier."""

    frontier: int
    rows: list[Row] = field(default_factory=list)

    @property
    def position(self) -> int:
        """The first message that is not acknowledged."""
        return self.rows[0].first if self.rows else self.frontier

    @property
    def count(self) -> int:
        """The number of messages below the frontier that are not acknowledged."""
        return sum(row.count for row in self.rows)

    def acknowledged(self) -> Iterator[tuple[int, int]]:
        """Give the ranges between the rows."""
        behind = self.position
        for row in self.rows:
            if behind < row.first:
                yield behind, row.first
            behind = row.end
        if behind < self.frontier:
            yield behind, self.frontier

    def carve(self, first: int, end: int, session: str | None = None) -> list[Row]:
        """Cut [first, end) out of the rows (of a session) and give what was cut out."""
        cut: list[Row] = []
        kept: list[Row] = []
        for row in self.rows:
            if row.end <= first or row.first >= end or session not in {None, row.session}:
                kept.append(row)
                continue
            cut.append(row.part(first, end))
            kept += [rest for rest in (row.part(0, first), row.part(end, row.end)) if rest.count > 0]
        self.rows = kept
        return cut

    def add(self, rows: Sequence[Row]) -> None:
        """Put rows in, and the frontier behind them."""
        self.rows = sorted([*self.rows, *rows], key=lambda row: row.first)
        self.frontier = max([self.frontier, *(row.end for row in rows)])
