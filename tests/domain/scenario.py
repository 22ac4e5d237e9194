"""A small interpreter of autoscaler stories: commands, and below each the transcript that is expected.

A story plays on one topic under a simulated clock. Traffic is spread evenly over a range of hashes; every
ten seconds each active segment is sampled and reported when its rates changed materially; the autoscaler
ticks at the policy's interval, when a consumer joins, and at the next instant that a decision names.
Commands:

topic [segments=N] [field=value ...] a fresh topic and its policy policy field=value ... change policy
fields traffic [over=0000-7fff] [swing=0.2 period=240] metric=rate ... add traffic; rates by the load's
names quiet end all traffic consumers name=N ... so many consumers of each stream subscription from now on
operations seconds=N how long a split or merge takes from now on load known=true|false whether the load
pipeline keeps up run duration let time pass, as in 90s, 10m, 2h show the active segments

`python -m tests.domain.scenario FILE ...` writes the transcripts anew; read the difference before you keep
it.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from scalable.domain.autoscale import Decision, Rebucket, Snapshot, Split, decide
from scalable.domain.decision import Action
from scalable.domain.keyspace import HashRange
from scalable.domain.layout import Layout, ReshapePlan, Segment
from scalable.domain.load import METRICS, LoadRecord, SegmentRates, is_material
from scalable.domain.policy import parse_override, resolve

SAMPLE_MS = 10_000
UNITS = {"s": 1_000, "m": 60_000, "h": 3_600_000}
SEPARATOR = "----"


@dataclass(frozen=True)
class Traffic:
    """Rates spread evenly over a range, swinging about their mean."""

    hash_range: HashRange
    rates: dict[str, float]
    swing: float
    period_seconds: float

    def share(self, segment: Segment, metric: str, now_ms: int) -> float:
        """Give what falls on a segment now."""
        shared = self.hash_range.intersection(segment.hash_range) if metric in self.rates else None
        if shared is None:
            return 0.0
        phase = math.sin(2 * math.pi * now_ms / 1000 / self.period_seconds)
        return self.rates[metric] * (1 + self.swing * phase) * shared.size / self.hash_range.size


@dataclass
class Story:
    """The world of one story."""

    now_ms: int = 0
    layout: Layout = field(default_factory=lambda: Layout.initial(1, 0))
    override: dict[str, object] = field(default_factory=dict)
    traffic: list[Traffic] = field(default_factory=list)
    loads: dict[int, LoadRecord] = field(default_factory=dict)
    consumers: dict[str, int] = field(default_factory=dict)
    load_known: bool = True
    operation_ms: int = 0
    running: tuple[int, ReshapePlan] | None = None
    last_ms: dict[str, int] = field(default_factory=dict)
    due_ms: int = 0
    last_key: str = ""
    lines: list[str] = field(default_factory=list)

    def execute(self, command: str) -> list[str]:
        """Run one command and give its transcript."""
        self.lines = []
        verb, *words = command.split()
        arguments = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        getattr(self, f"do_{verb}")(*plain, **arguments)
        return self.lines or ["ok"]

    def do_topic(self, segments: str = "1", **policy: str) -> None:
        """Begin with a fresh topic."""
        self.layout = Layout.initial(int(segments), self.now_ms)
        self.do_policy(**policy)

    def do_policy(self, **policy: str) -> None:
        """Set policy fields."""
        self.override |= parse_override({name: json_value(value) for name, value in policy.items()})
        self.due_ms = self.now_ms + self.interval_ms

    def do_traffic(self, over: str = "0000-ffff", swing: str = "0", period: str = "60", **rates: str) -> None:
        """Add traffic."""
        wanted = {metric: float(rate) for metric, rate in rates.items()}
        assert set(wanted) <= set(METRICS), rates
        self.traffic.append(Traffic(HashRange.parse_hex(over), wanted, float(swing), float(period)))

    def do_quiet(self) -> None:
        """End all traffic."""
        self.traffic.clear()

    def do_consumers(self, **counts: str) -> None:
        """Set the consumers of subscriptions, which evaluates at once."""
        self.consumers |= {name: int(count) for name, count in counts.items()}
        self.tick()

    def do_operations(self, seconds: str) -> None:
        """Set how long an operation takes."""
        self.operation_ms = int(seconds) * 1000

    def do_load(self, known: str) -> None:
        """Set whether the load pipeline keeps up."""
        self.load_known = known == "true"

    def do_show(self) -> None:
        """Print the active segments."""
        self.lines.append(f"epoch {self.layout.epoch}: {' '.join(map(describe, self.layout.active))}")

    def do_run(self, duration: str) -> None:
        """Let time pass, and print what the autoscaler says that it has not said before."""
        end_ms = self.now_ms + int(duration[:-1]) * UNITS[duration[-1]]
        before = self.layout
        while self.now_ms < end_ms:
            self.now_ms = self.next_event_ms(end_ms)
            self.finish_operation()
            if self.now_ms % SAMPLE_MS == 0:
                self.sample()
            if self.now_ms >= self.due_ms:
                self.tick()
        changes = self.layout.epoch - before.epoch
        self.lines.append(f"{clock(self.now_ms)} {changes} changes, {len(self.layout.active)} segments")

    def next_event_ms(self, end_ms: int) -> int:
        """Give the next instant at which anything can happen."""
        sample_ms = self.now_ms - self.now_ms % SAMPLE_MS + SAMPLE_MS
        finish_ms = self.running[0] if self.running else end_ms
        return max(min(sample_ms, self.due_ms, finish_ms, end_ms), self.now_ms + 1)

    @property
    def interval_ms(self) -> int:
        """Give the time between two ticks."""
        return round(resolve(self.override).policy.auto_scale_interval_seconds * 1000)

    def sample(self) -> None:
        """Report what changed materially, as the load pipeline does."""
        for segment in self.layout.active:
            rates = SegmentRates(
                *(
                    sum(each.share(segment, metric, self.now_ms) for each in self.traffic)
                    for metric in METRICS
                )
            )
            known = self.loads.get(segment.segment_id)
            if is_material(known.rates if known else None, rates):
                self.loads[segment.segment_id] = LoadRecord(rates, self.now_ms)

    def tick(self) -> None:
        """Decide, act and say so."""
        decision = decide(self.snapshot(), self.now_ms)
        tick_ms = self.now_ms + self.interval_ms
        self.due_ms = min(tick_ms, decision.next_eligible_at_ms or tick_ms)
        if decision.key != self.last_key or decision.action:
            self.lines += [f"{clock(self.now_ms)} {line}" for line in describe_decision(decision)]
        self.last_key = decision.key
        if decision.action:
            self.begin(decision.action)

    def snapshot(self) -> Snapshot:
        """Give what the autoscaler sees."""
        return Snapshot(
            layout=self.layout,
            policy=resolve(self.override).policy,
            loads=self.loads,
            stream_consumers=self.consumers,
            last_split_at_ms=self.last_ms.get("SPLIT"),
            last_merge_at_ms=self.last_ms.get("MERGE"),
            operations_in_flight=int(self.running is not None),
            load_known=self.load_known,
        )

    def begin(self, action: Action) -> None:
        """Start an operation; its cooldown counts from now."""
        assert not isinstance(action, Rebucket), "stories are of segments"
        if isinstance(action, Split):
            plan = self.layout.plan_split(action.segment_id, action.cuts or None)
        else:
            plan = self.layout.plan_merge(action.segment_ids)
        self.layout = self.layout.reserve(plan)
        self.last_ms[plan.kind.value] = self.now_ms
        self.running = (self.now_ms + self.operation_ms, plan)
        self.finish_operation()

    def finish_operation(self) -> None:
        """Commit the running operation when its time has come."""
        if self.running and self.now_ms >= self.running[0]:
            self.layout = self.layout.apply(self.running[1], self.now_ms)
            self.layout.check()
            self.running = None


def describe(segment: Segment) -> str:
    """Give a segment as id and range."""
    return f"{segment.segment_id}={segment.hash_range.hex}"


def describe_decision(decision: Decision) -> Iterator[str]:
    """Give a decision as lines: what fires and by how much, or each guard that holds something back."""
    ids = ",".join(map(str, decision.segment_ids))
    if decision.fired is not None:
        fired = decision.fired
        yield f"{decision.kind} {ids}: {decision.rule} {fired.current:g} against {fired.threshold:g}"
        return
    if not decision.held_by:
        yield decision.rule
    for guard in decision.held_by:
        held = ",".join(map(str, guard.segment_ids))
        numbers = (
            f" {guard.detail}" if guard.current is None else f" {guard.current:g} against {guard.threshold:g}"
        )
        until = f", until {clock(guard.next_eligible_at_ms)}" if guard.next_eligible_at_ms else ""
        yield f"{guard.code} holds {guard.rule}{' of ' + held if held else ''}{numbers}{until}".rstrip()


def clock(at_ms: int) -> str:
    """Give an instant as h:mm:ss."""
    seconds = at_ms // 1000
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def json_value(text: str) -> object:
    """Read a value of a command line."""
    if text in {"true", "false"}:
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return text


def play(text: str) -> str:
    """Run a story and give it back with the transcripts that came of it; comments and commands stay."""
    story, blocks = Story(), []
    for block in text.strip().split("\n\n"):
        kept = block.split(f"\n{SEPARATOR}")[0].splitlines()
        commands = [line for line in kept if not line.startswith("#")]
        transcript = [line for command in commands for line in story.execute(command)]
        blocks.append("\n".join([*kept, SEPARATOR, *transcript] if commands else kept))
    return "\n\n".join(blocks) + "\n"


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(play(path.read_text()))
