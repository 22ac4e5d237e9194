"""Makes the Spark session of the product's jobs, on any master, with all its files below one directory."""

import logging
import os
import shutil
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from spark.source import ScalableTopicSource

ROOT = Path(__file__).resolve().parent.parent
LOOPBACK = "127.0.0.1"

# A short micro-batch runs code that never gets hot: the first compiler alone and one thread of garbage
# collection leave the cores to the work. One shuffle partition: the rows of a trigger are few.
_SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_DEFAULTS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.redaction.options.regex": "(?i)url|token",
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def make_session(
    *, name: str, master: str, directory: Path, configuration: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark's driver in this process; `configuration` overrides what is chosen here.

    Python workers, here and on the executors of a cluster, run this interpreter and import this source tree;
    see `docs/load-pipeline.md` for clusters where neither is at the same place.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _prepare_environment(master)
    settings = {**_DEFAULTS, **_places(directory, name), **_local(master), **(configuration or {})}
    builder = SparkSession.builder.appName(name).master(master)
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    with _own_interrupts():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")  # jobs tell why they fail themselves, in fewer lines
    logging.getLogger("py4j").setLevel(logging.WARNING)
    session.dataSource.register(ScalableTopicSource)
    return session


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep what the process does at SIGINT: PySpark puts a handler of its own there when a context begins."""
    kept = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if kept is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, kept)


def _prepare_environment(master: str) -> None:
    """Tell the JVM, which inherits it, where Python and this source tree are."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    known = os.environ.get("PYTHONPATH", "")
    if str(ROOT) not in known.split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), known]))
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def _places(directory: Path, name: str) -> dict[str, str]:
    temporary = _emptied(directory / "temporary" / name)
    homes = {"derby.system.home": directory / "derby", "java.io.tmpdir": temporary}
    in_java = " ".join(f"-D{option}={_quoted(home)}" for option, home in homes.items())
    return {
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.extraJavaOptions": f"{_SMALL_JVM} {in_java}",
        "spark.executor.extraJavaOptions": _SMALL_JVM,
        "spark.executorEnv.PYTHONPATH": str(ROOT),
    }


def _quoted(path: Path) -> str:
    """Write a path as Spark reads it in options for Java."""
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _emptied(place: Path) -> Path:
    """Make a directory for what the JVM leaves behind; of each name one session runs at once."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place


def _local(master: str) -> dict[str, str]:
    if not master.startswith("local"):
        return {}
    return {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}
