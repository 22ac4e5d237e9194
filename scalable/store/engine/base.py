"""PostgreSQL as Django knows it (the settings name this engine), less a vain wait for a server that is away.

A pool lets callers wait, because a connection may become free. None will while the server is away, so
whoever waits then is told soon: when it refuses connections, and none that is there already becomes free.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from time import monotonic
from typing import Any, Self

import psycopg
from django.db import DEFAULT_DB_ALIAS
from django.db.backends.postgresql import base
from psycopg_pool import PoolTimeout

LOOK_SECONDS = 0.5
"""The time-out of the pool: for so long a caller waits before it looks whether that is in vain."""
PATIENCE_SECONDS = 10.0
"""For so long it waits for a connection that others use."""
RECONNECT_SECONDS = 5.0
"""For so long the pool tries again by itself, at growing intervals; then the next caller makes it try."""

Place = tuple[str, str]
_refusing: set[Place] = set()
_given_at: dict[Place, float] = {}


class PoolConnection(psycopg.Connection[Any]):
    """A connection of the pool, which opens them beside its callers: what comes of that is noted here."""

    @classmethod
    def connect(cls, conninfo: str = "", **parameters: Any) -> Self:
        """Open a connection; raises OperationalError."""
        place = _place_of(parameters)
        try:
            connection = super().connect(conninfo, **parameters)
        except psycopg.Error:
            _refusing.add(place)
            raise
        _refusing.discard(place)
        return connection


POOL_OPTIONS: dict[str, Any] = {
    "connection_class": PoolConnection,
    "timeout": LOOK_SECONDS,
    "reconnect_timeout": RECONNECT_SECONDS,
}
"""What a pool is given for that."""


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's, whose callers wait as the module says."""

    def __init__(self, settings_dict: dict[str, Any], alias: str = DEFAULT_DB_ALIAS) -> None:
        super().__init__(settings_dict, alias)
        if pool := settings_dict["OPTIONS"].get("pool"):
            settings_dict["OPTIONS"]["pool"] = {**POOL_OPTIONS, **pool}

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Give a connection; raises PoolTimeout when the server refuses them, or all are in use for long."""
        place, gives_up_at = _place_of(conn_params), monotonic() + PATIENCE_SECONDS
        while True:
            try:
                connection = super().get_new_connection(conn_params)
            except PoolTimeout:
                if _is_away(place) or monotonic() >= gives_up_at:
                    raise
            else:
                _given_at[place] = monotonic()
                return connection


def _is_away(place: Place) -> bool:
    """Tell a server that is away from a full one, which refuses more connections and serves those it has."""
    return place in _refusing and monotonic() - _given_at.get(place, -inf) >= LOOK_SECONDS


def _place_of(parameters: Mapping[str, Any]) -> Place:
    return str(parameters.get("host", "")), str(parameters.get("port", ""))
