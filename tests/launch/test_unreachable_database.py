"""A database or Redis that the caller names and that cannot be used is told with setting and address."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from launch.ports import free_port
from launch.process import ROOT

PASSWORD = "sesame-of-one-test"


def start(folder: Path, **databases: str) -> tuple[int, str]:
    """Start an instance; give its status and all that it says."""
    ended = subprocess.run(
        [sys.executable, "-m", "launch", "up", "--no-spark", "--data-dir", str(folder / "data")],
        env={**os.environ, "PYTHONPATH": str(ROOT), **databases},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return ended.returncode, ended.stdout + ended.stderr


def check_refusal(told: str, *, setting: str, where: str) -> None:
    assert setting in told
    assert where in told
    assert "Traceback" not in told
    assert PASSWORD not in told


@pytest.mark.parametrize("setting", ["DATABASE_URL", "SCALABLE_SEGMENTS_DATABASE_URL"])
def test_a_server_that_is_not_there(
    tmp_path: Path, service_environment: dict[str, str], setting: str
) -> None:
    where = f"127.0.0.1:{free_port()}"
    given = {"DATABASE_URL": service_environment["DATABASE_URL"]}
    status, told = start(tmp_path, **{**given, setting: f"postgresql://user:{PASSWORD}@{where}/orders"})
    assert status == 1
    check_refusal(told, setting=setting, where=where)
    assert "refused" in told


def test_a_redis_that_is_not_there(tmp_path: Path, service_environment: dict[str, str]) -> None:
    where = f"127.0.0.1:{free_port()}"
    given = {"DATABASE_URL": service_environment["DATABASE_URL"]}
    status, told = start(tmp_path, **given, REDIS_URL=f"redis://user:{PASSWORD}@{where}/0")
    assert status == 1
    check_refusal(told, setting="REDIS_URL", where=where)
    assert "refused" in told


@pytest.mark.parametrize("option", ["foo=bar", "socket_timeout=abc", "retry=3"])
def test_a_redis_with_an_option_that_does_not_exist(
    tmp_path: Path, service_environment: dict[str, str], option: str
) -> None:
    url = f"{service_environment['REDIS_URL']}?{option}"
    given = {"DATABASE_URL": service_environment["DATABASE_URL"]}
    status, told = start(tmp_path, **given, REDIS_URL=url)
    assert status == 1
    check_refusal(told, setting="REDIS_URL", where="127.0.0.1")


def test_a_folder_without_a_name(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "launch", "up", "--data-dir", ""],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert "it names no folder" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_has_no_such_database(tmp_path: Path, service_environment: dict[str, str]) -> None:
    known = urlsplit(service_environment["DATABASE_URL"])
    status, told = start(tmp_path, DATABASE_URL=urlunsplit(known._replace(path="/no-such-database")))
    assert status == 1
    check_refusal(told, setting="DATABASE_URL", where=f"{known.hostname}:{known.port}")
    assert 'database "no-such-database" does not exist' in told
    assert not known.password or known.password not in told
