"""A topic, an operation on it, a blow to its driver, and what must hold half way and at the end."""

from collections.abc import Iterable

from scalable.domain.errors import SegmentTerminated
from scalable.domain.operations import TRANSACTIONAL_NEXT, TRANSITIONS, OperationKind, Outcome, Phase
from scalable.services import sweeping
from scalable.services.scaling import OperationView
from scalable.services.topics import TopicView
from scalable.store.operations import read
from tests.faults.conftest import Plane
from tests.faults.strikes import Strike
from tests.topology import append, append_everywhere, layout_of, make_topic, read_all, request, store_ids


class Scene:
    """A topic, an operation on it with a blow to come, and all messages that were acknowledged."""

    def __init__(self, kind: OperationKind, strike: Strike) -> None:
        self.title = f"{kind} {strike}"
        self.topic: TopicView = make_topic(self.title.replace(" ", "-"))
        self.messages = append_everywhere(self.topic, "before")
        self.operation: OperationView = request(kind, self.topic, reason=str(strike))

    def check_half_way(self) -> None:
        """The layout is the old or the new one; whoever still takes messages keeps them."""
        assert read(self.operation.operation_id).attempts == 1
        plan = self.operation.plan
        active = {segment.segment_id for segment in layout_of(self.topic).active}
        assert active in ({0, 1}, {0, 1} - set(plan.parent_ids) | set(plan.child_ids))
        for segment_id in active:
            value = f"half way in {segment_id}"
            try:
                append(self.topic, segment_id, value)
            except SegmentTerminated:
                continue
            self.messages.add(value)

    def check_end(self) -> None:
        """The operation succeeded, and the topic is as if nothing had happened to its driver."""
        done = read(self.operation.operation_id)
        assert (done.outcome, done.epoch, done.error) == (Outcome.SUCCEEDED, 1, None)
        layout = layout_of(self.topic)
        assert layout.epoch == 1
        assert store_ids(self.topic) == set(layout.segments)
        self.messages |= append_everywhere(self.topic, f"after {len(self.messages)}")
        assert sorted(read_all(self.topic)) == sorted(self.messages)


def set_scenes(strikes: Iterable[tuple[OperationKind, Strike]]) -> dict[str, Scene]:
    """Set a scene for each strike, by operation id, after removing what earlier tests left in the stores."""
    sweeping.sweep_stores()
    scenes = [Scene(kind, strike) for kind, strike in strikes]
    return {scene.operation.operation_id: scene for scene in scenes}


def phases_of(plane: Plane) -> list[Phase]:
    """Give the phases that an operation walks on this data plane."""
    if plane.port.transactional:
        return list(TRANSACTIONAL_NEXT.values())
    return [phase for phase, _ in TRANSITIONS.values()]


def finished(operation: OperationView) -> bool:
    """Put back on the queue what waits, then tell whether this operation has ended."""
    sweeping.sweep_operations()
    return read(operation.operation_id).outcome is not None
