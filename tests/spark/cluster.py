"""A standalone cluster of Spark from the pip package: one master and two workers on this machine."""

from collections.abc import Mapping
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import httpx
import pyspark

from launch.ports import HOST, free_port
from launch.process import ProcessSpec
from launch.sandbox import ProcessFactory
from tests.spark.waiting import wait_for

SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


@dataclass(frozen=True)
class Cluster:
    """Where the cluster is."""

    master: str
    status_url: str

    def status(self) -> dict[str, Any]:
        """Give what the master says about its workers, or nothing while it is not up."""
        try:
            status: dict[str, Any] = httpx.get(self.status_url).raise_for_status().json()
        except (httpx.HTTPError, JSONDecodeError):  # it serves pages before it serves this
            return {}
        return status


def start_cluster(processes: ProcessFactory, java: Mapping[str, str], directory: Path) -> Cluster:
    """Start a master and two workers, and wait until they know each other."""
    master_port, status_port = free_port(), free_port()
    cluster = Cluster(f"spark://{HOST}:{master_port}", f"http://{HOST}:{status_port}/json/")
    ports = ("--port", str(master_port), "--webui-port", str(status_port))
    processes.run(spark_daemon("master.Master", *ports, java=java, directory=directory))
    for _ in range(2):
        resources = ("--cores", "1", "--memory", "1g", "--webui-port", str(free_port()), cluster.master)
        processes.run(spark_daemon("worker.Worker", *resources, java=java, directory=directory))
    wait_for(lambda: cluster.status().get("aliveworkers") == 2, "two workers")
    return cluster


def spark_daemon(name: str, *arguments: str, java: Mapping[str, str], directory: Path) -> ProcessSpec:
    """Describe a daemon of a standalone cluster in the foreground."""
    return ProcessSpec(
        name=name.split(".")[0],
        argv=(str(SPARK_CLASS), f"org.apache.spark.deploy.{name}", "--host", HOST, *arguments),
        environment={
            **java,
            "SPARK_HOME": str(SPARK_CLASS.parent.parent),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_WORKER_DIR": str(directory / "work"),
            "SPARK_LOCAL_DIRS": str(directory / "local"),
        },
        directory=directory,
    )
