"""Times: the database's clock, and timestamps as milliseconds since the epoch."""

from datetime import UTC, datetime, timedelta

from django.db import connection
from django.db.models import BigIntegerField, DateTimeField, Func, Value
from django.db.models.expressions import CombinedExpression


class ClockTimestamp(Func):
    """The database's clock as it runs on within a transaction, unlike `now()`."""

    function = "clock_timestamp"
    output_field = DateTimeField()


class Milliseconds(Func):
    """A timestamp as milliseconds since the epoch, reckoned by the database."""

    template = "(extract(epoch FROM %(expressions)s) * 1000)::bigint"
    output_field = BigIntegerField()


def seconds_from_now(seconds: float) -> CombinedExpression:
    """A time on the database's clock, `seconds` ahead of it."""
    return ClockTimestamp() + Value(timedelta(seconds=seconds))


def database_now() -> datetime:
    """Read the database's clock, the one that all processes share."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row: tuple[datetime] = cursor.fetchone()
    return row[0]


def moment(time_ms: int) -> datetime:
    """Turn milliseconds since the epoch into a timestamp."""
    return datetime.fromtimestamp(time_ms / 1000, tz=UTC)


def milliseconds(time: datetime) -> int:
    """Turn a timestamp into milliseconds since the epoch."""
    return round(time.timestamp() * 1000)


def optional_milliseconds(time: datetime | None) -> int | None:
    """Turn a timestamp into milliseconds since the epoch, or None into None."""
    return None if time is None else milliseconds(time)
