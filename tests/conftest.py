"""Fixtures of all tests: real servers and processes, the test database, the environment of the settings."""

import os
import signal
import sys
from collections.abc import Generator, Iterator
from urllib.parse import quote, urlsplit

import django
import hypothesis
import pytest
from django.conf import settings
from django.db import connection, transaction
from django.db.backends.utils import CursorWrapper
from django.test import TransactionTestCase
from pytest_django import DjangoDbBlocker
from xdist.remote import Producer

from launch.process import ManagedProcess
from tests.databases import external_database, external_port
from tests.order import LongOnesFirst, long_ones_first
from tests.processes import LiveNode, ProcessFactory, Sandbox
from tests.warm_processes import WarmSandbox

__all__ = ["external_database", "external_port"]

SANDBOX = pytest.StashKey[Sandbox]()
FAILED = pytest.StashKey[bool]()
SMALL_TABLE_BYTES = 256 * 1024
SIZES_OF_TABLES = """
SELECT name, pg_relation_size(name::regclass), pg_relation_size(('pristine.' || name)::regclass)
FROM unnest(%s::text[]) AS name"""
PATIENCE, PATIENCE_MS = "SCALABLE_IDLE_TRANSACTION_TIMEOUT_MS", "300000"

# A loaded machine is no failure of a property.
hypothesis.settings.register_profile("product", deadline=None)
hypothesis.settings.load_profile("product")


def pytest_configure(config: pytest.Config) -> None:
    """Fix the environment, then load the settings; pytest-django, which comes last, finds Django set up."""
    if settings.configured:
        raise pytest.UsageError(
            "unset DJANGO_SETTINGS_MODULE: the tests make the environment of the settings"
        )
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So it is for what a shell runs in the background, and for what that starts: tests send Ctrl-C.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sandbox = WarmSandbox()
    environment = sandbox.environment()
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        # Each worker of xdist inherits this environment, and must not take our servers for servers given by
        # the user.
        sandbox.stop()
        environment = {}
    else:
        config.stash[SANDBOX] = sandbox
    # A test may stand still within its transaction for as long as a loaded machine lets it.
    settings_alone = {"DJANGO_SETTINGS_MODULE": "scalable.settings", PATIENCE: PATIENCE_MS}
    os.environ.update(environment, **settings_alone)
    django.setup()
    # An xdist worker that finds the module's name in its environment would load the settings before this
    # function runs, and processes of the product keep the patience that they have.
    for name in settings_alone:
        del os.environ[name]


def pytest_unconfigure(config: pytest.Config) -> None:
    if SANDBOX in config.stash:
        config.stash[SANDBOX].stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have what migrations wrote given back after each transactional test, when its own fixtures are done.

    Django would empty the same tables before it, and write its content types anew, which takes longer.
    """
    TransactionTestCase._fixture_teardown = lambda _: None  # type: ignore[attr-defined]
    for item in items:
        names: list[str] = getattr(item, "fixturenames", [])
        marker = item.get_closest_marker("django_db")
        transactional = marker is not None and marker.kwargs.get("transaction")
        if (transactional or "transactional_db" in names) and "rows_given_back" not in names:
            names.insert(0, "rows_given_back")  # set up first, so torn down last
    if hasattr(config, "workerinput"):
        long_ones_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LongOnesFirst | None:
    """Share whole files in our order."""
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False
    return LongOnesFirst(config, log)


@pytest.fixture(autouse=True)
def rules_forgotten() -> None:
    """Let no test know what another one granted: this process keeps the rules of access for a while."""
    from scalable.services.rules import rules  # models can be loaded only now

    rules.forget()


@pytest.fixture(autouse=True)
def trace_cleared() -> None:
    """Let no test act in the name of whoever asked in the one before: all run in one context."""
    from scalable import trace

    trace.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(scope="session")
def sandbox(pytestconfig: pytest.Config) -> Sandbox:
    """PostgreSQL and Valkey of this pytest process, running."""
    running = pytestconfig.stash[SANDBOX]
    running.start()
    return running


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None, sandbox: Sandbox
) -> None:
    """Have the servers up before pytest-django makes the test database."""


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """End the sessions that are left before the test database is dropped: on a loaded machine they linger."""
    yield
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.fixture(scope="session")
def tables(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> tuple[str, ...]:
    """Copy every table as migrations left it, those of the data plane too, which Django does not know."""
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
        names = tuple(sorted({name for (name,) in cursor.fetchall()} - {"django_migrations"}))
        # The test database is emptied again and again; a test of the audit has the trigger back.
        cursor.execute("ALTER TABLE scalable_auditevent DISABLE TRIGGER audit_stays")
        cursor.execute("CREATE SCHEMA pristine")
        for name in names:
            cursor.execute(f"CREATE TABLE pristine.{name} AS TABLE {name}")
    connection.close()
    return names


@pytest.fixture
def rows_given_back(tables: tuple[str, ...], django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Leave the rows that migrations wrote, and no others, to the next test."""
    yield
    with django_db_blocker.unblock(), transaction.atomic(), connection.cursor() as cursor:
        _give_back(cursor, tables)


def _give_back(cursor: CursorWrapper, tables: tuple[str, ...]) -> None:
    """Empty what a test wrote to, and fill what migrations had filled.

    A test writes a few rows to few tables: to delete those takes 4 ms, to truncate all tables 75 ms.
    """
    # Whoever was killed in a transaction has written, or will not write any more.
    cursor.execute(f"LOCK TABLE {', '.join(tables)} IN EXCLUSIVE MODE")
    cursor.execute(SIZES_OF_TABLES, [list(tables)])
    sizes = cursor.fetchall()
    small_bytes = _without_triggers(cursor)
    if large := [name for name, size, _ in sizes if size > small_bytes]:
        cursor.execute(f"TRUNCATE {', '.join(large)} CASCADE")
    if small := [name for name, size, _ in sizes if 0 < size <= small_bytes]:
        cursor.execute(";".join(f"DELETE FROM {name}" for name in small))
    cursor.execute(
        ";".join(
            f"INSERT INTO {name} OVERRIDING SYSTEM VALUE SELECT * FROM pristine.{name}"
            for name, _, pristine in sizes
            if pristine
        )
    )


def _without_triggers(cursor: CursorWrapper) -> int:
    """Have rows deleted in any order; give the size up to which that is quick, 0 where it is not allowed."""
    cursor.execute("SELECT current_setting('is_superuser')::boolean")
    if cursor.fetchone() != (True,):
        return 0
    cursor.execute("SET LOCAL session_replication_role = replica")
    return SMALL_TABLE_BYTES


@pytest.fixture
def redis_url(sandbox: Sandbox) -> str:
    """Address of the Valkey of this pytest process, emptied of what earlier tests left."""
    sandbox.clear_redis()
    return sandbox.environment()["REDIS_URL"]


@pytest.fixture
def service_environment(transactional_db: None, redis_url: str, sandbox: Sandbox) -> dict[str, str]:
    """Return what child processes need in their environment to see the *test* database."""
    values = connection.settings_dict
    user, password = quote(values["USER"]), quote(values["PASSWORD"])
    host = f"{values['HOST']}:{values['PORT']}" if values["PORT"] else values["HOST"]
    query = urlsplit(os.environ["DATABASE_URL"]).query
    url = f"postgresql://{user}:{password}@{host}/{quote(values['NAME'])}" + (f"?{query}" if query else "")
    return {**sandbox.environment(), "DATABASE_URL": url}


@pytest.fixture
def processes(
    request: pytest.FixtureRequest, sandbox: Sandbox, service_environment: dict[str, str]
) -> Iterator[ProcessFactory]:
    """Start web nodes and workers by hand, as in `processes.node(SCALABLE_HINTS_ENABLED="false")`."""
    factory = ProcessFactory(sandbox, service_environment)
    yield factory
    factory.stop()
    if request.node.stash.get(FAILED, False):
        for process in factory.processes:
            sys.stdout.write(f"\n{process.log.path.name}:\n{process.log.tail(60)}\n")


@pytest.fixture
def live_node(processes: ProcessFactory) -> LiveNode:
    """Return a real web node (uvicorn) on a free port that serves the test database."""
    return processes.node()


@pytest.fixture
def celery_worker_process(processes: ProcessFactory) -> ManagedProcess:
    """Return a real Celery worker process on the test database; its `pid` leads a process group."""
    return processes.worker()
