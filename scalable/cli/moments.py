"""Points in time as people read them."""

from datetime import UTC, datetime


def as_text(milliseconds: int | None) -> str | None:
    """Write milliseconds since 1970 by ISO 8601, to the second; None stays."""
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, tz=UTC).isoformat(timespec="seconds")
