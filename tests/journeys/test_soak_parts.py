"""The soak's judges and rules find faults that are planted, and nothing where all is well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from launch import soak
from launch.soak.inspector import sighting_of
from launch.soak.journal import Did, Journal, JournalReader, Line
from launch.soak.rules import Held, Rules, Sighting
from launch.soak.verdict import (
    Verdict,
    judge_checkpoint,
    judge_queue,
    judge_stream,
    lasting,
    received,
    sent,
)

Judge = Callable[[set[tuple[str, int]], Sequence[Sequence[Line]]], Verdict]
PRODUCED = {("a", number) for number in range(4)} | {("b", 0)}


def got(at: float, key: str, number: int, offset: int | None = None, *, segment_id: int = 0) -> Line:
    place = [segment_id, number if offset is None else offset]
    return Line(at, Did.GOT, [key, number, *place])


def kept(at: float, what: object) -> Line:
    return Line(at, Did.KEPT, what)


ONE = [got(1, "a", 0), got(2, "a", 1), kept(3, [[0, 2]])]
OTHER = [got(4, "a", 2), got(5, "b", 0, 0, segment_id=1), got(6, "a", 3), kept(7, [[0, 4], [1, 1]])]


def figures(verdict: Verdict) -> tuple[int, int, int]:
    return verdict.lost, verdict.reordered, verdict.duplicated


def test_what_two_members_received_in_turn_is_in_order() -> None:
    assert figures(judge_stream(PRODUCED, [ONE, OTHER])) == (0, 0, 0)
    assert received([ONE, OTHER]) == PRODUCED


def test_a_lost_message_is_found_and_named() -> None:
    verdict = judge_stream(PRODUCED, [ONE, OTHER[1:]])
    assert verdict.lost == 1
    assert "a: 2 never came" in verdict.examples
    assert judge_queue(PRODUCED, [ONE, OTHER[1:]]).lost == 1


def test_a_message_ahead_of_its_predecessor_is_found_even_when_both_came() -> None:
    late = [got(4, "a", 3), got(5, "a", 2), got(6, "b", 0, 0, segment_id=1)]
    assert figures(judge_stream(PRODUCED, [ONE, late])) == (0, 1, 0)
    assert figures(judge_queue(PRODUCED, [ONE, late])) == (0, 0, 0)


def test_what_was_not_acknowledged_may_come_again_but_in_order() -> None:
    again = [got(8, "a", 2), got(9, "a", 3)]
    unkept = OTHER[:-1]
    assert figures(judge_stream(PRODUCED, [ONE, [*unkept, *again]])) == (0, 0, 0)
    from_the_start = [got(3, "a", 0), *OTHER]
    assert figures(judge_stream(PRODUCED, [ONE[:2], from_the_start])) == (0, 1, 0), "1 must come again, too"


@pytest.mark.parametrize("judge", [judge_stream, judge_queue])
def test_what_was_acknowledged_must_not_come_again(judge: Judge) -> None:
    again = [got(8, "a", 3)]
    verdict = judge(PRODUCED, [ONE, OTHER, again])
    assert (verdict.lost, verdict.duplicated) == (0, 1)


def test_single_acknowledgements_count_for_themselves() -> None:
    first = [got(1, "a", 1), kept(2, [[0, [1]]])]
    rest = [got(3, "a", 0), got(4, "a", 0), got(5, "a", 2), got(6, "a", 3), got(7, "b", 0, 9)]
    assert figures(judge_queue(PRODUCED, [first, rest])) == (0, 0, 0)
    assert figures(judge_queue(PRODUCED, [first, [*rest, got(8, "a", 1)]])) == (0, 0, 1)


def test_a_message_that_is_stored_twice_is_found() -> None:
    assert figures(judge_stream(PRODUCED, [ONE, OTHER, [got(8, "b", 0, 1, segment_id=1)]])) == (0, 0, 1)


def test_after_a_crash_what_followed_the_checkpoint_never_happened() -> None:
    life = [Line(0, Did.BEGAN, None), got(1, "a", 0), kept(2, {}), got(3, "a", 1)]
    next_life = [Line(4, Did.BEGAN, None), *(got(5, "a", number) for number in (1, 2, 3)), got(6, "b", 0)]
    assert figures(judge_checkpoint(PRODUCED, [[*life, *next_life, kept(7, {})]])) == (0, 0, 0)
    assert judge_checkpoint(PRODUCED, [[*life, *next_life]]).lost == 4
    assert lasting([[*life, *next_life]]) == {("a", 0)}, "what was received in vain is to come again"
    doubled = [got(5, "a", 0), *next_life[1:]]
    assert figures(judge_checkpoint(PRODUCED, [[*life, next_life[0], *doubled, kept(7, {})]])) == (0, 0, 1)
    skipped = [next_life[0], got(5, "a", 2), got(5, "a", 1), *next_life[3:], kept(7, {})]
    assert judge_checkpoint(PRODUCED, [[*life, *skipped]]).reordered == 1


def test_a_journal_survives_a_line_that_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    reader = JournalReader(path)
    assert reader.read() == []
    Journal(path).sent("a", 0)
    with path.open("ab") as file:
        file.write(b'[1.5, "sent", ["a"')
    assert sent([reader.read()]) == {("a", 0)}
    Journal(path).sent("a", 1)
    assert sent([reader.read()]) == {("a", 1)}
    assert sent([reader.lines]) == {("a", 0), ("a", 1)}
    assert path.stat().st_mode & 0o777 == 0o600


def held(segment_id: int, owner: str, *, generation: int = 1, next_owner: str | None = None) -> Held:
    return Held((segment_id, 0), owner, next_owner, generation)


FAIR = Sighting(
    incarnation=1,
    term=2,
    generation=5,
    consumers=("x", "y"),
    held=(held(1, "x"), held(2, "y")),
    parents={0: (), 1: (0,), 2: (0,), 3: (1, 2)},
    backlogs={0: 0, 1: 7, 2: 7},
)


def violations(*sightings: Sighting) -> list[str]:
    rules = Rules()
    for sighting in sightings:
        rules.look(sighting)
    assert rules.sightings == len(sightings)
    return rules.violations


def test_a_fair_assignment_breaks_no_rule() -> None:
    later = replace(FAIR, term=3, generation=6, held=(held(1, "x", generation=2), held(2, "y")))
    assert violations(FAIR, FAIR, later, later) == []


def test_two_owners_of_a_segment_are_found() -> None:
    both = replace(FAIR, held=(*FAIR.held, held(1, "y")))
    assert violations(both) == ["(1, 0) has 2 owners: x, y"]


def test_a_child_before_its_ancestors_is_found() -> None:
    grandchild = replace(FAIR, held=(held(3, "x"),), backlogs={0: 2, 1: 0, 2: 0})
    assert violations(grandchild) == ["3 has an owner while its ancestor 0 has 2 messages left"]
    assert violations(replace(grandchild, backlogs={1: 0, 2: 0})) == [], "a pruned ancestor has none"


@pytest.mark.parametrize(
    "worse",
    [
        replace(FAIR, term=1),
        replace(FAIR, generation=4),
        replace(FAIR, held=(held(1, "x", generation=0), held(2, "y"))),
    ],
)
def test_what_goes_back_is_found(worse: Sighting) -> None:
    (violation,) = violations(FAIR, worse)
    assert "back to" in violation


def test_an_uneven_spread_is_found_once_nothing_changes_hands() -> None:
    uneven = replace(FAIR, held=(held(1, "x"), held(2, "x")))
    moving = replace(FAIR, held=(held(1, "x"), held(2, "x", next_owner="y")))
    assert violations(uneven) == [], "one look may be in the middle of things"
    assert violations(moving, moving) == []
    (violation,) = violations(uneven, uneven)
    assert "unevenly" in violation
    assert violations(replace(FAIR, consumers=(), held=()), replace(FAIR, consumers=(), held=())) == []


def test_a_sighting_is_put_together_from_what_rest_answers() -> None:
    unit = {"segmentId": 1, "bucket": 0, "generation": 3, "nextOwner": None}
    sighting = sighting_of(
        {"incarnation": 4, "segments": {"0": {"parentIds": []}, "1": {"parentIds": [0]}}},
        {
            "leader": {"term": 2, "url": None},
            "generation": 9,
            "waitsFor": {"1": [0]},
            "consumers": [
                {"consumerName": "y", "units": []},
                {"consumerName": "x", "units": [unit]},
            ],
        },
        {"type": "STREAM", "segments": {"0": {"msgBacklog": 5}, "1": {"msgBacklog": 0}}},
    )
    assert sighting.consumers == ("x", "y")
    assert sighting.held == (held(1, "x", generation=3),)
    assert violations(sighting) == [
        "1 has an owner while its ancestor 0 has 5 messages left",
        "1 has an owner while it waits for (0,)",
    ]


@pytest.mark.parametrize("minutes", ["0", "-1", "x", "1441", "nan"])
def test_a_duration_that_makes_no_sense_is_refused(minutes: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        soak.parse([f"--minutes={minutes}"])
    assert "is not a number of minutes" in capsys.readouterr().err
