"""What no process of this package has in its environment: they speak to nodes alone, by REST and a token."""

WITHHELD = frozenset(
    {
        *("DATABASE_URL", "SCALABLE_SEGMENTS_DATABASE_URL", "REDIS_URL"),
        *("PGPASSWORD", "PGPASSFILE", "PGSERVICE", "PGSERVICEFILE"),
        *("SCALABLE_SECRET_KEY", "SCALABLE_SECRET_KEY_FILE"),
        *("SCALABLE_TOKEN_SECRET", "SCALABLE_TOKEN_SECRET_FILE"),
    }
)
"""Addresses of servers, which hold passwords, and secrets."""
