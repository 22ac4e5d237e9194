"""The load report: a Structured Streaming job that turns load samples into load reports and tiles.

`python -m spark.load_report` runs until SIGTERM or SIGINT (then it exits with 0) or until it cannot go on
(then with 1, and whoever supervises it starts it again). It resumes from its checkpoint with nothing counted
twice.
"""

import argparse
import fcntl
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from scalable.domain.broker_settings import CHANGE_THRESHOLD, change_threshold
from scalable.domain.errors import ScalableError
from scalable.domain.load import DEFAULT_CHANGE_THRESHOLD
from scalable.domain.names import TopicName
from spark.history import KEPT_DAYS, History, Layouts, shown
from spark.options import FORMAT
from spark.rest import NodeClient, NodeRefused, NodeUnavailable
from spark.samples import SAMPLES_TOPIC, sample_rows
from spark.session import make_session
from spark.state import MESSAGE_KEY, LoadState, LoadUpdate, Row, decode_state, encode_state
from spark.state_files import StateFiles

logger = logging.getLogger("spark.load_report")

LOADS_PER_REQUEST = 1_000
TILES_PER_REQUEST = 500
MAX_MESSAGES = 100
"""Of a micro-batch: 80,000 samples at most, some 80 MB, also when a backlog of hours waits."""
ROWS_AT_ONCE = 1_000
"""That become objects of Python, which are ten times as large as in Arrow."""
STOP_POLL_SECONDS = 0.5
STOP_SECONDS = 3.0
CONFIGURATION = {"spark.cores.max": "1"}
"""An application takes all cores of a standalone cluster: a job without end would leave none to others."""
_SUMMARY = "Turn load samples into load reports and tiles, until stopped."
_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """Where the job reads, writes and keeps its files."""

    url: str
    token_file: Path
    directory: Path
    """Local files: lock, status, Spark's scratch space."""
    checkpoint: str
    """A path or URI that survives the driver; on a cluster one that the executors see too."""
    master: str
    topic: str = SAMPLES_TOPIC
    reporter: str = "spark"
    trigger_ms: int = 500
    max_messages: int = MAX_MESSAGES
    """Of one micro-batch and segment of the samples' topic."""
    history: str = ""
    """A path or URI; empty for none."""
    history_days: int = KEPT_DAYS
    change_threshold: float = DEFAULT_CHANGE_THRESHOLD
    """Part of a rate by which it has to move to be reported."""
    configuration: dict[str, str]


class LoadReport:
    """Handles the micro-batches: takes the state on by one step, reports, and keeps the state."""

    def __init__(
        self,
        *,
        node: NodeClient,
        reporter: str,
        files: StateFiles,
        status: Path,
        history: History | None = None,
        change_threshold: float = DEFAULT_CHANGE_THRESHOLD,
    ) -> None:
        self._node = node
        self._change_threshold = change_threshold
        self._history = history
        self._reporter = reporter
        self._files = files
        self._status = status
        self._state: LoadState | None = None
        self._batch_id = -1

    def handle(self, samples: DataFrame, batch_id: int) -> None:
        """Process the sample rows of one micro-batch; after an error the restarted job repeats it.

        A crash before the state is saved repeats everything from the state before; a crash after it but
        before Spark's own commit does so too: reports are absolute, so that their repetition changes
        nothing.
        """
        started = time.monotonic()
        state = self._state_before(batch_id)
        rows = rows_in_order(samples.toArrow())
        now_ms = time.time_ns() // 1_000_000
        update = state.step(rows, now_ms=now_ms, change_threshold=self._change_threshold)
        self._send(update)
        self._keep(update)
        self._files.save(batch_id, encode_state(state))
        self._state, self._batch_id = state, batch_id
        self._tell(update, batch_id, round((time.monotonic() - started) * 1000))

    def _state_before(self, batch_id: int) -> LoadState:
        if self._state is not None and self._batch_id == batch_id - 1:
            return self._state
        saved = self._files.load_before(batch_id)
        state = decode_state(saved) if saved is not None else None
        if state is None and batch_id > 0:
            # The checkpoint says what was read, but not what it was: rates are unknown for half a window.
            logger.warning("no state from before micro-batch %d; rates are gathered anew", batch_id)
        return state or LoadState()

    def _send(self, update: LoadUpdate) -> None:
        if update.watermark_ms is None:
            return
        head = {"reporter": self._reporter, "watermarkMs": update.watermark_ms}
        for loads in _chunks(update.loads, LOADS_PER_REQUEST) if update.loads else [[]]:
            self._node.post("/admin/v2/scalable-load/reports", {**head, "loads": loads})
        for tiles in _chunks(update.tiles, TILES_PER_REQUEST):
            self._node.post("/admin/v2/scalable-load/tiles", {"tiles": tiles})

    def _keep(self, update: LoadUpdate) -> None:
        """Write the history; a disk that is full or a row that is odd must not hold up the autoscaler."""
        if self._history is None:
            return
        try:
            self._history.write(update.minutes, now_ms=time.time_ns() // 1_000_000)
        except (OSError, OverflowError, TypeError, ValueError, pa.ArrowException, ScalableError) as error:
            logger.warning("%d minutes are missing in the history: %s", len(update.minutes), shown(error))

    def _tell(self, update: LoadUpdate, batch_id: int, milliseconds: int) -> None:
        """Leave the state of affairs in the status file, and in the log if something was reported."""
        status = {
            "batchId": batch_id,
            "watermarkMs": update.watermark_ms,
            "messages": update.messages,
            "samples": update.samples,
            "repeats": update.repeats,
            "unreadable": update.unreadable,
            "broken": update.broken,
            "missing": update.missing,
            "late": update.late,
            "ahead": update.ahead,
            "loads": len(update.loads),
            "tiles": len(update.tiles),
            "milliseconds": milliseconds,
            "atMs": time.time_ns() // 1_000_000,
        }
        self._leave(status)
        if update.ahead:
            logger.warning("loads stand still: the clock is ahead on the nodes %s", ", ".join(update.ahead))
        odd = update.unreadable, update.broken, update.missing, update.late, update.repeats
        if update.loads or any(odd):
            logger.info("%s", " ".join(f"{name}={value}" for name, value in status.items()))

    def _leave(self, status: Mapping[str, object]) -> None:
        """Replace the status file; a disk that is full must not hold up the autoscaler."""
        partial = self._status.with_suffix(".partial")
        try:
            partial.write_text(json.dumps(status))
            partial.replace(self._status)
        except OSError as error:
            logger.warning("the status is old: %s", shown(error))


def run(options: ReportOptions) -> int:
    """Run the job until it is told to stop (0) or cannot go on (1)."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    options.directory.mkdir(parents=True, exist_ok=True)
    with _locked(options.directory / "lock"):
        if not _answers(options):
            return 1
        session = make_session(
            name="scalable-topics load report",
            master=options.master,
            directory=options.directory,
            configuration=options.configuration,
        )
        try:
            return _follow(start_query(session, options), stop)
        finally:
            session.stop()


def start_query(session: SparkSession, options: ReportOptions) -> StreamingQuery:
    """Start the streaming query in a session."""
    node = _node(options)
    report = LoadReport(
        node=node,
        history=_history(options, node),
        reporter=options.reporter,
        files=StateFiles(f"{options.checkpoint}/state"),
        status=options.directory / "status.json",
        change_threshold=options.change_threshold,
    )
    messages = (
        session.readStream.format(FORMAT)
        .option("url", options.url)
        .option("topic", options.topic)
        .option("tokenFile", str(options.token_file))
        .option("maxMessagesPerSegment", options.max_messages)
        .load()
    )
    # Parsing belongs to the query: within `handle` it would be planned anew for each micro-batch.
    return (
        sample_rows(messages)
        .writeStream.queryName("load-report")
        .foreachBatch(report.handle)
        .trigger(processingTime=f"{options.trigger_ms} milliseconds")
        .option("checkpointLocation", f"{options.checkpoint}/query")
        .start()
    )


def _history(options: ReportOptions, node: NodeClient) -> History | None:
    if not options.history:
        return None
    return History(options.history, layouts=Layouts(node), kept_days=options.history_days)


def _follow(query: StreamingQuery, stop: threading.Event) -> int:
    logger.info("the load report runs")
    while query.isActive:
        if stop.wait(STOP_POLL_SECONDS):
            _stop(query)
            return 0
    reason = str(query.exception()).partition("\n\tat ")[0]
    logger.error("the load report cannot go on: %s", reason)
    return 1


def _stop(query: StreamingQuery) -> None:
    """Stop the query; a micro-batch that waits for a node is left, and repeated by the next job."""
    stopping = threading.Thread(target=query.stop, daemon=True)
    stopping.start()
    stopping.join(STOP_SECONDS)
    if stopping.is_alive():
        logger.warning("the load report ends in the middle of a micro-batch, which will be repeated")
        logging.shutdown()
        os._exit(0)


def _answers(options: ReportOptions) -> bool:
    """Ask the node for the topic, before a JVM is started in vain."""
    try:
        _node(options).extents(TopicName.parse(options.topic))
    except (NodeRefused, NodeUnavailable, OSError) as error:
        logger.error("the load report cannot start: %s", error)
        return False
    return True


def _node(options: ReportOptions) -> NodeClient:
    return NodeClient(options.url, options.token_file.read_text().strip())


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process: two jobs on one checkpoint would spoil it."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit(f"another load report uses {path.parent}") from None
        yield


def rows_in_order(table: pa.Table) -> Iterator[Row]:
    """Give the sample rows as `LoadState.step` wants them, few at once."""
    ordered = table.sort_by([(name, "ascending") for name in MESSAGE_KEY])
    for batch in ordered.to_batches(max_chunksize=ROWS_AT_ONCE):
        yield from batch.to_pylist()


def _chunks(entries: Sequence[_Entry], size: int) -> Iterator[Sequence[_Entry]]:
    for start in range(0, len(entries), size):
        yield entries[start : start + size]


def parse_options(arguments: Sequence[str], environment: Mapping[str, str]) -> ReportOptions:
    """Read the command line; what it leaves out comes from the environment of the product's processes."""
    data = Path(environment.get("SCALABLE_DATA_DIR") or ".data")
    token = environment.get("SCALABLE_SYSTEM_TOKEN_FILE") or str(data / "system-token")
    node = environment.get("SCALABLE_NODE_URL") or "http://127.0.0.1:8080"
    parser = argparse.ArgumentParser(prog="python -m spark.load_report", description=_SUMMARY)
    add = parser.add_argument
    add("--url", default=node, help="a web node, or several with commas (SCALABLE_NODE_URL)")
    add("--token-file", type=Path, default=Path(token), help="a token of the role system")
    add("--master", default=environment.get("SPARK_MASTER") or "local[2]", help="(SPARK_MASTER)")
    add("--directory", type=Path, default=data / "spark" / "load-report", help="local files")
    add("--checkpoint", help="path or URI; default: 'checkpoint' in the directory")
    add("--topic", default=SAMPLES_TOPIC, help="where the samples are")
    add("--reporter", default="spark", help="the name under which the watermark is kept")
    add("--trigger-ms", type=int, default=500, help="shortest time between two micro-batches")
    add("--max-messages", type=int, default=MAX_MESSAGES, help="of one micro-batch and segment")
    add("--history", help="path or URI of the minutes' history; default: 'history' in the directory")
    add("--history-days", type=int, default=KEPT_DAYS, help="days that it is kept for; 0: no history")
    threshold = change_threshold(environment)
    add("--change-threshold", type=float, default=threshold, help=f"({CHANGE_THRESHOLD}, or 0.25)")
    add("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    chosen = parser.parse_args(arguments)
    directory = chosen.directory.resolve()
    return ReportOptions(
        url=chosen.url,
        token_file=chosen.token_file,
        directory=directory,
        checkpoint=chosen.checkpoint or str(directory / "checkpoint"),
        master=chosen.master,
        topic=chosen.topic,
        reporter=chosen.reporter,
        trigger_ms=chosen.trigger_ms,
        max_messages=chosen.max_messages,
        history=(chosen.history or str(directory / "history")) if chosen.history_days > 0 else "",
        history_days=chosen.history_days,
        change_threshold=chosen.change_threshold,
        configuration=CONFIGURATION | dict(setting.split("=", 1) for setting in chosen.conf),
    )


def main() -> int:
    """Run the job as a process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    return run(parse_options(sys.argv[1:], os.environ))


if __name__ == "__main__":
    sys.exit(main())
