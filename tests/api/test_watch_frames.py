"""Frames of the DAG watch as pure values: a snapshot and its deltas add up to a fresh snapshot."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scalable.api.feeds import Shared, session_field
from scalable.client.topology import Topology as Held
from scalable.client.topology import apply_delta, from_snapshot
from scalable.domain.errors import ScalableError
from scalable.domain.layout import Layout
from scalable.services.watching import Topology, delta, segment_frame, snapshot
from scalable.wire.frames import Delta, ServerFrame, Snapshot, TopicDetail, decode, decoder

NODE_URL = "http://node"
SESSION = 'a "session" \\ with ünusual characters'

_decoder = decoder(ServerFrame)
_number = st.integers(0, 2**16)
_changes = st.one_of(
    st.tuples(st.just("split"), _number),
    st.tuples(st.just("merge"), _number),
    st.tuples(st.just("prune"), _number),
    st.tuples(st.just("reserve"), _number),
    st.tuples(st.just("leader"), st.integers(0, 3)),
    st.tuples(st.just("detail"), st.integers(0, 3)),
)


def state_of(layout: Layout, *, revision: int, detail: TopicDetail | None) -> Topology:
    segments = {key: segment_frame(each, node_url=NODE_URL) for key, each in layout.segments.items()}
    return Topology(
        topic="topic://public/default/t",
        incarnation=1,
        epoch=layout.epoch,
        revision=revision,
        term=0,
        next_segment_id=layout.next_segment_id,
        controller_url=None,
        segments=segments,
        detail=detail,
    )


def reshape(layout: Layout, kind: str, number: int) -> Layout:
    """Change the layout, or leave it when the change is not allowed."""
    active = layout.active
    try:
        if kind == "prune":
            return layout.prune(sorted(layout.segments)[number % len(layout.segments)])
        index = number % len(active)
        if kind == "merge":
            plan = layout.plan_merge([segment.segment_id for segment in active[index : index + 2]])
        else:
            plan = layout.plan_split(active[index].segment_id)
    except ScalableError:
        return layout
    reserved = layout.reserve(plan)
    return reserved if kind == "reserve" else reserved.apply(plan, now_ms=number)


def change(state: Topology, layout: Layout, kind: str, number: int) -> tuple[Topology, Layout]:
    """One commit: the next state, and the layout behind it."""
    revision = state.revision + 1
    if kind == "leader":
        url = f"https://node-{number}" if number else None
        return replace(state, revision=revision, term=state.term + 1, controller_url=url), layout
    if kind == "detail":
        told = None if state.detail is None else TopicDetail(decision={"rule": str(number)})
        return replace(state, revision=revision, detail=told), layout
    layout = reshape(layout, kind, number)
    fresh = state_of(layout, revision=revision, detail=state.detail)
    return replace(fresh, term=state.term, controller_url=state.controller_url), layout


def arrived(frame: Snapshot | Delta) -> Snapshot | Delta:
    """The frame as a client of the session reads it."""
    read = decode(_decoder, Shared(frame).text(session_field(SESSION)))
    assert isinstance(read, Snapshot | Delta)
    assert read.session_id == SESSION
    return read


def held_of(state: Topology) -> Held:
    frame = arrived(snapshot(state))
    assert isinstance(frame, Snapshot)
    return from_snapshot(frame)


@given(st.integers(1, 8), st.booleans(), st.lists(_changes, max_size=40))
def test_snapshot_and_deltas_are_a_fresh_snapshot(
    segments: int, detailed: bool, changes: list[tuple[str, int]]
) -> None:
    layout = Layout.initial(segments, 0)
    state = told = state_of(layout, revision=1, detail=TopicDetail() if detailed else None)
    held = held_of(told)
    for kind, number in changes:
        state, layout = change(state, layout, kind, number)
        if told.looks_like(state):
            fresh = held_of(state)
            assert replace(fresh, revision=held.revision, next_segment_id=held.next_segment_id) == held
            continue
        frame = arrived(delta(told, state))
        assert isinstance(frame, Delta)
        held, told = apply_delta(held, frame), state
        assert held == held_of(state)


@given(st.integers(64, 256))
def test_a_delta_tells_of_a_split_only(segments: int) -> None:
    layout = Layout.initial(segments, 0)
    plan = layout.plan_split(0)
    before = state_of(layout, revision=1, detail=None)
    after = state_of(layout.reserve(plan).apply(plan, now_ms=1), revision=2, detail=None)
    told = delta(before, after)
    assert {segment.segmentId for segment in told.segments} == {0, *plan.child_ids}
    assert told.removed == []
    assert told.detail is None


def test_the_leaders_address_counts_as_encrypted_only_when_it_is() -> None:
    state = state_of(Layout.initial(1, 0), revision=1, detail=None)
    assert replace(state, controller_url="https://node").controller_url_tls == "https://node"
    assert replace(state, controller_url="http://node").controller_url_tls is None
    assert state.controller_url_tls is None
