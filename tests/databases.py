"""A second database beside the migrated test database, for data planes outside the metadata.

`tests/conftest.py` alone imports these fixtures: imported by two conftest files they would be two fixtures,
the second would take the database from the first, and at the end one of them would find none to drop.
"""

from collections.abc import Iterator
from copy import deepcopy

import pytest
from django.db import connections
from django.db.backends.postgresql.base import DatabaseWrapper
from pytest_django import DjangoDbBlocker

from scalable.segments.embedded import EmbeddedSegments
from scalable.segments.registry import EXTERNAL_ALIAS
from scalable.segments.schema import install_schema
from tests.segments.samples import remove_samples


@pytest.fixture(scope="session")
def external_database(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[str]:
    """Make a second database on the same server and return its name."""
    with django_db_blocker.unblock():
        name = f"{connections['default'].settings_dict['NAME']}_segments"
        with connections["default"].cursor() as cursor:
            cursor.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
            cursor.execute(f'CREATE DATABASE "{name}"')
    yield name
    with django_db_blocker.unblock(), connections["default"].cursor() as cursor:
        cursor.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def external_port(external_database: str, django_db_blocker: DjangoDbBlocker) -> Iterator[EmbeddedSegments]:
    """Return the port on the second database; Django knows its alias only while the test runs."""
    with django_db_blocker.unblock():
        yield from _external_port(external_database)


def _external_port(external_database: str) -> Iterator[EmbeddedSegments]:
    connections.settings[EXTERNAL_ALIAS] = {
        **deepcopy(connections.settings["default"]),
        "NAME": external_database,
    }
    connection = connections[EXTERNAL_ALIAS]
    assert isinstance(connection, DatabaseWrapper)
    install_schema(connection)
    port = EmbeddedSegments(using=EXTERNAL_ALIAS)
    yield port
    remove_samples(port)
    connection.close()
    connection.close_pool()
    del connections[EXTERNAL_ALIAS]
    del connections.settings[EXTERNAL_ALIAS]
