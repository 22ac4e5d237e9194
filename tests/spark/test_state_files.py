"""State files: the state before a micro-batch, whatever happened to later ones."""

from pathlib import Path

import pytest

from spark.state_files import KEPT_FILES, StateFiles


@pytest.fixture(params=["path", "uri"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A directory that does not exist yet."""
    directory = tmp_path / "not yet" / "state"
    return directory.as_uri() if request.param == "uri" else str(directory)


def test_a_repeated_micro_batch_finds_the_state_before_it(location: str) -> None:
    files = StateFiles(location)
    files.save(0, b"after 0")
    files.save(1, b"after 1")
    again = StateFiles(location)
    assert again.load_before(1) == b"after 0"
    again.save(1, b"after 1, again")
    assert again.load_before(2) == b"after 1, again"


def test_there_is_none_before_the_first_and_behind_a_gap(location: str) -> None:
    files = StateFiles(location)
    assert files.load_before(0) is None
    files.save(4, b"after 4")
    assert files.load_before(6) is None


def test_few_are_kept(location: str, tmp_path: Path) -> None:
    files = StateFiles(location)
    for batch_id in range(20):
        files.save(batch_id, b"state")
    assert len(list((tmp_path / "not yet" / "state").iterdir())) == KEPT_FILES


def test_one_that_was_not_written_whole_does_not_count(location: str, tmp_path: Path) -> None:
    files = StateFiles(location)
    (tmp_path / "not yet" / "state" / "000000000000.state.partial").write_bytes(b"after")
    assert files.load_before(1) is None


def test_a_new_query_in_the_same_place_starts_without_the_old_states(location: str) -> None:
    files = StateFiles(location)
    for batch_id in range(100, 103):
        files.save(batch_id, b"old")
    assert files.load_before(0) is None
    files.save(0, b"new")
    assert files.load_before(101) is None
