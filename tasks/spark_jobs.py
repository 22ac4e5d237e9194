"""Starts batch jobs on Spark as processes of their own: one that runs out of memory takes no worker along."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

from django.conf import settings

logger = logging.getLogger("tasks.spark_jobs")

WITHHELD = frozenset({"DATABASE_URL", "REDIS_URL", "SCALABLE_SECRET_KEY", "SCALABLE_TOKEN_SECRET"})
LONGEST_SECONDS = 6 * 3600
PATIENCE_SECONDS = 30


def history() -> Path:
    """Where the load report of this installation keeps its history."""
    return settings.SCALABLE_DATA_DIR / "spark" / "load-report" / "history"


def run(job: str, *arguments: str) -> int:
    """Run a job of the package `spark` to its end, and give its exit status; its progress is in its own file.

    It gets no address and no secret of the servers behind the product, and is cancelled after six hours.
    """
    environment = {name: value for name, value in os.environ.items() if name not in WITHHELD}
    process = subprocess.Popen(
        [sys.executable, "-m", f"spark.{job}", *arguments],
        cwd=settings.BASE_DIR,
        env={**environment, "SCALABLE_DATA_DIR": str(settings.SCALABLE_DATA_DIR)},
        stdout=subprocess.DEVNULL,
    )
    try:
        status = process.wait(LONGEST_SECONDS)
    except BaseException as error:
        process.terminate()
        status = _ended(process)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
    if status:
        logger.error("the job %s ended with %d", job, status)
    return status


def _ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
