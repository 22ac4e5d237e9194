"""The settings that the caller's environment gives, read and tried before anything starts."""

import os
import runpy
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import psycopg
import redis
from django.core.exceptions import ImproperlyConfigured

from launch.process import ROOT, LaunchError
from scalable.domain.errors import ScalableError

HINT = "docs/settings.md has all settings"
REDIS_TIMEOUT_SECONDS = 5
NAMED_DATABASES = {"default": "DATABASE_URL", "segments": "SCALABLE_SEGMENTS_DATABASE_URL"}
NOT_OF_THE_DRIVER = {"pool", "isolation_level", "assume_role", "server_side_binding"}
"""Options of a database that Django keeps to itself."""
PARTS_OF_ADDRESS = {"host": "HOST", "port": "PORT", "dbname": "NAME", "user": "USER", "password": "PASSWORD"}
"""As Django has them; what is left out may stand among the options, as in `?host=/run/postgresql`."""
OF_OPTIONS = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)
"""What libraries raise for names and options of an address that make no sense to them."""


def given_settings() -> Mapping[str, Any]:
    """Read all settings as the processes will do. Raises LaunchError that names the first unreadable one."""
    try:
        return runpy.run_path(str(ROOT / "scalable" / "settings.py"))
    except (ImproperlyConfigured, ScalableError) as error:
        raise LaunchError(str(error), HINT) from None


def reach_databases(databases: Mapping[str, Mapping[str, Any]]) -> None:
    """Connect once to each database that the caller names. Raises LaunchError with setting and address."""
    for alias, setting in NAMED_DATABASES.items():
        if os.environ.get(setting):
            _reach(setting, databases[alias])


def reach_redis(url: str) -> None:
    """Ask the Redis that the caller names for a sign of life, once. Raises LaunchError with its address."""
    if not os.environ.get("REDIS_URL"):
        return
    timeouts = {"socket_connect_timeout": REDIS_TIMEOUT_SECONDS, "socket_timeout": REDIS_TIMEOUT_SECONDS}
    try:
        with redis.Redis.from_url(url, **timeouts) as client:
            client.ping()
    except (redis.RedisError, OSError, *OF_OPTIONS) as error:
        given = urlsplit(url)
        where = f"{given.hostname or 'this machine'}:{given.port or 6379}"
        raise _unreachable("Redis", where, "REDIS_URL", error) from None


def _reach(setting: str, database: Mapping[str, Any]) -> None:
    options = {name: value for name, value in database["OPTIONS"].items() if name not in NOT_OF_THE_DRIVER}
    parts = {name: database[part] for name, part in PARTS_OF_ADDRESS.items() if database[part]}
    address = {**options, **parts}
    try:
        psycopg.connect(**address).close()
    except (psycopg.Error, OSError, *OF_OPTIONS) as error:
        where = f"{address.get('host', 'this machine')}:{address.get('port', 5432)}"
        raise _unreachable("database", where, setting, error) from None


def _unreachable(kind: str, where: str, setting: str, error: Exception) -> LaunchError:
    reason = " ".join(str(error).split())
    return LaunchError(f"no {kind} can be reached at {where}, which {setting} names", reason)
