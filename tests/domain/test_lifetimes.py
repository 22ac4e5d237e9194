"""Settings of topic, namespace and instance, and what a retention lets go."""

import pytest

from scalable.domain.lifetimes import FOR_EVER_SECONDS, SettingSource, is_past_retention, resolve


@pytest.mark.parametrize(
    ("topic", "namespace", "value", "source"),
    [
        (None, None, 60, SettingSource.DEFAULT),
        (None, 5, 5, SettingSource.NAMESPACE),
        (7, 5, 7, SettingSource.TOPIC),
        (0, 5, 0, SettingSource.TOPIC),
        (None, 0, 0, SettingSource.NAMESPACE),
        (None, FOR_EVER_SECONDS, -1, SettingSource.NAMESPACE),
    ],
)
def test_the_nearest_setting_holds_and_zero_is_one(
    topic: int | None, namespace: int | None, value: int, source: SettingSource
) -> None:
    resolved = resolve(topic, namespace, 60)
    assert (resolved.value, resolved.source) == (value, source)


def test_retention_counts_from_the_end_zero_is_at_once_and_minus_one_never() -> None:
    assert is_past_retention(0, since_ms=1_000, now_ms=1_000)
    assert not is_past_retention(60, since_ms=0, now_ms=59_999)
    assert is_past_retention(60, since_ms=0, now_ms=60_000)
    assert not is_past_retention(FOR_EVER_SECONDS, since_ms=0, now_ms=10**15)
