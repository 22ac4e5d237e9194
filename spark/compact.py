"""Compaction of the history: the many small files of each day that is over become one.

`python -m spark.compact` may be run again, or be killed, at any time: the new file appears before the old
ones go, and readers take each minute once.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial

from py4j.protocol import Py4JJavaError
from pyarrow import fs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark.history import (
    RecordedFiles,
    check_files,
    days_of,
    file_system,
    parquet_files,
    read_recorded,
    with_readable,
)
from spark.jobs import Result, job_parser, read_day, reason_of, run_job

logger = logging.getLogger("spark.compact")

_SCRATCH = "_compacting"


def compact(session: SparkSession, location: str, *, before: date) -> Result:
    """Compact all days before a day; gives how many days, and files of them, became one file each.

    Files that cannot be read stay where they are. Raises OSError after the last day if any of them failed.
    """
    files, directory = file_system(location)
    done: list[RecordedFiles] = []
    failures: dict[date, str] = {}
    for day, path in sorted(days_of(files, directory)):
        if day >= before:
            continue
        try:
            done.append(_compact_day(session, files, location, path))
        except (PySparkException, Py4JJavaError, OSError) as error:
            failures[day] = reason_of(error)
            logger.error("%s is not compacted: %s", day, failures[day])
    if failures:
        days, reason = ", ".join(map(str, failures)), next(iter(failures.values()))
        raise OSError(f"days that are not compacted: {days}; the first one: {reason}")
    merged = [len(recorded.readable) for recorded in done if len(recorded.readable) > 1]
    unreadable = [name for recorded in done for name in recorded.unreadable]
    return {"days": len(merged), "files": sum(merged), "unreadable": unreadable}


def _compact_day(session: SparkSession, files: fs.FileSystem, location: str, path: str) -> RecordedFiles:
    paths = parquet_files(files, path)
    if len(paths) < 2:
        return RecordedFiles((), ())
    return with_readable(location, check_files(files, paths), partial(_merge, session, files, location, path))


def _merge(
    session: SparkSession, files: fs.FileSystem, location: str, path: str, recorded: RecordedFiles
) -> RecordedFiles:
    if len(recorded.readable) < 2:
        return recorded
    rows = read_recorded(session, location, recorded).drop("day")
    ordered = rows.coalesce(1).sortWithinPartitions("topic", "minute_ms", "segment_id")
    scratch = f"{path.rpartition('/')[2]}/{_SCRATCH}"
    ordered.write.mode("overwrite").option("compression", "zstd").parquet(f"{location}/{scratch}")
    (made,) = parquet_files(files, f"{path}/{_SCRATCH}")
    files.move(made, f"{path}/compacted-{made.rpartition('/')[2]}")
    for name in recorded.readable:
        files.delete_file(f"{path}/{name.rpartition('/')[2]}")
    files.delete_dir(f"{path}/{_SCRATCH}")
    return recorded


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
