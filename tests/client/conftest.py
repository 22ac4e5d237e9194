"""A live node, a worker for splits and merges, and a topic of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from launch.process import ManagedProcess
from scalable.client import Admin
from tests.processes import LiveNode

_numbers = count(1)


@pytest.fixture
def admin(live_node: LiveNode) -> Iterator[Admin]:
    with Admin(live_node.url, live_node.admin_token) as client:
        yield client


@pytest.fixture
def reshaping(celery_worker_process: ManagedProcess) -> ManagedProcess:
    """The worker that runs splits and merges."""
    return celery_worker_process


@pytest.fixture
def topic(admin: Admin) -> str:
    """A new topic of one segment, which the autoscaler leaves alone."""
    name = f"topic://public/default/client-{next(_numbers)}"
    admin.create_topic(name)
    admin.set_policy(name, {"enabled": False})
    return name
