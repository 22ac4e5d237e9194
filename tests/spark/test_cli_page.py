"""The commands for jobs in `docs/cli.md`, pasted into a shell, with a real worker."""

from pathlib import Path

import pytest

from scalable.client import Admin
from tests.cli.shell import block_of, run_block
from tests.processes import ProcessFactory
from tests.spark.recorded import minute, record
from tests.spark.waiting import wait_for


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.django_db(transaction=True)
def test_the_commands_for_jobs_can_be_pasted(
    processes: ProcessFactory, java: dict[str, str], tmp_path: Path
) -> None:
    record(tmp_path / "spark" / "load-report" / "history", [minute("public/default/a", 0, 0, 1.0)])

    node = processes.node(SCALABLE_DATA_DIR=str(tmp_path))
    processes.worker(
        SCALABLE_DATA_DIR=str(tmp_path),
        SPARK_MASTER="local[1]",
        JAVA_HOME=java["JAVA_HOME"],
        REAL_JAVA_HOME=java.get("REAL_JAVA_HOME", ""),
    )
    (folder := tmp_path / "here").mkdir()
    run_block(block_of("jobs"), node, folder=folder, token_file=tmp_path / "token")
    assert "<!doctype html>" in (folder / "report.html").read_text().lower()
    with Admin(node.url, node.admin_token) as admin:
        compaction, report = admin.jobs()
        assert (compaction["kind"], compaction["cancelRequested"]) == ("compact", True)
        assert (report["kind"], report["state"]) == ("daily_report", "SUCCEEDED")
        wait_for(lambda: admin.job(compaction["jobId"])["endedAtMs"] is not None, "the end", seconds=120)
