"""The one table of how errors leave."""

import logging

import pytest
from django.db import InternalError
from psycopg.errors import IdleInTransactionSessionTimeout

from scalable.api.errors import ANSWERS, answer_of, failure, internal_error
from scalable.domain.errors import BY_CODE, Forbidden, Internal, Unavailable


def test_every_error_has_a_row_and_every_row_an_error() -> None:
    assert set(ANSWERS) == set(BY_CODE)


@pytest.mark.parametrize("code", sorted(ANSWERS))
def test_statuses_and_close_codes_are_of_their_families(code: str) -> None:
    answer = ANSWERS[code]
    assert 400 <= answer.status < 600 or answer.status == 202
    assert 4000 <= answer.close_code < 5000  # what an application may choose (RFC 6455, 7.4.2)


def test_an_error_finds_its_row() -> None:
    assert answer_of(Forbidden(role="nobody", right="read")) == (403, 4403)


def ended_idle() -> InternalError:
    """Give what Django raises when the database ended a transaction in which nothing was asked."""
    error = InternalError("terminating connection due to idle-in-transaction timeout")
    error.__cause__ = IdleInTransactionSessionTimeout("idle")
    return error


def test_a_transaction_that_was_ended_for_idling_is_said_to_be_temporary(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert isinstance(internal_error(ended_idle()), Unavailable)
    assert failure(ended_idle())[0] == 503
    assert [(each.levelno, each.exc_info) for each in caplog.records] == [(logging.WARNING, None)] * 2


def test_other_internal_errors_of_the_database_are_our_own_fault() -> None:
    assert isinstance(internal_error(InternalError("out of order")), Internal)
