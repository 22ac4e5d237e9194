"""What a job is told is judged before Spark is started."""

import pytest

from spark import policy_replay


@pytest.mark.parametrize("option", ["--capacity", "--max-segments", "--warm-up-seconds"])
@pytest.mark.parametrize("value", ["-1", "nan", "1e999"])
def test_numbers_out_of_their_bounds_are_mistakes_of_the_command_line(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        policy_replay.parse_options([option, value], {})
    assert caught.value.code == 2
    assert option.strip("-").replace("-", "_") in capsys.readouterr().err.replace("-", "_")
