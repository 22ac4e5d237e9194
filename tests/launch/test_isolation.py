"""Tests see what migrations wrote, and nothing of each other, in every table."""

import pytest
from django.db import connection

pytestmark = pytest.mark.django_db(transaction=True)


def count(query: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(query)
        value: int = cursor.fetchone()[0]
    return value


@pytest.mark.parametrize("run", ["first", "second"])
def test_rows_of_migrations_are_there_and_those_of_other_tests_are_gone(run: str) -> None:
    assert count("SELECT count(*) FROM scalable_namespace") == 2
    assert count("SELECT count(*) FROM segment_log") == 1
    with connection.cursor() as cursor:
        cursor.execute("SELECT segment_create(4711, 0, 0, 65535, '{}', NULL, NULL)")
    assert count("SELECT count(*) FROM segment_log") == 2
