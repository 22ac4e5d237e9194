"""The history of loads: a row for each minute of a segment, in Parquet files by day (UTC).

The load report writes it, batch jobs read it. The same minute may stand in it twice (samples that came late,
a job that began anew, a compaction that was cut off); readers take the row that was observed for longest, and
of two such rows the one with more messages.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from itertools import compress, groupby
from operator import and_
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyarrow import fs
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from scalable.domain.errors import ScalableError
from scalable.domain.keyspace import KEYSPACE_SIZE
from scalable.domain.names import TopicName
from spark.rest import NodeClient, NodeRefused, NodeUnavailable

logger = logging.getLogger("spark.history")

KEPT_DAYS = 30
DAY_MS = 86_400_000
MOST_PER_SECOND = 1e15
"""More messages or bytes a second than any segment has: what is above is no measurement."""
LAYOUT_AGE_MS = 600_000
"""A topic's layout is asked for again after this long, and when a segment is not in it.

It says nothing of the number of segments in minutes that lie further back.
"""
LAYOUT_KEPT_MS = 3_600_000
"""How long the layout of a topic is kept that has no minutes any more."""
LAYOUTS_PER_STEP = 50
_DAY = re.compile(r"day=(\d{4}-\d{2}-\d{2})")
_RATES = ("msgRateIn", "bytesRateIn", "msgRateOut", "bytesRateOut")
_PARTS = pa.list_(pa.float32())
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("incarnation", pa.int64()),
        ("segment_id", pa.int64()),
        ("minute_ms", pa.int64()),
        ("observed_ms", pa.int32()),
        *((re.sub("([A-Z])", r"_\1", name).lower(), pa.float64()) for name in _RATES),
        ("mean", _PARTS),
        ("max", _PARTS),
        ("hash_start", pa.int32()),
        ("hash_end", pa.int32()),
        ("active_segments", pa.int32()),
        ("hot_keys", pa.list_(pa.struct([("key", pa.string()), ("count", pa.int64())]))),
        ("keys_seen", pa.int64()),
        ("keys_error", pa.int64()),
    ]
)
READ_SCHEMA = (
    "topic string, incarnation bigint, segment_id bigint, minute_ms bigint, observed_ms int,"
    " msg_rate_in double, bytes_rate_in double, msg_rate_out double, bytes_rate_out double,"
    " mean array<float>, max array<float>, hash_start int, hash_end int, active_segments int,"
    " hot_keys array<struct<key string, count bigint>>, keys_seen bigint, keys_error bigint, day date"
)
REQUIRED = frozenset({"topic", "incarnation", "segment_id", "minute_ms", "observed_ms", *SCHEMA.names[5:9]})
"""The columns that files of all versions have."""
FILES_AT_ONCE = 8
Row = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecordedFiles:
    """The files of some days, named below the history; those that cannot be read are left out by readers."""

    readable: tuple[str, ...]
    unreadable: tuple[str, ...]


@dataclass
class _Layout:
    """What a topic looked like: the range of each segment, and how many are active."""

    at_ms: int
    incarnation: int
    ranges: dict[int, tuple[int, int]]
    active: int
    used_ms: int = 0

    def tells(self, row: Row, now_ms: int) -> bool:
        """Tell whether it is fresh and has the row's segment."""
        same = self.incarnation == row["incarnation"] and row["segmentId"] in self.ranges
        return same and now_ms - self.at_ms < LAYOUT_AGE_MS


@dataclass
class Layouts:
    """The layouts of the topics of a history, asked for rarely; a few requests a step at most."""

    node: NodeClient
    known: dict[str, _Layout] = field(default_factory=dict)
    asked: int = 0

    def columns(self, row: Row, now_ms: int) -> dict[str, int | None]:
        """Give the range of a row's segment and the number of active ones; None where they are not known.

        A range stays what it is; how many were active is known of the last minutes alone.
        """
        layout = self._layout(row, now_ms)
        if layout is None or layout.incarnation != row["incarnation"]:
            return {"hash_start": None, "hash_end": None, "active_segments": None}
        layout.used_ms = now_ms
        start, end = layout.ranges.get(row["segmentId"], (None, None))
        active = layout.active if now_ms - row["minuteMs"] <= LAYOUT_AGE_MS else None
        return {"hash_start": start, "hash_end": end, "active_segments": active}

    def begin_step(self, now_ms: int) -> None:
        """Allow the requests of a step, and let layouts go that were long not asked for."""
        self.asked = 0
        oldest_ms = now_ms - LAYOUT_KEPT_MS
        self.known = {topic: layout for topic, layout in self.known.items() if layout.used_ms >= oldest_ms}

    def _layout(self, row: Row, now_ms: int) -> _Layout | None:
        topic = row["topic"]
        layout = self.known.get(topic)
        if layout is not None and (layout.at_ms == now_ms or layout.tells(row, now_ms)):
            return layout
        if self.asked >= LAYOUTS_PER_STEP:
            return layout
        self.asked += 1
        asked = self._ask(topic, now_ms)
        if asked is None:
            self.known.pop(topic, None)
        else:
            self.known[topic] = asked
        return asked

    def _ask(self, topic: str, now_ms: int) -> _Layout | None:
        try:
            body = self.node.layout(TopicName.parse(topic))
        except (NodeRefused, NodeUnavailable, ScalableError) as error:
            logger.info("the layout of %s is not known: %s", shown(topic), shown(error))
            return None
        segments = {int(segment_id): segment for segment_id, segment in body["segments"].items()}
        ranges = {
            segment_id: (segment["hashRange"]["start"], segment["hashRange"]["end"])
            for segment_id, segment in segments.items()
        }
        active = sum(segment["state"] == "ACTIVE" for segment in segments.values())
        return _Layout(now_ms, body["incarnation"], ranges, active, used_ms=now_ms)


class History:
    """Writes the history below a path or URI, and drops days that are older than `kept_days`."""

    def __init__(self, location: str, *, layouts: Layouts, kept_days: int = KEPT_DAYS) -> None:
        self._files, self._directory = file_system(location)
        self._layouts = layouts
        self._kept_days = kept_days
        self._trimmed_on: date | None = None

    def write(self, minutes: Sequence[Row], *, now_ms: int) -> None:
        """Write the rows of a step, one file a day; the same rows written again replace their file."""
        self._layouts.begin_step(now_ms)
        for day, rows in groupby(sorted(minutes, key=_place), key=lambda row: _day(row["minuteMs"])):
            measured = list(rows)
            complete = [_complete(row, self._layouts.columns(row, now_ms)) for row in measured]
            table = pa.Table.from_pylist(complete, schema=SCHEMA)
            write_file(self._files, f"{self._directory}/day={day}", _name(measured), table)
        today = _day(now_ms)
        if minutes and self._trimmed_on != today:
            self._trim(today)
            self._trimmed_on = today

    def _trim(self, today: date) -> None:
        oldest = today - timedelta(days=self._kept_days)
        for day, path in days_of(self._files, self._directory):
            if day < oldest:
                self._files.delete_dir(path)


def shown(said: object) -> str:
    """Give a text for a log; what it quotes may be no text, such as half of a pair of surrogates."""
    return str(said).encode(errors="backslashreplace").decode()


def file_system(location: str) -> tuple[fs.FileSystem, str]:
    """Give the file system of a path or URI, and the path in it."""
    if "://" in location:
        files, path = fs.FileSystem.from_uri(location)
        return files, path
    return fs.LocalFileSystem(), location


def days_of(files: fs.FileSystem, directory: str) -> Iterator[tuple[date, str]]:
    """Give the days that a history has, with their directories; what is named like no day is passed over."""
    for info in files.get_file_info(fs.FileSelector(directory, allow_not_found=True)):
        match = _DAY.fullmatch(info.base_name)
        if match and info.type == fs.FileType.Directory:
            with suppress(ValueError):  # such as the 45th of a month
                yield date.fromisoformat(match[1]), info.path


def write_file(files: fs.FileSystem, directory: str, name: str, table: pa.Table) -> None:
    """Write a Parquet file as a whole or not at all; Spark passes over names with an underscore in front."""
    files.create_dir(directory, recursive=True)
    partial = f"{directory}/_{name}.partial"
    try:
        with files.open_output_stream(partial) as stream:
            pq.write_table(table, stream, compression="zstd")
        files.move(partial, f"{directory}/{name}")
    except OSError:  # such as a full disk, which is to get back what there is of it
        with suppress(OSError):
            files.delete_file(partial)
        raise


def recorded_files(location: str, *, first: date, last: date) -> RecordedFiles:
    """Look at the files of the days from `first` to `last`, both included, and whether they can be read."""
    files, directory = file_system(location)
    days = [path for day, path in sorted(days_of(files, directory)) if first <= day <= last]
    return check_files(files, [path for of_day in days for path in parquet_files(files, of_day)])


def with_readable(location: str, recorded: RecordedFiles, work: Callable[[RecordedFiles], T]) -> T:
    """Do a work with files that seem to be readable; where it fails, once more without those that are not.

    Only then is the data of all of them looked at.
    """
    try:
        return work(recorded)
    except (PySparkException, Py4JJavaError):
        files, directory = file_system(location)
        found = check_files(files, [f"{directory}/{name}" for name in recorded.readable], _is_whole)
        if not found.unreadable:
            raise
        return work(RecordedFiles(found.readable, (*recorded.unreadable, *found.unreadable)))


def check_files(
    files: fs.FileSystem, paths: Sequence[str], check: Callable[[pq.ParquetFile], bool] | None = None
) -> RecordedFiles:
    """Look at files of the history, and whether they can be read; by their footers if not told otherwise."""
    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        sound = list(pool.map(lambda path: _passes(files, path, check or _is_sound), paths))
    names = ["/".join(path.split("/")[-2:]) for path in paths]  # below the history: the day and the file
    unreadable = tuple(name for name, is_sound in zip(names, sound, strict=True) if not is_sound)
    if unreadable:
        logger.warning("%d files of the history cannot be read: %s", len(unreadable), ", ".join(unreadable))
    return RecordedFiles(tuple(compress(names, sound)), unreadable)


def parquet_files(files: fs.FileSystem, directory: str) -> list[str]:
    """Give the paths of a directory's files, without those that are not whole yet."""
    infos = files.get_file_info(fs.FileSelector(directory))
    whole = (info for info in infos if not info.base_name.startswith(("_", ".")))
    return sorted(info.path for info in whole if info.base_name.endswith(".parquet"))


def _passes(files: fs.FileSystem, path: str, check: Callable[[pq.ParquetFile], bool]) -> bool:
    try:
        with (
            files.open_input_file(path) as stream,
            pq.ParquetFile(stream, page_checksum_verification=True) as file,
        ):
            return check(file)
    except (OSError, ValueError, pa.ArrowException):
        return False


def _is_sound(file: pq.ParquetFile) -> bool:
    """Tell whether a file has a footer, at its end, with the columns of the history and their types.

    A file that lost its end, as after a power cut, has none. Types are the same whatever the elements of
    lists are named: Spark and Arrow do so differently.
    """
    types = {each.name: each.type for each in file.schema_arrow if each.name in SCHEMA.names}
    return types.keys() >= REQUIRED and all(found == SCHEMA.field(name).type for name, found in types.items())


def _is_whole(file: pq.ParquetFile) -> bool:
    """Tell whether the data of a file can be decoded; raises ArrowException or OSError if not."""
    for batch in file.iter_batches():
        batch.validate(full=True)
    return True


def read_recorded(session: SparkSession, location: str, recorded: RecordedFiles) -> DataFrame:
    """Read the files that can be read; each minute of a segment once."""
    if not recorded.readable:
        return session.createDataFrame([], READ_SCHEMA)
    reader = session.read.schema(READ_SCHEMA).option("basePath", location)
    rows = reader.parquet(*(literal_path(f"{location}/{name}") for name in recorded.readable))
    return once(rows.where(_is_sound_row()))


def literal_path(path: str) -> str:
    """Give a path so that Spark takes no character of it for a pattern."""
    return re.sub(r"([\\*?{}\[\]])", r"\\\1", path)


def _is_sound_row() -> Column:
    """Tell which rows can be a minute of their day; others, as of a file that somebody changed, are left out.

    One far outside would make a replay as long as the time between.
    """
    first_ms = sf.unix_date(sf.col("day")).cast("bigint") * DAY_MS
    minute, start, end = sf.col("minute_ms"), sf.col("hash_start"), sf.col("hash_end")
    known = [sf.col(name).isNotNull() for name in ("topic", "incarnation", "segment_id")]
    in_day = (minute >= first_ms) & (minute < first_ms + DAY_MS)
    ranged = start.isNull() | end.isNull() | ((start >= 0) & (start <= end) & (end < KEYSPACE_SIZE))
    measured = [_is_measure(sf.col(name)) for name in ("observed_ms", *SCHEMA.names[5:9])]
    counted = [
        _is_known(sf.col(name), _is_measure) for name in ("active_segments", "keys_seen", "keys_error")
    ]
    parts = [_is_known(sf.col(name), _are_measures) for name in ("mean", "max", "hot_keys.count")]
    return reduce(and_, [*known, in_day, ranged, *measured, *counted, *parts])


def _is_measure(number: Column) -> Column:
    return number.between(0, MOST_PER_SECOND)  # what is no number is above all


def _are_measures(numbers: Column) -> Column:
    return sf.forall(numbers, lambda each: sf.coalesce(_is_measure(each), sf.lit(False)))


def _is_known(column: Column, check: Callable[[Column], Column]) -> Column:
    """Let what is not known pass."""
    return column.isNull() | check(column)


def read_history(session: SparkSession, location: str, *, first: date, last: date) -> DataFrame:
    """Read the days from `first` to `last`, both included; each minute of a segment once."""
    return read_recorded(session, location, recorded_files(location, first=first, last=last))


def in_namespace(rows: DataFrame, namespace: str) -> DataFrame:
    """Keep the rows of topics of a namespace (`tenant/namespace`); all of them if it is empty."""
    return rows.where(sf.col("topic").startswith(f"topic://{namespace}/")) if namespace else rows


def once(rows: DataFrame) -> DataFrame:
    """Of several rows of a segment's minute keep the one that was observed for longest, then the fullest."""
    keys = ("incarnation", "segment_id", "minute_ms")
    rank = sf.struct("observed_ms", "msg_rate_in", "msg_rate_out")
    best = rows.groupBy(*keys).agg(sf.max_by(sf.struct(*rows.columns), rank).alias("row"))
    return best.select("row.*")


def _place(row: Row) -> tuple[int, int, int]:
    return row["minuteMs"], row["incarnation"], row["segmentId"]


def _day(time_ms: int) -> date:
    return datetime.fromtimestamp(time_ms / 1000, UTC).date()


def _complete(row: Row, layout: Mapping[str, int | None]) -> dict[str, Any]:
    return {**{name: row.get(_camel(name)) for name in SCHEMA.names}, **layout}


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.title() for word in rest)


def _name(measured: Iterable[Row]) -> str:
    """Name a file by what was measured, so that a step that is repeated writes the same file again."""
    rows = list(measured)
    digest = hashlib.sha256(msgspec.msgpack.encode(rows)).hexdigest()[:16]
    return f"{rows[0]['minuteMs']}-{digest}.parquet"
