"""A driver whose executor is killed while it runs; tells what Spark counted, and what `stage_counts` did.

`python -m tests.spark.losing MASTER DIRECTORY`
"""

import json
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import psutil
from pyspark import SparkContext, TaskContext

from spark.jobs import stage_counts
from spark.session import make_session
from tests.spark.waiting import wait_for

GROUP, TASKS = "losing", 8
EXECUTORS = 2


def main() -> None:
    """Kill the executor that has done most of what a shuffle needs, and go on."""
    master, directory = sys.argv[1], Path(sys.argv[2])
    session = make_session(name="losing", master=master, directory=directory)
    context = session.sparkContext
    release = directory / "release"
    work = threading.Thread(target=_work, args=(context, directory, release), daemon=True)
    work.start()
    wait_for(
        lambda: len(list(directory.glob("done-*"))) == TASKS - EXECUTORS, "all tasks but those that wait"
    )
    wait_for(lambda: _counted(context)["tasks"]["done"] == TASKS - EXECUTORS, "what they counted")
    psutil.Process(int((directory / "done-0").read_text())).parent().parent().kill()
    wait_for(lambda: len(list(directory.glob("again-*"))) > 0, "a task that is done again")
    release.touch()
    work.join()
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job_id) for job_id in tracker.getJobIdsForGroup(GROUP)]
    stages = [tracker.getStageInfo(stage_id) for job in jobs if job for stage_id in job.stageIds]
    raw = [[stage.numCompletedTasks, stage.numTasks] for stage in stages if stage]
    sys.stdout.write(json.dumps({"spark": raw, "counts": _counted(context)}))
    session.stop()


def _counted(context: SparkContext) -> dict[str, dict[str, int]]:
    return stage_counts(context, GROUP)


def _work(context: SparkContext, directory: Path, release: Path) -> None:
    context.setJobGroup(GROUP, GROUP)

    def task(number: int, rows: Iterable[int]) -> Iterator[tuple[int, int]]:
        # Waiting again, those that wait would hold all places, and nothing could be done again.
        if number >= TASKS - EXECUTORS and _attempt_number() == 0:
            wait_for(release.exists, "the end of the others")
        done = directory / f"done-{number}"
        if done.exists():
            (directory / f"again-{number}").touch()
        else:
            done.write_text(str(os.getpid()))
        return ((number, row) for row in rows)

    rows: Any = context.parallelize(range(TASKS), TASKS).mapPartitionsWithIndex(task)
    rows.groupByKey(EXECUTORS).count()


def _attempt_number() -> int:
    """Tell how often the task that runs here has failed before."""
    task = TaskContext.get()
    assert task is not None
    return task.attemptNumber()


if __name__ == "__main__":
    main()
