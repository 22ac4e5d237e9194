"""Installs tables and functions of the embedded segment log, in the metadata database or in another."""

from pathlib import Path

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

SQL = Path(__file__).with_name("sql")
_INSTALL_LOCK = 0x5CA1AB1E
_NO_SCHEMA = """
DROP TABLE IF EXISTS segment_schema;
DROP FUNCTION IF EXISTS segment_skip_to, segment_skip_below;
DROP FUNCTION IF EXISTS segment_create_all, segment_delete_all, segment_inherit, segment_read,
    segment_offset_at, segment_acknowledged, segment_skip, segment_change_claims, segment_claim,
    segment_acknowledge_ranges, segment_pass, segment_due_at, segment_forget_trimmed, segment_settle,
    segment_split_pending, segment_move, segment_batch_at, segment_newest_position, segment_seek,
    segment_acknowledge, segment_cursor_position, segment_marks, segment_marks_of, segment_trim,
    segment_delete, segment_delete_cursors, segment_terminate, segment_create, segment_add_cursors,
    segment_append, segment_mark_bounds, segment_own_sequence, segment_pass_fence, segment_lock,
    segment_end_offset;
DROP TABLE IF EXISTS segment_pending, segment_position, segment_cursor, segment_mark, segment_batch,
    segment_log;
"""


def install_schema(connection: BaseDatabaseWrapper, *, up_to: int | None = None) -> None:
    """Apply the versions of the schema that the database lacks; several processes may call this at once."""
    with transaction.atomic(using=connection.alias), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_INSTALL_LOCK])
        cursor.execute("CREATE TABLE IF NOT EXISTS segment_schema (version integer PRIMARY KEY)")
        cursor.execute("SELECT coalesce(max(version), 0) FROM segment_schema")
        installed: int = cursor.fetchone()[0]
        for path in sorted(SQL.glob("[0-9]*.sql")):
            version = int(path.name[:4])
            if installed < version <= (up_to or version):
                cursor.execute(path.read_text())
                cursor.execute("INSERT INTO segment_schema VALUES (%s)", [version])


def remove_schema(connection: BaseDatabaseWrapper) -> None:
    """Drop everything that `install_schema` made, with all messages."""
    with connection.cursor() as cursor:
        cursor.execute(_NO_SCHEMA)
