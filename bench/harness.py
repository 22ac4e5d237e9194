"""Benches compare the product with a floor inside one interleaved run; their result is a ratio.

A row is a function in `bench/rows/`, registered with `bench_row`; it gets a `Bench` and yields comparisons:

    @bench_row(number=7, title="durable append over one COPY", unit="messages/s", goal=">= 1.5",
    higher_is_better=True) def append(bench: Bench) -> Iterator[Comparison]:
        def floor() -> float: ...      # one round: returns its value in the row's unit
        def product() -> float: ...
        yield bench.compare("batches of 1,000", floor=floor, product=product, note="limited by WAL flushes")

Django is set up on a migrated database of the bench's own before a row runs.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from launch.sandbox import LiveNode, ProcessFactory, Sandbox

ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Values of both arms in the order of their rounds; `label` tells the variants of a row apart.

    A variant with a `goal` of its own is not measured by the row's.
    """

    label: str
    floor: Sequence[float]
    product: Sequence[float]
    note: str = ""
    goal: str | None = None

    @property
    def floor_median(self) -> float:
        return statistics.median(self.floor)

    @property
    def product_median(self) -> float:
        return statistics.median(self.product)

    @property
    def ratio(self) -> float:
        """Product over floor, median over median."""
        return self.product_median / self.floor_median if self.floor_median else float("inf")


class Bench:
    """What a row works with: the services' addresses, real processes, and the interleaved comparison."""

    def __init__(self, sandbox: Sandbox, *, report: Callable[[str], None]) -> None:
        environment = sandbox.environment()
        self.database_url = environment["DATABASE_URL"]
        self.redis_url = environment["REDIS_URL"]
        self.processes = ProcessFactory(sandbox, environment)
        self.report = report

    def node(self, **environment: str) -> LiveNode:
        """Start a web node; it ends with the row."""
        return self.processes.node(**environment)

    def compare(
        self,
        label: str,
        *,
        floor: Callable[[], float],
        product: Callable[[], float],
        rounds: int = ROUNDS,
        warm_up_rounds: int = 1,
        note: str = "",
        goal: str | None = None,
    ) -> Comparison:
        """Run both arms in turn, `rounds` times after the rounds that only warm up."""
        if rounds < ROUNDS:
            raise ValueError(f"a median wants at least {ROUNDS} rounds")
        for _ in range(warm_up_rounds):
            floor()
            product()
        pairs = []
        for number in range(1, rounds + 1):
            pairs.append((floor(), product()))
            self.report(f"  {label}: round {number}/{rounds}: {pairs[-1][0]:,.4g} | {pairs[-1][1]:,.4g}")
        return Comparison(
            label=label,
            floor=[pair[0] for pair in pairs],
            product=[pair[1] for pair in pairs],
            note=note,
            goal=goal,
        )


Measure = Callable[[Bench], Iterator[Comparison]]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the table. `goal` is a comparison with the ratio, such as `<= 4` or `>= 1.5`."""

    number: int
    title: str
    unit: str
    goal: str
    higher_is_better: bool
    measure: Measure

    def goal_of(self, comparison: Comparison) -> str:
        """Return the goal of a variant: its own, or the row's."""
        return comparison.goal or self.goal

    def reached(self, comparison: Comparison) -> bool:
        """Tell whether a variant's ratio is within its goal."""
        sign, limit = self.goal_of(comparison).split()
        return comparison.ratio >= float(limit) if sign == ">=" else comparison.ratio <= float(limit)


ROWS: dict[int, Row] = {}


def bench_row(
    *, number: int, title: str, unit: str, goal: str, higher_is_better: bool = False
) -> Callable[[Measure], Measure]:
    """Register a row; `number` is its place in the table, `goal` is read by `Row.reached`."""

    def register(measure: Measure) -> Measure:
        if number in ROWS:
            raise ValueError(f"row {number} is registered twice")
        ROWS[number] = Row(
            number=number,
            title=title,
            unit=unit,
            goal=goal,
            higher_is_better=higher_is_better,
            measure=measure,
        )
        return measure

    return register
