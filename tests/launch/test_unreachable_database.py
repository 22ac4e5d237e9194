"""A database or Redis that the caller names and that cannot be used is told with setting and address."""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode, urlsplit, urlunsplit

import pytest

from launch.given import given_settings, reach_databases, reach_redis
from launch.ports import free_port
from launch.process import ROOT, LaunchError

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


@pytest.mark.parametrize("option", ["encoding=nothing", "socket_timeout=1e400", "db=x", "protocol=9"])
def test_an_option_of_redis_that_makes_no_sense(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    url = f"redis://127.0.0.1:{free_port()}?{option}"
    monkeypatch.setenv("REDIS_URL", url)
    with pytest.raises(LaunchError, match="REDIS_URL"):
        reach_redis(url)


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://user:{PASSWORD}@one..two:1/orders",
        f"postgresql://user:{PASSWORD}@{'x' * 80}:1/orders",
        f"postgresql://user:{PASSWORD}@127.0.0.1:1/orders?nothing=1",
        f"postgresql://user:{PASSWORD}@/orders?host=/nowhere",
        "postgresql:///orders?host=/nowhere&port=1&user=u",
    ],
)
def test_an_address_of_a_database_that_makes_no_sense(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("DATABASE_URL", address)
    with pytest.raises(LaunchError, match="DATABASE_URL") as refused:
        reach_databases(given_settings()["DATABASES"])
    assert PASSWORD not in f"{refused.value.message} {refused.value.hint}"


def test_parts_of_an_address_may_stand_among_its_options(
    monkeypatch: pytest.MonkeyPatch, service_environment: dict[str, str]
) -> None:
    """As those who reach a server by its socket write them."""
    given = urlsplit(service_environment["DATABASE_URL"])
    parts = {"host": given.hostname, "port": given.port, "user": given.username, "password": given.password}
    options = urlencode({name: value for name, value in parts.items() if value is not None})
    monkeypatch.setenv("DATABASE_URL", f"postgresql://{given.path}?{options}")
    reach_databases(given_settings()["DATABASES"])


@pytest.mark.parametrize("name", ["", " "])
def test_a_folder_without_a_name(tmp_path: Path, name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "launch", "up", "--data-dir", name],
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
