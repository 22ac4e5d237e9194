"""How long a caller waits for the database: as long as a connection may become free, or an answer come."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import pytest
from django.db import connections
from psycopg_pool import PoolTimeout
from pytest_django import DjangoDbBlocker

from launch.ports import free_port
from scalable.settings import SILENT_SERVER, _database
from scalable.store.engine import base
from scalable.store.engine.base import DatabaseWrapper
from tests.faults.waiting import until

WAIT_SECONDS = 60.0


@pytest.fixture
def database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[DatabaseWrapper]:
    """A pool of one connection, whose callers would wait for ever for one that others use."""
    given = deepcopy(connections.settings["default"])
    given["OPTIONS"]["pool"] = {"min_size": 1, "max_size": 1, "timeout": 0.05, "reconnect_timeout": 0.1}
    database = DatabaseWrapper(given, "of one connection")
    with django_db_blocker.unblock(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "PATIENCE_SECONDS", 24 * 3600.0)
        yield database
        database.close_pool()


def connect(database: DatabaseWrapper) -> Any:
    return database.get_new_connection(database.get_connection_params())


def lead_to(database: DatabaseWrapper, port: str) -> None:
    """Have the pool connect to another port from now on."""
    database.settings_dict.update(HOST="127.0.0.1", PORT=port)
    database.pool.kwargs = {**database.pool.kwargs, "host": "127.0.0.1", "port": port}


def test_a_server_that_refuses_connections_is_not_waited_for(database: DatabaseWrapper) -> None:
    lead_to(database, str(free_port()))
    with ThreadPoolExecutor(1) as threads:
        for _ in range(3):
            with pytest.raises(PoolTimeout):
                threads.submit(connect, database).result(WAIT_SECONDS)


def test_a_connection_that_another_one_uses_is_waited_for(database: DatabaseWrapper) -> None:
    used = connect(database)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(connect, database)
        until(lambda: database.pool.get_stats().get("requests_errors", 0) > 2, what="looks in vain")
        assert not waiting.done()
        database.pool.putconn(used)
        assert waiting.result(WAIT_SECONDS).execute("SELECT 1").fetchone() == (1,)


def test_a_server_that_came_back_is_found_by_the_next_caller(database: DatabaseWrapper) -> None:
    port = str(database.settings_dict["PORT"])
    lead_to(database, str(free_port()))
    with pytest.raises(PoolTimeout):
        connect(database)
    until(lambda: database.pool.get_stats()["pool_size"] == 0, what="the pool to give up")
    lead_to(database, port)
    assert connect(database).execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize(("look_seconds", "is_waited_for"), [(24 * 3600.0, True), (0.0, False)])
def test_a_full_server_is_told_from_one_that_is_away_by_the_connections_that_it_serves(
    database: DatabaseWrapper, monkeypatch: pytest.MonkeyPatch, look_seconds: float, is_waited_for: bool
) -> None:
    monkeypatch.setattr(base, "LOOK_SECONDS", look_seconds)
    database.pool.putconn(connect(database))
    database.pool.resize(1, 2)
    lead_to(database, str(free_port()))  # no second connection can be made
    used = connect(database)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(connect, database)
        if not is_waited_for:
            with pytest.raises(PoolTimeout):
                waiting.result(WAIT_SECONDS)
            return
        until(lambda: ("127.0.0.1", database.settings_dict["PORT"]) in base._refusing, what="a refusal")
        errors = database.pool.get_stats().get("requests_errors", 0)
        until(lambda: database.pool.get_stats().get("requests_errors", 0) > errors + 2, what="looks in vain")
        assert not waiting.done()
        database.pool.putconn(used)
        assert waiting.result(WAIT_SECONDS) is used


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="Linux alone gives sent bytes a time")
def test_a_server_that_vanished_is_given_up_within_seconds(database: DatabaseWrapper) -> None:
    names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
    connection = connect(database)
    with socket.socket(fileno=os.dup(connection.fileno())) as held:
        assert held.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        set_to = [held.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names]
    assert set_to == list(SILENT_SERVER.values()) == [5, 2, 3, 10_000]


def test_what_the_url_says_of_a_silent_server_counts_more() -> None:
    options = _database("postgresql://a@b/c?tcp_user_timeout=60000&keepalives_count=9", pool_size=0)[
        "OPTIONS"
    ]
    assert {name: int(options[name]) for name in SILENT_SERVER} == {
        **SILENT_SERVER,
        "tcp_user_timeout": 60_000,
        "keepalives_count": 9,
    }
