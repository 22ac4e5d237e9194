"""How many permits a reader grants: none until half of what may wait is used up, then all that is missing."""

from hypothesis import given
from hypothesis import strategies as st

from scalable.client.prefetch import permits_due

PREFETCH = st.integers(1, 10_000)


@given(PREFETCH, st.integers(0, 20_000))
def test_what_is_granted_fills_up_to_what_may_wait(prefetch: int, outstanding: int) -> None:
    """More may be outstanding than may wait: a share becomes smaller as segments come."""
    permits = permits_due(prefetch, outstanding)
    assert permits in {0, prefetch - outstanding}
    assert (permits > 0) is (2 * outstanding <= prefetch)


@given(PREFETCH)
def test_a_reader_that_has_nothing_outstanding_gets_all(prefetch: int) -> None:
    assert permits_due(prefetch, 0) == prefetch
