"""Ticks of one kind do not pile up on the threads of a worker."""

import threading

import pytest

from tasks.jobs import alone


def test_a_tick_that_is_at_work_is_not_joined_by_another() -> None:
    begun, may_end = threading.Event(), threading.Event()
    done: list[str] = []

    @alone
    def tick() -> None:
        begun.set()
        assert may_end.wait(10)
        done.append("swept")

    first = threading.Thread(target=tick)
    first.start()
    assert begun.wait(10)
    tick()  # would wait, and add to what is done
    assert done == []
    may_end.set()
    first.join(10)
    tick()
    assert done == ["swept", "swept"]


def test_a_tick_that_failed_is_followed_by_the_next() -> None:
    failures = iter([OSError("out of reach"), None])

    @alone
    def tick() -> None:
        if failure := next(failures):
            raise failure

    with pytest.raises(OSError, match="out of reach"):
        tick()
    tick()
