"""The queue: what is committed reaches a worker by itself, and a broker that is down loses nothing."""

import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import httpx
import pytest
from django.db import transaction

from launch.embedded import embedded_valkey
from launch.process import ManagedProcess
from launch.services import beat_spec
from scalable import announce
from scalable.announce import ConsumersChanged
from scalable.domain.operations import OperationKind, Outcome
from scalable.models import Namespace
from scalable.services import autoscaling, namespaces, scaling, topics
from scalable.services.topics import TopicView
from scalable.store import evaluations
from scalable.store import topics as store
from scalable.store.operations import read
from tasks import jobs
from tasks.app import app
from tests.faults.waiting import until
from tests.processes import ProcessFactory
from tests.services.ageing import split_topic
from tests.topology import ACTOR, append_everywhere, layout_of, make_topic, read_all, request

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

ANSWER_SECONDS = 60.0
"""A slow machine may take so long for one answer; who waits for the broker waits for ever."""
REQUEST_A_SPLIT = """
import django
django.setup()
from scalable.domain.names import TopicName
from scalable.services import scaling
name = TopicName("public", "default", "unheard")
print(scaling.request_split(name=name, segment_id=0, actor="test").operation_id)
"""


def succeeded(operation_id: str) -> bool:
    """Tell whether an operation came to its good end."""
    return read(operation_id).outcome is Outcome.SUCCEEDED


def test_beat_asks_for_tasks_that_exist() -> None:
    app.loader.import_module(jobs.__name__)
    asked = {entry["task"] for entry in app.conf.beat_schedule.values()}
    assert asked < set(app.tasks)
    assert asked == {
        f"tasks.jobs.{name}"
        for name in (
            *("sweep_operations", "sweep_stores", "sweep_retention"),
            *(
                "finish_namespace_deletions",
                "trim_topic_changes",
                "forget_old_audit",
                "forget_old_keys",
                "autoscale_tick",
                "daily_load_report",
                "sweep_spark_jobs",
            ),
        )
    }


def test_requests_are_driven_to_their_end_by_a_worker(celery_worker_process: ManagedProcess) -> None:
    topic = make_topic("driven")
    messages = append_everywhere(topic, "before")
    split = request(OperationKind.SPLIT, topic)
    until(partial(succeeded, split.operation_id), what="the split")
    everything = [segment.segment_id for segment in layout_of(topic).active]
    merge = scaling.request_merge(name=topic.name, segment_ids=everything, actor=ACTOR)
    until(partial(succeeded, merge.operation_id), what="the merge")
    assert [segment.segment_id for segment in layout_of(topic).active] == list(merge.plan.child_ids)
    assert sorted(read_all(topic)) == sorted(messages)


def test_a_changed_group_of_consumers_is_evaluated_by_a_worker(
    celery_worker_process: ManagedProcess,
) -> None:
    topic = make_topic("joined")
    evaluations.mark(topic.incarnation)
    announce.publish(ConsumersChanged(topic.incarnation))
    until(partial(_decided, topic), what="a decision")


def _decided(topic: TopicView) -> bool:
    return bool(autoscaling.list_decisions(name=topic.name, limit=1))


def test_a_broker_that_is_down_fails_no_request_and_the_sweep_heals_it(
    processes: ProcessFactory, service_environment: dict[str, str], tmp_path: Path
) -> None:
    make_topic("unheard")
    outcome = subprocess.run(
        [sys.executable, "-c", REQUEST_A_SPLIT],
        env={**service_environment, "REDIS_URL": "redis://127.0.0.1:1/0", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    operation_id = outcome.stdout.strip()
    assert "was not queued" in outcome.stderr
    quick = {**service_environment, "SCALABLE_OPERATION_SWEEP_SECONDS": "0.5"}
    processes.worker(SCALABLE_OPERATION_SWEEP_SECONDS="0.5")
    processes.run(beat_spec(environment=quick, schedule=tmp_path / "beat"))
    until(partial(succeeded, operation_id), what="the sweep and the split")


def test_a_worker_outlasts_a_broker_that_dies_while_it_works(
    processes: ProcessFactory, service_environment: dict[str, str], tmp_path: Path
) -> None:
    """Its task waits for a lock as the broker dies: the worker holds what it cannot give back."""
    topic = make_topic("outlasting")
    broker = embedded_valkey(directory=tmp_path / "broker", durable=False)
    first = processes.run(broker.spec)
    worker = processes.worker(REDIS_URL=broker.url)
    operation_id = request(OperationKind.SPLIT, topic).operation_id
    with transaction.atomic():
        store.lock_incarnation(topic.incarnation)
        _queue(broker.url, operation_id)
        until(lambda: read(operation_id).attempts > 0, what="a worker that has begun")
        first.kill_group()
        until(lambda: "Connection to broker lost" in worker.log.tail(200), what="a worker that noticed")
    until(partial(succeeded, operation_id), what="the split, by who had begun it")
    processes.run(broker.spec)
    everything = [segment.segment_id for segment in layout_of(topic).active]
    merge = scaling.request_merge(name=topic.name, segment_ids=everything, actor=ACTOR).operation_id
    _queue(broker.url, merge)
    until(partial(succeeded, merge), what="the merge, by the same worker")
    assert worker.returncode is None


def test_a_broker_that_hangs_holds_up_no_request(processes: ProcessFactory, tmp_path: Path) -> None:
    topic = make_topic("hung", segments=16)
    broker = embedded_valkey(directory=tmp_path / "broker", durable=False)
    hung = processes.run(broker.spec)
    node = processes.node(REDIS_URL=broker.url)
    path = f"/admin/v2/scalable/public/default/{topic.name.name}"
    hung.send_signal(signal.SIGSTOP)
    with httpx.Client(
        base_url=node.url, headers=node.headers, timeout=ANSWER_SECONDS, trust_env=False
    ) as client:
        for segment_id in range(16):
            answer = client.post(f"{path}/split/{segment_id}", headers={"Prefer": "respond-async"})
            assert answer.status_code == 202
    hung.send_signal(signal.SIGCONT)
    processes.worker(REDIS_URL=broker.url)
    until(lambda: len(layout_of(topic).active) > 16, what="a split, by what was queued meanwhile")


def _queue(broker_url: str, operation_id: str) -> None:
    with app.connection_for_write(broker_url) as connection:
        app.send_task("tasks.jobs.drive", args=[operation_id], connection=connection, ignore_result=True)


def test_beat_lets_a_worker_evaluate_topics_in_their_own_rhythm(
    processes: ProcessFactory, service_environment: dict[str, str], tmp_path: Path
) -> None:
    topic = make_topic("ticking")
    topics.set_auto_scale_policy(name=topic.name, override={"autoScaleIntervalSeconds": 0.5}, actor=ACTOR)
    quick = {**service_environment, "SCALABLE_AUTOSCALE_TICK_SECONDS": "0.5"}
    processes.worker()
    processes.run(beat_spec(environment=quick, schedule=tmp_path / "beat"))
    until(partial(_decided, topic), what="a decision")


def test_beat_lets_a_worker_prune_and_finish_what_a_process_began(
    processes: ProcessFactory, service_environment: dict[str, str], tmp_path: Path
) -> None:
    topic = split_topic()
    namespaces.create_namespace(tenant="public", namespace="doomed", actor=ACTOR)
    Namespace.objects.filter(name="doomed").update(deleting=True)
    quick = {**service_environment, "SCALABLE_RETENTION_SWEEP_SECONDS": "0.5"}
    processes.worker(SCALABLE_RETENTION_SWEEP_SECONDS="0.5")
    processes.run(beat_spec(environment=quick, schedule=tmp_path / "beat"))
    until(lambda: set(layout_of(topic).segments) == {1, 2}, what="the sweep")
    until(lambda: not Namespace.objects.filter(name="doomed").exists(), what="the end of the namespace")
