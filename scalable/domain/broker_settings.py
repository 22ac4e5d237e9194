"""Settings of the installation by the names of PIP-483 (Configuration): the defaults of all policies.

Values are written as there: `60s` or `5m` for times, `50MB` for sizes (decimal), `25%` for shares, or plain
numbers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from scalable.domain.errors import PolicyUnreadable
from scalable.domain.load import DEFAULT_CHANGE_THRESHOLD
from scalable.domain.policy import ATTRIBUTES, parse_override, resolve, validate

PREFIX = "scalableTopic"
CHANGE_THRESHOLD = f"{PREFIX}LoadReportRateChangeThreshold"
UNITS: Mapping[str, float] = {
    "ms": 0.001,
    "s": 1,
    "m": 60,
    "h": 3_600,
    "d": 86_400,
    "b": 1,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "%": 0.01,
}
_QUANTITY = re.compile(r"(?P<number>[+-]?[0-9][0-9_]*(?:\.[0-9]+)?)\s*(?P<unit>[a-z%]*)", re.IGNORECASE)


def setting_of(field: str) -> str:
    """Give the setting that a policy field takes its default from."""
    if field == "enabled":
        return f"{PREFIX}AutoScaleEnabled"
    return PREFIX + field[0].upper() + field[1:].removesuffix("Seconds")


SETTINGS: dict[str, str] = {setting_of(field): field for field in ATTRIBUTES}


def policy_defaults(environment: Mapping[str, str]) -> dict[str, Any]:
    """Read the settings that are there, as a policy; raises PolicyUnreadable, PolicyInvalid."""
    given = {field: _value(environment[name]) for name, field in SETTINGS.items() if environment.get(name)}
    defaults = parse_override({field: _fitting(field, value) for field, value in given.items()})
    validate(resolve(defaults=defaults).policy)
    return defaults


def change_threshold(environment: Mapping[str, str]) -> float:
    """Read which change of a rate is worth writing, as a share of it; raises PolicyUnreadable."""
    text = environment.get(CHANGE_THRESHOLD)
    value = _value(text) if text else DEFAULT_CHANGE_THRESHOLD
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise PolicyUnreadable(field=CHANGE_THRESHOLD, value=str(text), problem="it is no share, as in 25%")
    return float(value)


def _value(text: str) -> Any:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or (match["unit"] and match["unit"].lower() not in UNITS):
        return text
    number = float(match["number"].replace("_", ""))
    return number * UNITS[match["unit"].lower()] if match["unit"] else number


def _fitting(field: str, value: Any) -> Any:
    """Make whole what a field wants whole; anything else is left for the policy's own reader to refuse."""
    whole = isinstance(value, float) and value.is_integer()
    return int(value) if whole else value
