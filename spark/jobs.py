"""What all batch jobs have in common: options, a session, progress in a file, and how they end.

A job that gets SIGTERM or SIGINT cancels what runs on Spark and ends with 143, within seconds whatever Spark
does; with `--with-parent` also when its standard input ends, as when the process dies that started it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import IO, Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from scalable.domain.errors import ScalableError
from scalable.domain.jobs import FIRST_DAY, parse_day
from scalable.domain.names import TopicName
from spark.session import make_session

logger = logging.getLogger("spark.jobs")

POLL_SECONDS = 0.5
PREDECESSOR_SECONDS = 60.0
"""So long a worker's job waits for that of a worker that has lost it, and ends its process once it knows."""
CANCELLED = 143
STOP_SECONDS = 5.0
"""So long a cancelled job waits for Spark to stop; its JVM ends with the process in any case."""
END_SECONDS = 3 * STOP_SECONDS
"""So long after the signal the process ends even if the exception was lost in a callback of a library."""
_SETTINGS = {"spark.sql.adaptive.enabled": "true"}
TASKS_PER_CORE = 4
_CAUSE = re.compile(r"^Caused by: (?:[\w.$]+: )*(.+)$", re.MULTILINE)
Result = dict[str, Any]


_told_to_end = threading.Event()


class Cancelled(BaseException):
    """The job was told to end."""


def job_parser(name: str, summary: str | None, environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """Give the options that all jobs have."""
    data = Path(environment.get("SCALABLE_DATA_DIR") or ".data")
    parser = argparse.ArgumentParser(prog=f"python -m spark.{name}", description=summary, allow_abbrev=False)
    add = parser.add_argument
    add("--history", default=str((data / "spark/load-report/history").resolve()), help="path or URI")
    add("--directory", type=Path, default=data / "spark" / "jobs", help="status files, scratch files")
    add("--master", default=environment.get("SPARK_MASTER") or "local[2]", help="(SPARK_MASTER)")
    add("--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark")
    add("--with-parent", action="store_true", help="end when the standard input ends")
    return parser


def into_option(parser: argparse.ArgumentParser) -> None:
    """Give the option of jobs that write results."""
    parser.add_argument("--into", metavar="PATH", help="write exactly there, and not by day below --output")


def check_namespace(parser: argparse.ArgumentParser, namespace: str) -> None:
    """Refuse what is no `tenant/namespace`; nothing stands for all."""
    try:
        if namespace:
            TopicName.parse(f"topic://{namespace}/any")
    except ScalableError as error:
        parser.error(str(error))


def read_day(text: str) -> date:
    """Read a day of a command line; raises ArgumentTypeError."""
    try:
        return parse_day(text)
    except ValueError:
        problem = f"{text!r} is no day such as 2026-11-27, from {FIRST_DAY} on"
        raise argparse.ArgumentTypeError(problem) from None


def yesterday() -> str:
    """Give the last day that is over, UTC."""
    return str((datetime.now(UTC) - timedelta(days=1)).date())


def run_job(name: str, options: argparse.Namespace, work: Callable[[SparkSession], Result]) -> int:
    """Run a job as a process: 0 when it did its work, 1 when it failed, 143 when it was cancelled."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        _heed(_cancel)
        if options.with_parent:
            threading.Thread(target=_end_with_parent, daemon=True).start()
        directory = options.directory.resolve()
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / f"{name}.lock").open("w") as lock:
            if not take_lock(lock, seconds=PREDECESSOR_SECONDS if options.with_parent else 0):
                raise SystemExit(f"another {name} runs in {directory}")
            return _run(name, options, directory, work)
    except Cancelled:
        sys.stderr.flush()
        os._exit(CANCELLED)  # what is finalised on the way out might wait behind a call that was interrupted


def write_csv(table: DataFrame, path: str) -> None:
    """Write a CSV that any program reads: quotes within texts are doubled, spaces around them stay."""
    writer = table.write.mode("overwrite")
    writer.csv(path, header=True, escape='"', ignoreLeadingWhiteSpace=False, ignoreTrailingWhiteSpace=False)


def take_lock(lock: IO[str], *, seconds: float) -> bool:
    """Lock a file for this process; wait for its holder for so long at most, and tell whether it let go."""
    gives_up_at = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= gives_up_at:
                return False
            time.sleep(POLL_SECONDS)
        else:
            return True


def _run(
    name: str, options: argparse.Namespace, directory: Path, work: Callable[[SparkSession], Result]
) -> int:
    progress = Progress(name, directory / f"{name}.json")
    try:
        if "://" not in options.history and not Path(options.history).is_dir():
            raise OSError(f"there is no history at {options.history}")  # before a JVM is started in vain
        session = _start(
            lambda: make_session(
                name=f"scalable-topics {name}",
                master=options.master,
                directory=directory,
                configuration={**_SETTINGS, **dict(setting.split("=", 1) for setting in options.conf)},
            )
        )
        result = _work(session, progress, work)
    except Cancelled:
        progress.end("CANCELLED")
        raise
    except (PySparkException, Py4JError, ValueError, OSError) as error:
        if _told_to_end.is_set():  # whoever ends all processes of a group ends the JVM before us
            progress.end("CANCELLED")
            return CANCELLED
        reason = reason_of(error)
        logger.error("%s failed: %s", name, reason)
        progress.end("FAILED", error=reason[:2000])
        return 1
    _heed(signal.SIG_IGN)  # it is done
    if not progress.end("SUCCEEDED", result=result):
        return 1
    sys.stdout.write(f"{json.dumps(result)}\n")
    return 0


def reason_of(error: Exception) -> str:
    """Give what an error says without the stack of Java, and what caused it in the end."""
    said = str(error)
    reason = said.partition("\n\tat ")[0]
    causes = _CAUSE.findall(said)
    return reason if not causes or causes[-1] in reason else f"{reason}: {causes[-1]}"


def _start(make: Callable[[], SparkSession]) -> SparkSession:
    """Make it in a thread that no signal disturbs: a JVM that is given up while it starts never ends."""
    made = Future[SparkSession]()

    def run() -> None:
        try:
            made.set_result(make())
        except BaseException as error:
            made.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return made.result()


def _work(session: SparkSession, progress: Progress, work: Callable[[SparkSession], Result]) -> Result:
    try:
        cores = session.sparkContext.defaultParallelism
        session.conf.set("spark.sql.shuffle.partitions", str(cores * TASKS_PER_CORE))
        with progress.following(session):
            return work(session)
    except Cancelled:
        # The connection of this thread stands in the call that was interrupted, and others wait behind it.
        stopping = threading.Thread(target=_stop, args=(session, progress), daemon=True)
        stopping.start()
        stopping.join(STOP_SECONDS)
        raise
    finally:
        if not _told_to_end.is_set():
            session.stop()


def _stop(session: SparkSession, progress: Progress) -> None:
    with suppress(Py4JError, OSError):  # the JVM may be gone
        session.sparkContext.cancelJobGroup(progress.group)
        session.stop()


def _heed(handler: Callable[..., object] | signal.Handlers) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _cancel(*_: object) -> None:
    if _told_to_end.is_set():
        return  # it is on its way
    _told_to_end.set()
    threading.Thread(target=_end_in_any_case, daemon=True).start()
    raise Cancelled


def _end_in_any_case() -> None:
    time.sleep(END_SECONDS)
    os._exit(CANCELLED)


class Progress:
    """Keeps how far a job is in a JSON file: stages and tasks, done and known so far."""

    def __init__(self, name: str, path: Path) -> None:
        self.group = name
        self._path = path
        self._is_unwritten = False
        self._status: dict[str, Any] = {"job": name, "pid": os.getpid(), "startedAtMs": _now_ms()}
        self._context: SparkContext | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._write("STARTING")

    def following(self, session: SparkSession) -> Progress:
        """Look at a session's jobs of this thread, from now until the context ends."""
        self._context = session.sparkContext
        self._context.setJobGroup(self.group, self.group, interruptOnCancel=True)
        return self

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._over.set()
        self._thread.join(
            STOP_SECONDS if kind is Cancelled else None
        )  # else its look would have the last word

    def end(self, state: str, **more: object) -> bool:
        """Say how the job ended; False when that cannot be written."""
        self._status.update(more)
        return self._write(state)

    def _follow(self) -> None:
        while not self._over.wait(POLL_SECONDS):
            self._look()
        self._look()

    def _look(self) -> None:
        assert self._context is not None
        with suppress(Py4JError):  # of a JVM that ends, the job itself says more
            self._status.update(stage_counts(self._context, self.group))
        self._write("RUNNING")

    def _write(self, state: str) -> bool:
        """Write the file anew; a full disk costs the progress, and not the work."""
        self._status.update(state=state, atMs=_now_ms())
        partial = self._path.with_suffix(".partial")
        try:
            partial.write_text(json.dumps(self._status))
            partial.replace(self._path)
        except OSError as error:
            if not self._is_unwritten:
                logger.error("the progress is not written: %s", error)
            self._is_unwritten = True
        else:
            self._is_unwritten = False
        return not self._is_unwritten


def stage_counts(context: SparkContext, group: str) -> dict[str, dict[str, int]]:
    """Count a group's stages and tasks, done and known so far; stages that Spark could skip count as done.

    Spark counts a task that is done again, its executor having been lost, as one more that is complete.
    """
    tracker = context.statusTracker()
    counts = {"stages": {"done": 0, "total": 0}, "tasks": {"done": 0, "total": 0}}
    for job_id in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(job_id)
        for stage_id in job.stageIds if job else ():
            stage = tracker.getStageInfo(stage_id)
            if job is None or stage is None:
                continue
            succeeded = job.status == "SUCCEEDED"
            done = stage.numTasks if succeeded else min(stage.numCompletedTasks, stage.numTasks)
            counts["stages"]["total"] += 1
            counts["stages"]["done"] += done == stage.numTasks
            counts["tasks"]["total"] += stage.numTasks
            counts["tasks"]["done"] += done
    return counts


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
