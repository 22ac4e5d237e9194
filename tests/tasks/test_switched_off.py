"""Scalable topics switched off: no task of theirs does anything, and what they hold stays as it is.

In read-only mode nothing new is begun; what is under way is finished.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from pytest_django import DjangoAssertNumQueries
from pytest_django.fixtures import Settings

from scalable.domain.operations import OperationKind
from scalable.models import Segment
from scalable.store import operations
from tasks import jobs
from tasks.app import app
from tests.topology import make_topic, request

OF_OTHERS = {"forget_old_audit", "forget_old_keys", "run_spark_job", "sweep_spark_jobs", "daily_load_report"}
BEGINNERS = [
    "autoscale_tick",
    "daily_load_report",
    "evaluate",
    "finish_namespace_deletions",
    "sweep_retention",
]
FINISHERS = [
    *("drive", "forget_old_audit", "forget_old_keys", "run_spark_job"),
    *("sweep_operations", "sweep_spark_jobs", "sweep_stores", "trim_topic_changes"),
]
ARGUMENTS: dict[str, tuple[Any, ...]] = {"drive": (str(uuid.uuid4()),), "evaluate": (1,)}
PREFIX = f"{jobs.__name__}."
NAMES = sorted(task.removeprefix(PREFIX) for task in app.tasks if task.startswith(PREFIX))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_OTHERS])
def test_a_task_of_topics_does_not_even_look(
    name: str, db: None, settings: Settings, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    settings.SCALABLE_TOPICS_ENABLED = False
    with django_assert_num_queries(0):
        getattr(jobs, name)(*ARGUMENTS.get(name, ()))


def test_each_task_is_known_to_begin_or_to_finish_something() -> None:
    assert sorted([*BEGINNERS, *FINISHERS]) == NAMES


@pytest.mark.parametrize("name", BEGINNERS)
def test_read_only_mode_begins_nothing(
    name: str, db: None, settings: Settings, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    settings.SCALABLE_READ_ONLY = True
    with django_assert_num_queries(0):
        getattr(jobs, name)(*ARGUMENTS.get(name, ()))


@pytest.mark.django_db(transaction=True)
def test_read_only_mode_finishes_what_was_begun(settings: Settings) -> None:
    split = request(OperationKind.SPLIT, make_topic("finishing"))
    settings.SCALABLE_READ_ONLY = True
    jobs.drive(split.operation_id)
    assert Segment.objects.filter(topic__name="finishing").count() == 4


@pytest.mark.django_db(transaction=True)
def test_an_operation_waits_until_topics_are_switched_on_again(settings: Settings) -> None:
    split = request(OperationKind.SPLIT, make_topic("resting"))
    settings.SCALABLE_TOPICS_ENABLED = False
    jobs.drive(split.operation_id)
    assert operations.read(split.operation_id).outcome is None
    assert Segment.objects.filter(topic__name="resting").count() == 2
    settings.SCALABLE_TOPICS_ENABLED = True
    jobs.drive(split.operation_id)
    assert Segment.objects.filter(topic__name="resting").count() == 4
