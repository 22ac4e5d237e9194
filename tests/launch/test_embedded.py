"""The embedded servers: passwords, restarts over the same data, and a place that their account can reach."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from launch.embedded import embedded_postgres, embedded_valkey, placement, remove_postgres
from launch.logs import RotatingLog
from launch.process import LaunchError, ManagedProcess, ProcessSpec

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another account")


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    """A folder that nobody but its owner can enter."""
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o700)
    yield folder
    remove_postgres(directory=folder / "postgres")


def running(spec: ProcessSpec, folder: Path) -> ManagedProcess:
    return ManagedProcess(spec, log=RotatingLog(folder / f"{spec.name}.log", name=spec.name))


def test_postgres_keeps_its_rows_over_restarts_and_wants_its_password(closed: Path) -> None:
    first = embedded_postgres(directory=closed / "postgres", durable=False)
    with running(first.spec, closed), psycopg.connect(first.url) as connection:
        connection.execute("create table kept as select 42 as value")
    second = embedded_postgres(directory=closed / "postgres", durable=False)
    with running(second.spec, closed):
        with psycopg.connect(second.url) as connection:
            assert connection.execute("select value from kept").fetchone() == (42,)
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(second.url, password="wrong")
    assert stat.S_IMODE((closed / "postgres" / "password").stat().st_mode) == 0o600


ODD_NAMES = [
    "a space",
    'a "quote"',
    "an 'apostrophe'",
    "a back\\slash",
    "é",
    "100% $HOME #1",
    "d[1]",
    "*?{a,b}",
    "a\\[b",
]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_data_directory_may_have_any_name(tmp_path: Path, name: str) -> None:
    directory = tmp_path / name
    servers = (
        embedded_postgres(directory=directory / "postgres", durable=False),
        embedded_valkey(directory=directory / "valkey"),
    )
    database, queue = servers
    with running(database.spec, tmp_path), psycopg.connect(database.url) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    with running(queue.spec, tmp_path), redis.Redis.from_url(queue.url) as client:
        assert client.set("kept", 1)
        assert client.config_get("dir")["dir"] == str(directory / "valkey")
    remove_postgres(directory=directory / "postgres")


def test_modes_of_the_users_folders_stay_as_they_are(closed: Path) -> None:
    embedded_postgres(directory=closed / "postgres", durable=False)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


@as_root
def test_a_cluster_that_nobody_remembers_is_swept(closed: Path) -> None:
    embedded_postgres(directory=closed / "postgres", durable=False)
    forgotten = placement.STATE_HOME / "clusters" / (closed / "postgres" / "cluster").read_text()
    assert (forgotten / "data" / "PG_VERSION").exists()
    (closed / "postgres" / "cluster").unlink()
    embedded_postgres(directory=closed / "postgres", durable=False)
    assert not forgotten.exists()
    assert (closed / "postgres" / "cluster").exists()


@as_root
def test_a_prepared_place_is_refused(monkeypatch: pytest.MonkeyPatch, closed: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    trap.mkdir()
    trap.chmod(0o777)
    monkeypatch.setattr(placement, "STATE_HOME", trap)
    with pytest.raises(LaunchError, match="is not root's alone"):
        embedded_postgres(directory=closed / "postgres", durable=False)


def test_a_start_that_died_in_initdb_is_repeated(closed: Path) -> None:
    account = placement.server_account()
    home = placement.cluster_home(closed / "postgres", account)
    (home / "data.new").mkdir()
    (home / "data.new" / "half").write_text("of a cluster")
    service = embedded_postgres(directory=closed / "postgres", durable=False)
    with running(service.spec, closed), psycopg.connect(service.url) as connection:
        assert connection.execute("show server_encoding").fetchone() == ("UTF8",)


def test_valkey_keeps_its_keys_and_wants_its_password(closed: Path) -> None:
    for expected in (None, b"kept"):
        service = embedded_valkey(directory=closed / "valkey")
        with running(service.spec, closed), redis.Redis.from_url(service.url) as client:
            assert client.get("key") == expected
            client.set("key", "kept")
            stranger = redis.Redis(port=urlsplit(service.url).port or 0)
            with stranger, pytest.raises(redis.AuthenticationError):
                stranger.ping()


def test_an_account_without_a_name_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 4_123_456_789)
    with pytest.raises(LaunchError, match="an account without a name"):
        placement.server_account()
