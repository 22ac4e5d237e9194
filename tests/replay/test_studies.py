"""The tables of the documents are made of the very replays that the command plays."""

import pytest

from replay import keys, studies
from replay.run import load_named, replay
from replay.setup import Setup
from scalable.domain.profiles import RECOMMENDED

SETUP = Setup(points=24, coarse_points=24, warm_up_seconds=0)
PLAYS = [("nyc_taxi", keys.uniform()), ("nyc_taxi", keys.dominant(0.6))]
VARIANTS = {"as it is": {}, "without several operations a tick": studies.OPTIONS["several operations a tick"]}


def test_a_line_for_each_variant_and_a_cell_for_each_play_as_they_end() -> None:
    head, *lines = studies._by_variant(SETUP, VARIANTS, PLAYS)
    assert head == "| | nyc_taxi | nyc_taxi, dominant:0.6 |\n|---|---|---|\n"
    load = load_named("nyc_taxi", SETUP)
    for line, (label, override) in zip(lines, VARIANTS.items(), strict=True):
        found = [
            replay(name, load, "recommended", setup=SETUP, keys=spread, override=override)[0]
            for name, spread in PLAYS
        ]
        cells = [
            f"{each.violation_percent:.2f} / {each.segments_over_clairvoyant:.2f}x / {each.actions}"
            for each in found
        ]
        assert line == f"| {label} | " + " | ".join(cells) + " |\n"
    assert lines[0] != lines[1].replace("without several operations a tick", "as it is")


@pytest.mark.parametrize("name", studies.OPTIONS)
def test_each_option_is_one_of_the_recommended_profile_taken_away(name: str) -> None:
    for field, value in studies.OPTIONS[name].items():
        assert RECOMMENDED[field] != value
