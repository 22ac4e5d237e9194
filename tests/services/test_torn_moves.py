"""Moves on an outside data plane that end in the middle: nobody is stranded, and nothing passed by."""

from collections.abc import Callable
from typing import Any

import pytest

from scalable.domain.errors import (
    GenerationSuperseded,
    PositionInvalid,
    SubscriptionTypeMismatch,
    Unavailable,
)
from scalable.domain.operations import OperationKind
from scalable.domain.subscriptions import SubscriptionType
from scalable.models import CursorMove
from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.registry import segment_port, use_port
from scalable.services import auditing, moves, seeking, settling, subscriptions
from scalable.services.positions import AtPositions, Start
from scalable.services.topics import TopicView
from scalable.store import moves as notes
from scalable.store.subscriptions import SubscriptionView
from tests.services.group import Group
from tests.services.mortal import Crash, MortalSegments
from tests.services.test_subscriptions import backlog, create
from tests.topology import append_everywhere, drive, layout_of, make_topic, request

pytestmark = pytest.mark.django_db

MOVES: dict[str, Callable[[TopicView], object]] = {
    "earliest": lambda topic: seek(topic, "earliest"),
    "positions": lambda topic: seek(topic, AtPositions({0: 1, 1: 0, 2: 1})),
    "clear": lambda topic: seeking.clear_backlog(name=topic.name, subscription="s"),
    "skip": lambda topic: seeking.skip(name=topic.name, subscription="s", count=3),
}


def seek(topic: TopicView, start: Start) -> object:
    return seeking.seek(name=topic.name, subscription="s", start=start)


def read_group(name: str, *, key_shared: bool) -> Group:
    """A group with a sealed segment and two open ones, half of it read."""
    topic = make_topic(name, segments=1)
    group = Group(topic, key_shared=key_shared)
    group.join("a", "b")
    append_everywhere(topic, "early")
    append_everywhere(topic, "then")
    drive(request(OperationKind.SPLIT, topic))
    append_everywhere(topic, "late")
    append_everywhere(topic, "later")
    drain(group)
    append_everywhere(topic, "last")
    return group


def drain(group: Group) -> None:
    """Acknowledge all that anybody owns, until nothing new is opened; ancestors come first."""
    layout = layout_of(group.topic)
    done: set[int] = set()
    while found := {key for key in group.bucket_owners() if key.segment_id not in done}:
        for key in found:
            assert all(not backlog(group.topic)[parent] for parent in layout.ancestors(key.segment_id))
        for key in found:
            group.drain(key.segment_id, bucket=key.bucket)
            done.add(key.segment_id)
        for consumer in ("a", "b"):
            group.release_all(consumer)


def is_noted() -> bool:
    return CursorMove.objects.exists()


def let_it_age() -> None:
    CursorMove.objects.update(noted_at="2000-01-01T00:00:00Z")


@pytest.mark.slow
@pytest.mark.parametrize("key_shared", [False, True])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("move", MOVES)
def test_whoever_dies_in_a_move_strands_nobody(
    mortal: MortalSegments, move: str, after: bool, key_shared: bool
) -> None:
    """At every write, in turn, with no time to put anything back."""
    mortal.after, step, went_through = after, 0, False
    while not went_through:
        step += 1
        group = read_group(f"torn{step}", key_shared=key_shared)
        mortal.left = step
        try:
            MOVES[move](group.topic)
            went_through = True
        except Crash:
            assert is_noted()
        mortal.left = None
        assert went_through != is_noted()
        let_it_age()
        moves.settle_left_behind()
        assert not is_noted()
        drain(group)
        assert sum(backlog(group.topic).values()) == 0
    assert step > 2


def test_who_comes_before_a_torn_move_is_settled_is_given_the_ancestors_first(mortal: MortalSegments) -> None:
    """All cursors are back at the beginning, and the metadata knows nothing of it."""
    group = read_group("torn", key_shared=False)
    mortal.left = len(layout_of(group.topic).segments) + 2  # the fence comes first
    with pytest.raises(Crash):
        seek(group.topic, "earliest")
    mortal.left = None
    assert backlog(group.topic) == {0: 2, 1: 3, 2: 3}
    group.join("c")
    group.release_all("a")
    group.release_all("b")
    assert group.owners().keys() == {0}


@pytest.mark.parametrize("move", MOVES)
def test_who_dies_before_the_commit_strands_nobody(
    mortal: MortalSegments, move: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = read_group("torn", key_shared=False)

    def end(*_: object, **__: object) -> None:
        raise Crash

    monkeypatch.setattr(auditing, "record", end)
    with pytest.raises(Crash):
        MOVES[move](group.topic)
    let_it_age()
    moves.settle_left_behind()
    drain(group)
    assert sum(backlog(group.topic).values()) == 0


@pytest.mark.parametrize("key_shared", [False, True])
@pytest.mark.parametrize("move", MOVES)
def test_a_move_that_fails_leaves_its_owners_able_to_acknowledge(
    mortal: MortalSegments, move: str, key_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The metadata database went away after the data plane had fenced the owners off."""
    group = read_group("torn", key_shared=key_shared)

    def end(*_: object, **__: object) -> None:
        raise ConnectionError

    with monkeypatch.context() as patched:
        patched.setattr(auditing, "record", end)
        with pytest.raises(ConnectionError):
            MOVES[move](group.topic)
    assert not is_noted()
    drain(group)
    assert sum(backlog(group.topic).values()) == 0


@pytest.mark.parametrize("lost", [1, 5])
@pytest.mark.parametrize("key_shared", [False, True])
def test_an_owner_whom_only_the_data_plane_fenced_off_gets_a_new_generation(
    mortal: MortalSegments, key_shared: bool, lost: int
) -> None:
    """Whichever transactions they were that the database lost: none need have moved a cursor."""
    group = read_group("torn", key_shared=key_shared)
    (key, _), *_ = group.bucket_owners().items()
    held = group.generation(key.segment_id, key.bucket)
    (cursor,) = [each for each in mortal.cursors(group.key(key.segment_id)) if each.generation == held][:1]
    mortal.own(group.key(key.segment_id), subscription=cursor.subscription, generation=held + lost)
    with pytest.raises(GenerationSuperseded):
        group.drain(key.segment_id, bucket=key.bucket)
    assert group.generation(key.segment_id, key.bucket) == held + lost + 1
    drain(group)
    assert sum(backlog(group.topic).values()) == 0


def test_who_was_fenced_off_for_good_disturbs_nobody(mortal: MortalSegments) -> None:
    group = read_group("torn", key_shared=False)
    seek(group.topic, "earliest")
    held = group.generation(0)
    with pytest.raises(GenerationSuperseded):
        group.acknowledge(0, 1, generation=held - 1)
    assert group.generation(0) == held


def test_a_move_that_is_refused_changes_nothing(mortal: MortalSegments) -> None:
    group = read_group("torn", key_shared=False)
    before = {key: group.generation(key) for key in (0, 1, 2)}
    with pytest.raises(PositionInvalid):
        seek(group.topic, AtPositions({0: 99}))
    assert {key: group.generation(key) for key in (0, 1, 2)} == before
    assert not is_noted()


def test_a_group_of_checkpoints_is_never_noted(
    mortal: MortalSegments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has drained stands in the metadata alone, and its cursors would tell otherwise."""
    topic = make_topic(segments=1)
    create(topic, kind=SubscriptionType.CHECKPOINT)
    monkeypatch.delattr(notes, "note")
    with pytest.raises(SubscriptionTypeMismatch):
        seek(topic, "earliest")


def test_a_note_that_was_taken_off_before_the_move_began_ends_it(
    mortal: MortalSegments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its process stood still for long just then."""
    group = read_group("torn", key_shared=False)
    before = backlog(group.topic)
    noted = notes.note

    def note(subscription_id: int) -> int:
        note_id = noted(subscription_id)
        let_it_age()
        moves.settle_left_behind()
        return note_id

    monkeypatch.setattr(notes, "note", note)
    with pytest.raises(Unavailable):
        seek(group.topic, "earliest")
    assert backlog(group.topic) == before


@pytest.mark.parametrize("start", ["latest", AtPositions({0: 99})])
def test_a_torn_move_is_settled_whatever_else_is_refused_meanwhile(
    mortal: MortalSegments, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that is repeated while the data plane is still away, or with a mistake in it."""
    group = read_group("torn", key_shared=False)
    mortal.left = 2
    with pytest.raises(Crash):
        seek(group.topic, "earliest")
    mortal.left = None
    with monkeypatch.context() as patched:
        if start == "latest":
            patched.setattr(seeking, "backlog_of", fail)
        with pytest.raises((ConnectionError, PositionInvalid)):
            seek(group.topic, start)
    assert is_noted()
    let_it_age()
    moves.settle_left_behind()
    assert not is_noted()
    drain(group)
    assert sum(backlog(group.topic).values()) == 0


def fail(*_: object, **__: object) -> None:
    raise ConnectionError


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("after", [1, 2])
def test_who_has_lost_the_locks_moves_no_further_and_puts_nothing_back(
    mortal: MortalSegments, move: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stood still between two cursors until its session was ended, and others had settled what it left."""
    group = read_group("torn", key_shared=False)
    checks, places = [], []
    is_there = notes.is_there

    def lost(note_id: int, subscription_id: int) -> bool:
        checks.append(note_id)
        if len(checks) == after + 1:
            places.append(cursor_places(group))
        return len(checks) <= after and is_there(note_id, subscription_id)

    with monkeypatch.context() as patched:
        patched.setattr(notes, "is_there", lost)
        with pytest.raises(Unavailable):
            MOVES[move](group.topic)
    assert places == [cursor_places(group)]
    assert not is_noted()
    drain(group)
    assert sum(backlog(group.topic).values()) == 0


def cursor_places(group: Group) -> list[tuple[int, int]]:
    port = segment_port()
    return [(key, each.position) for key in (0, 1, 2) for each in port.cursors(group.key(key))]


def test_moves_that_wait_for_each_other_are_all_made(mortal: MortalSegments) -> None:
    """The note of one is not taken off by the other."""
    group = read_group("torn", key_shared=False)
    waiting = notes.note(group.subscription_id)
    seek(group.topic, "earliest")
    assert notes.is_there(waiting, group.subscription_id)


def test_one_subscription_that_cannot_be_settled_holds_up_no_other(
    mortal: MortalSegments, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, other = read_group("torn", key_shared=False), read_group("also-torn", key_shared=False)
    for each in (group, other):
        notes.note(each.subscription_id)
    let_it_age()
    settle = settling.sought

    def sought(locked: SubscriptionView, **how: Any) -> None:
        if locked.subscription_id == group.subscription_id:
            raise ConnectionError
        settle(locked, **how)

    monkeypatch.setattr(moves, "sought", sought)
    moves.settle_left_behind()
    assert [each.subscription_id for each in CursorMove.objects.all()] == [group.subscription_id]


def test_a_data_plane_in_the_database_needs_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(notes, "note")
    monkeypatch.delattr(notes, "is_noted")
    with use_port(EmbeddedSegments()):
        group = read_group("torn", key_shared=False)
        for move in MOVES.values():
            move(group.topic)
        moves.settle_left_behind()


def test_a_move_under_way_is_let_be(
    transactional_db: None, mortal: MortalSegments, second_connection: Callable[[str], None]
) -> None:
    group = read_group("torn", key_shared=False)
    notes.note(group.subscription_id)
    let_it_age()
    second_connection(
        f"SELECT 1 FROM scalable_subscription WHERE id = {group.subscription_id} FOR NO KEY UPDATE"
    )
    moves.settle_left_behind()
    assert is_noted()
    second_connection("ROLLBACK")
    moves.settle_left_behind()
    assert not is_noted()


def test_a_note_goes_with_its_subscription(mortal: MortalSegments) -> None:
    group = read_group("torn", key_shared=False)
    notes.note(group.subscription_id)
    subscriptions.delete_subscription(name=group.topic.name, subscription="s")
    assert not is_noted()


@pytest.mark.parametrize("key_shared", [False, True])
def test_an_acknowledgement_under_way_undoes_no_seek(
    mortal: MortalSegments, key_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner acknowledges on at each moment of the seek, under the generation that it has till then."""
    group = read_group("torn", key_shared=key_shared)
    held = {key: group.generation(key.segment_id, key.bucket) for key in group.bucket_owners()}
    refused = []

    def acknowledge(*_: object) -> bool:
        for key, generation in held.items():
            try:
                end = mortal.stats(group.key(key.segment_id)).end_offset
                group.acknowledge(key.segment_id, end, bucket=key.bucket, generation=generation)
            except GenerationSuperseded:
                refused.append(key)
        return True

    with monkeypatch.context() as patched:
        patched.setattr(notes, "is_there", acknowledge)
        seek(group.topic, "earliest")
        acknowledge()
    assert backlog(group.topic) == {0: 2, 1: 3, 2: 3}
    assert set(refused) == set(held)


def test_a_young_note_is_let_be(mortal: MortalSegments) -> None:
    group = read_group("torn", key_shared=False)
    notes.note(group.subscription_id)
    moves.settle_left_behind()
    assert is_noted()
