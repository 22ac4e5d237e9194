"""Compaction of the history: the many small files of each day that is over become one.

`python -m spark.compact` may be run again, or be killed, at any time: the new file appears before the old
ones go, and readers take each minute once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime

from pyarrow import fs
from pyspark.sql import SparkSession

from spark.history import READ_SCHEMA, check_files, days_of, file_system, once, parquet_files
from spark.jobs import Result, job_parser, read_day, run_job

_SCHEMA = READ_SCHEMA.rpartition(",")[0]
_SCRATCH = "_compacting"


def compact(session: SparkSession, location: str, *, before: date) -> Result:
    """Compact all days before a day; gives how many days, and files of them, became one file each.

    Files that cannot be read stay where they are.
    """
    files, directory = file_system(location)
    days = merged = 0
    unreadable: list[str] = []
    for day, path in sorted(days_of(files, directory)):
        paths = parquet_files(files, path) if day < before else []
        if len(paths) < 2:
            continue
        recorded = check_files(files, paths)
        unreadable += recorded.unreadable
        names = [name.rpartition("/")[2] for name in recorded.readable]
        if len(names) > 1:
            _compact_day(session, files, f"{location}/day={day}", path, names)
            days, merged = days + 1, merged + len(names)
    return {"days": days, "files": merged, "unreadable": unreadable}


def _compact_day(
    session: SparkSession, files: fs.FileSystem, location: str, path: str, names: Sequence[str]
) -> None:
    rows = once(session.read.schema(_SCHEMA).parquet(*(f"{location}/{name}" for name in names)))
    ordered = rows.coalesce(1).sortWithinPartitions("topic", "minute_ms", "segment_id")
    ordered.write.mode("overwrite").option("compression", "zstd").parquet(f"{location}/{_SCRATCH}")
    (made,) = parquet_files(files, f"{path}/{_SCRATCH}")
    files.move(made, f"{path}/compacted-{made.rpartition('/')[2]}")
    for name in names:
        files.delete_file(f"{path}/{name}")
    files.delete_dir(f"{path}/{_SCRATCH}")


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> argparse.Namespace:
    """Read the command line."""
    parser = job_parser("compact", __doc__, environment)
    today = str(datetime.now(UTC).date())
    parser.add_argument("--before", type=read_day, default=today, help="UTC; default: today")
    return parser.parse_args(arguments)


def main() -> int:
    """Run the job as a process."""
    options = parse_options(sys.argv[1:], os.environ)
    return run_job(
        "compact", options, lambda session: compact(session, options.history, before=options.before)
    )


if __name__ == "__main__":
    sys.exit(main())
