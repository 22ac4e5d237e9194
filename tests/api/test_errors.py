"""The one table of how errors leave."""

import pytest

from scalable.api.errors import ANSWERS, answer_of
from scalable.domain.errors import BY_CODE, Forbidden


def test_every_error_has_a_row_and_every_row_an_error() -> None:
    assert set(ANSWERS) == set(BY_CODE)


@pytest.mark.parametrize("code", sorted(ANSWERS))
def test_statuses_and_close_codes_are_of_their_families(code: str) -> None:
    answer = ANSWERS[code]
    assert 400 <= answer.status < 600 or answer.status == 202
    assert 4000 <= answer.close_code < 5000  # what an application may choose (RFC 6455, 7.4.2)


def test_an_error_finds_its_row() -> None:
    assert answer_of(Forbidden(role="nobody", right="read")) == (403, 4403)
