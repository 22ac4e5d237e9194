"""Days and spans at the command line: judged here; that a day has not begun, by the server's clock."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.conftest import Command

WITH_DAYS = (
    *(("daily-report", "--day"), ("policy-replay", "--day")),
    *(("policy-replay", "--last-day"), ("compact", "--before")),
)


@pytest.mark.parametrize(("name", "option"), WITH_DAYS)
@pytest.mark.parametrize("value", ["20261127", "2026-W48-5", "2026-1-5", "0001-01-01", "2026-02-30", ""])
def test_what_is_no_day_is_refused_before_anything_is_sent(
    offline_command: Command, name: str, option: str, value: str
) -> None:
    result = offline_command("-o", "json", "jobs", name, option, value)
    assert (result.status, result.out, result.error["code"]) == (2, "", "usage")
    assert option in result.error["reason"]
    assert repr(value) in result.error["reason"]


@pytest.mark.parametrize(("name", "option"), WITH_DAYS)
def test_a_day_that_has_not_begun_is_refused_by_its_name_and_value(
    command: Command, name: str, option: str
) -> None:
    today = datetime.now(UTC).date()
    ahead = str(today + timedelta(days=2))
    given = ("--day", str(today), option, ahead) if option == "--last-day" else (option, ahead)
    result = command("-o", "json", "jobs", name, *given)
    assert (result.status, result.error["code"]) == (1, "invalid_parameter")
    fields = {"parameter": {"--last-day": "lastDay"}.get(option, option.strip("-")), "value": ahead}
    assert fields.items() <= result.error["fields"].items()


def test_today_is_no_day_to_come(command: Command) -> None:
    today = str(datetime.now(UTC).date())
    started = command("-o", "json", "jobs", "compact", "--before", today, "--no-wait")
    assert (started.status, started.body["options"]) == (0, {"before": today})
    assert command("jobs", "cancel", started.body["jobId"]).status == 0


@pytest.mark.parametrize("value", ["36601d", "9" * 400 + "d", "99999999999d"])
def test_a_span_beyond_a_century_is_refused_before_anything_is_sent(
    offline_command: Command, value: str
) -> None:
    result = offline_command("-o", "json", "seek", "a/b/c", "-s", "s", "-t", value)
    assert (result.status, result.error["code"]) == (2, "usage")
    assert "a hundred years" in result.error["reason"]


@pytest.mark.parametrize("value", ["\u0663h", "\uff13h", "\u00b2h", "+3h", "-3h", "3 h", "3h\n"])
def test_a_span_is_written_in_plain_digits(offline_command: Command, value: str) -> None:
    result = offline_command("-o", "json", "tokens", "issue", "worker", f"--ttl={value}")
    assert (result.status, result.error["code"]) == (2, "usage")
