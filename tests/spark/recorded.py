"""A history made by hand: rows of minutes, written as the load report writes them."""

from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from spark.history import SCHEMA, write_file

DAY = datetime.now(UTC).date() - timedelta(days=7)
"""A day that is over, whatever midnight passes meanwhile."""
START_MS = int(datetime.combine(DAY, time(), UTC).timestamp() * 1000)
"""The first moment of the day."""
PARTS = 32
Row = dict[str, Any]


def minute(topic: str, segment_id: int, number: int, rate: float, **fields: Any) -> Row:
    """Make the row of a minute of the day, with its load in even parts; keywords replace columns."""
    row = {
        "topic": f"topic://{topic}",
        "incarnation": sum(topic.encode()),
        "segment_id": segment_id,
        "minute_ms": START_MS + number * 60_000,
        "observed_ms": 60_000,
        "msg_rate_in": rate,
        "bytes_rate_in": rate * 100,
        "msg_rate_out": 0.0,
        "bytes_rate_out": 0.0,
        "mean": [rate / PARTS] * PARTS,
        "max": [rate / PARTS] * PARTS,
        "hash_start": 0,
        "hash_end": 65_535,
        "active_segments": 1,
    }
    return {**row, **fields}


def record(directory: Path, *files: Sequence[Row]) -> Path:
    """Write rows of the day as files."""
    for number, rows in enumerate(files):
        table = pa.Table.from_pylist(list(rows), schema=SCHEMA)
        write_file(fs.LocalFileSystem(), f"{directory}/day={DAY}", f"{number}.parquet", table)
    return directory


def endless_minutes() -> list[Row]:
    """Make a day whose replay takes minutes, so that it can be cancelled however quick the machine is."""
    return [
        minute(f"public/default/t{topic}", 0, number, 20_000.0 + 50_000 * (number % 40 > 20))
        for topic in range(40)
        for number in range(1_440)
    ]
