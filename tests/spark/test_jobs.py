"""Batch jobs that are asked for by REST and done by a real worker, on a standalone cluster of Spark."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.db.models import F

from launch.process import ManagedProcess
from scalable.client import Admin
from scalable.domain.errors import JobBusy
from scalable.job_models import SparkJob
from scalable.services import jobs
from tests.cli.conftest import Command, offline_command
from tests.processes import ProcessFactory
from tests.spark.cluster import Cluster
from tests.spark.recorded import DAY, Row, endless_minutes, minute, record
from tests.spark.waiting import wait_for

PATIENCE_SECONDS = 600
"""A machine that is ten times slower may take so long for one job."""
pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(3 * PATIENCE_SECONDS),
    pytest.mark.django_db(transaction=True),
]
__all__ = ["offline_command"]


@pytest.fixture
def admin(processes: ProcessFactory, tmp_path: Path) -> Iterator[Admin]:
    """A superuser's client of a node whose data directory is that of the test."""
    node = processes.node(SCALABLE_DATA_DIR=str(tmp_path))
    with Admin(node.url, node.admin_token) as client:
        yield client


def start_worker(
    processes: ProcessFactory, java: dict[str, str], data: Path, master: str = "local[1]"
) -> ManagedProcess:
    """Start a worker that does Spark's jobs on a master."""
    return processes.worker(
        SCALABLE_DATA_DIR=str(data),
        SPARK_MASTER=master,
        JAVA_HOME=java["JAVA_HOME"],
        REAL_JAVA_HOME=java.get("REAL_JAVA_HOME", ""),
    )


def write_history(data: Path, *files: list[Row]) -> None:
    record(data / "spark" / "load-report" / "history", *files)


def write_endless_history(data: Path) -> None:
    write_history(data, endless_minutes())


def ended(admin: Admin, job: dict[str, Any]) -> dict[str, Any]:
    """Wait for the end of a job."""
    wait_for(
        lambda: admin.job(job["jobId"])["endedAtMs"] is not None,
        f"the end of {job}",
        seconds=PATIENCE_SECONDS,
    )
    return admin.job(job["jobId"])


def test_every_job_runs_on_a_cluster(
    admin: Admin,
    processes: ProcessFactory,
    java: dict[str, str],
    cluster: Cluster,
    offline_command: Command,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    rows = [minute("public/default/a", 0, number, 400.0 * number) for number in range(60)]
    write_history(tmp_path, rows[:30], rows[30:])
    before = len(cluster.status()["completedapps"])
    report = admin.start_job("daily_report", {"day": str(DAY), "namespace": "public/default"})
    compaction = admin.start_job("compact")
    with pytest.raises(JobBusy):
        admin.start_job("daily_report")
    assert [job["state"] for job in admin.jobs()] == ["QUEUED", "QUEUED"]
    start_worker(processes, java, tmp_path, cluster.master)
    report, compaction = ended(admin, report), ended(admin, compaction)
    assert (report["state"], compaction["state"]) == ("SUCCEEDED", "SUCCEEDED"), (report, compaction)
    assert report["tasks"]["done"] == report["tasks"]["total"] > 0
    assert report["stages"]["done"] == report["stages"]["total"] > 0
    assert report["startedAtMs"] <= report["endedAtMs"] <= compaction["startedAtMs"]
    assert compaction["result"] == {"days": 1, "files": 2, "unreadable": []}
    page = admin.job_file(report["jobId"], "report.html").decode()
    assert "topic://public/default/a" in page
    (topic,) = csv.DictReader(io.StringIO(admin.job_file(report["jobId"], "topics.csv").decode()))
    assert topic["minutes"] == "60"
    policy = tmp_path / "early.json"
    policy.write_text(json.dumps({"profile": "pip-483", "splitMsgRateInThreshold": 5_000}))
    monkeypatch.setenv("SCALABLE_URL", admin._endpoint.url)
    monkeypatch.setenv("SCALABLE_TOKEN", admin._endpoint.token)
    played = offline_command(
        *("-o", "json", "jobs", "policy-replay", "--day", str(DAY), "--profile", "pip-483"),
        *("--policy", str(policy)),
    )
    assert played.status == 0, played.err
    policies = {each["policy"]: each for each in played.body["result"]["policies"]}
    assert policies.keys() == {"pip-483", "early"}
    assert policies["early"]["actions"] > policies["pip-483"]["actions"] > 0
    assert len(cluster.status()["completedapps"]) == before + 3


def test_a_job_that_is_cancelled_ends_on_the_cluster(
    admin: Admin, processes: ProcessFactory, java: dict[str, str], cluster: Cluster, tmp_path: Path
) -> None:
    write_endless_history(tmp_path)
    start_worker(processes, java, tmp_path, cluster.master)
    job = admin.start_job("policy_replay", {"day": str(DAY)})
    wait_for(lambda: admin.job(job["jobId"])["tasks"]["total"] > 0, "tasks", seconds=PATIENCE_SECONDS)
    assert len(cluster.status()["activeapps"]) == 1
    pid = json.loads((tmp_path / "spark" / "jobs" / "policy_replay.json").read_text())["pid"]
    admin.cancel_job(job["jobId"])
    job = ended(admin, job)
    assert (job["state"], job["cancelRequested"], job["result"]) == ("CANCELLED", True, None)
    assert job["tasks"]["done"] < job["tasks"]["total"]
    assert not psutil.pid_exists(pid)
    wait_for(lambda: not cluster.status()["activeapps"], "the cluster to be free")


def test_no_more_is_done_than_there_is_when_an_executor_is_lost(
    java: dict[str, str], cluster: Cluster, tmp_path: Path
) -> None:
    """Spark does again what the executor had kept for others, and counts it twice."""
    driver = subprocess.run(
        [sys.executable, "-m", "tests.spark.losing", cluster.master, str(tmp_path)],
        env={**os.environ, **java},
        stdout=subprocess.PIPE,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    told = json.loads(driver.stdout)
    assert any(done > tasks for done, tasks in told["spark"]), told
    for counted in told["counts"].values():
        assert counted["done"] == counted["total"] > 0, told


def test_a_job_ends_with_its_worker_and_is_done_again_by_another(
    admin: Admin, processes: ProcessFactory, java: dict[str, str], tmp_path: Path
) -> None:
    write_endless_history(tmp_path)
    worker = start_worker(processes, java, tmp_path)
    job = admin.start_job("policy_replay", {"day": str(DAY), "profiles": ["pip-483"]})
    status = tmp_path / "spark" / "jobs" / "policy_replay.json"
    wait_for(status.exists, "a status")
    child = psutil.Process(json.loads(status.read_text())["pid"])
    worker.send_signal(signal.SIGKILL)
    child.wait(60)
    assert admin.job(job["jobId"])["state"] == "RUNNING"  # until its runner has been silent for long enough
    SparkJob.objects.update(seen_at=F("seen_at") - timedelta(seconds=jobs.LEASE_SECONDS))
    start_worker(processes, java, tmp_path)
    jobs.sweep_jobs()
    wait_for(lambda: admin.job(job["jobId"])["attempts"] == 2, "another worker")
    admin.cancel_job(job["jobId"])
    assert ended(admin, job)["state"] == "CANCELLED"
