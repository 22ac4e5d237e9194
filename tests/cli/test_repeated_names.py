"""A policy that has a name twice means one value or the other: it is refused before anything is sent."""

from pathlib import Path

import pytest

from tests.cli.conftest import Command

TWICE = '{"maxSegments": 8, "minSegments": 1, "maxSegments": 9}'


@pytest.mark.parametrize(
    "words",
    [
        ("policies", "set", "public/default/x", "--json", TWICE),
        ("policies", "set", "public/default", "--json", TWICE),
        ("policies", "set", "public/default/x", "--json", '{"a": [{"maxSegments": 8, "maxSegments": 8}]}'),
        ("policies", "set", "public/default/x", f"profile={TWICE}"),
        ("what-now", "public/default/x", f"profile={TWICE}"),
        ("jobs", "policy-replay", "--policy", "{file}"),
    ],
)
def test_a_name_that_a_policy_has_twice_is_named(
    offline_command: Command, words: tuple[str, ...], tmp_path: Path
) -> None:
    file = tmp_path / "policy.json"
    file.write_text(TWICE)
    result = offline_command(*(word.replace("{file}", str(file)) for word in words))
    assert (result.status, result.out) == (2, "")
    assert "'maxSegments' is in one object twice" in result.err
