"""Waiting for others to wait: what interleavings of two connections are made of."""

from django.db import connections


def until_somebody_waits_for_a_lock(database: str = "default", *, count: int = 1) -> None:
    """Return once so many statements of the database are held up by another transaction."""
    query = """SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event_type = 'Lock'"""
    for _ in range(10_000):
        with connections[database].cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")  # else a transaction sees what it saw first
            cursor.execute(query)
            if cursor.fetchone()[0] >= count:
                return
    raise AssertionError("nobody waits")
