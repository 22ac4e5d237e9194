"""What a job is told is judged before Spark is started."""

from pathlib import Path
from types import ModuleType

import pytest

from spark import compact, daily_report, policy_replay
from spark.options import source_options


@pytest.mark.parametrize("option", ["--capacity", "--max-segments", "--warm-up-seconds"])
@pytest.mark.parametrize("value", ["-1", "nan", "1e999"])
def test_numbers_out_of_their_bounds_are_mistakes_of_the_command_line(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        policy_replay.parse_options([option, value], {})
    assert caught.value.code == 2
    assert option.strip("-").replace("-", "_") in capsys.readouterr().err.replace("-", "_")


@pytest.mark.parametrize(
    ("job", "option"),
    [(daily_report, "--day"), (policy_replay, "--day"), (policy_replay, "--last-day"), (compact, "--before")],
)
@pytest.mark.parametrize("value", ["20261127", "2026-W48-5", "0001-01-01", "tomorrow"])
def test_days_have_one_form(
    job: ModuleType, option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        job.parse_options([option, value], {})
    assert caught.value.code == 2
    assert f"argument {option}: {value!r} is no day" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[" * 60_000, '{"maxSegments": ' + "[" * 500 + "]" * 500 + "}"])
def test_a_policy_that_cannot_be_read_is_a_mistake_of_the_command_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.json"
    policy.write_text(text)
    with pytest.raises(SystemExit) as caught:
        policy_replay.parse_options(["--policy", str(policy)], {})
    assert caught.value.code == 2
    assert "--policy: " in capsys.readouterr().err


@pytest.mark.parametrize("option", ["starting", "ending"])
@pytest.mark.parametrize(
    "text", ["{", '{"positions": ' + "[" * 60_000, '{"incarnation": ' + "9" * 5_000 + "}"]
)
def test_what_is_no_checkpoint_is_named(option: str, text: str) -> None:
    options = {
        "topic": "topic://public/default/none",
        "url": "http://127.0.0.1:1",
        "token": "x",
        option: text,
    }
    with pytest.raises(ValueError, match=f"{option} is not a checkpoint"):
        source_options(options)
