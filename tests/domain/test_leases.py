"""Leases: expiry permits a takeover and fences nothing; the token fences and never goes back."""

from collections.abc import Callable

import pytest

from scalable.domain.errors import LeaseLost
from scalable.domain.leases import Lease, is_alive, may_take_over


def test_a_free_or_expired_lease_may_be_taken_over_and_no_other() -> None:
    held = Lease().taken_by("worker-1", now_ms=1_000, duration_ms=500)
    assert may_take_over(None, 0)
    assert may_take_over(Lease(), 0)
    assert not may_take_over(held, 1_499)
    assert may_take_over(held, 1_500)


def test_an_expired_holder_that_nobody_overtook_may_renew() -> None:
    held = Lease().taken_by("worker-1", now_ms=0, duration_ms=10)
    renewed = held.renewed(held.token, resource="operation 1", now_ms=99, duration_ms=10)
    assert (renewed.token, renewed.expires_at_ms) == (held.token, 109)


EFFECTS: dict[str, Callable[[Lease, int], object]] = {
    "check": lambda lease, token: lease.check(token, resource="operation 1"),
    "renew": lambda lease, token: lease.renewed(token, resource="operation 1", now_ms=0, duration_ms=10),
    "give back": lambda lease, token: lease.given_back(token, resource="operation 1"),
}


@pytest.mark.parametrize("effect", EFFECTS.values(), ids=EFFECTS.keys())
def test_an_overtaken_holder_is_refused_whatever_the_time(effect: Callable[[Lease, int], object]) -> None:
    first = Lease().taken_by("worker-1", now_ms=0, duration_ms=10)
    second = first.taken_by("worker-2", now_ms=11, duration_ms=10)
    with pytest.raises(LeaseLost) as caught:
        effect(second, first.token)
    assert caught.value.token == first.token


def test_a_lease_given_back_is_free_and_its_token_is_not_used_again() -> None:
    held = Lease().taken_by("worker-1", now_ms=0, duration_ms=1_000)
    free = held.given_back(held.token, resource="operation 1")
    assert may_take_over(free, 1)
    with pytest.raises(LeaseLost):
        free.check(held.token, resource="operation 1")
    assert free.taken_by("worker-1", now_ms=2, duration_ms=1_000).token > held.token


@pytest.mark.parametrize(("now_ms", "alive"), [(0, True), (9_999, True), (10_000, False), (50_000, False)])
def test_a_node_lives_until_its_time_out(now_ms: int, alive: bool) -> None:
    assert is_alive(0, now_ms=now_ms, timeout_ms=10_000) is alive
