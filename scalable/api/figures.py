"""What every node tells Prometheus of the installation: the same everywhere, so that `max` goes over nodes.

Figures of single topics are those of the busiest ones; all are read at most every few seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from threading import Lock
from time import monotonic

from django.conf import settings
from django.db import Error as DatabaseError
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scalable.services.figures import Figures, SubscriptionFigures, TopicFigures, Totals, figures

logger = logging.getLogger(__name__)

COUNTED = {
    "auto_splits": ("pulsar_scalable_topic_auto_splits", "Splits that the autoscaler began."),
    "auto_merges": ("pulsar_scalable_topic_auto_merges", "Merges that the autoscaler began."),
    "splits_capped": (
        "pulsar_scalable_topic_split_suppressed_max_segments",
        "Evaluations in which maxSegments held a split back.",
    ),
    "merges_capped": (
        "pulsar_scalable_topic_merge_suppressed_max_depth",
        "Evaluations in which maxDagDepth held a merge back.",
    ),
    "auto_rebuckets": ("scalable_topic_auto_rebuckets", "Rebuckets that the autoscaler began."),
    "flaps": ("scalable_topic_flaps", "Splits undone by a merge within a while, and the reverse."),
}
RATES = {
    "msg_rate_in": "Messages in a second",
    "bytes_rate_in": "Bytes in a second",
    "msg_rate_out": "Messages out a second",
    "bytes_rate_out": "Bytes out a second",
}
GAUGES = {
    "topics": ("scalable_topics", "Topics."),
    "active_segments": ("scalable_segments_active", "Segments that take writes."),
    "sealed_segments": ("scalable_segments_sealed", "Segments that were sealed and are kept."),
    "consumers": ("scalable_consumers", "Registered consumers."),
    "assignments": ("scalable_assignments", "Segments and entry buckets that a consumer owns."),
    "oldest_operation_seconds": (
        "scalable_operation_oldest_unfinished_seconds",
        "For how long the oldest unfinished operation has been under way.",
    ),
    "watermark_age_seconds": (
        "scalable_load_watermark_age_seconds",
        "How far the load pipeline lags behind.",
    ),
    "overdue_seconds": ("scalable_autoscale_overdue_seconds", "For how long a topic has been due."),
    "load_unknown_topics": ("scalable_autoscale_topics_load_unknown", "Topics whose load is unknown."),
    "failing_topics": ("scalable_autoscale_topics_failing", "Topics whose last evaluation failed."),
}
COUNTERS = {
    "seals": ("scalable_segment_seals", "Segments that were sealed."),
    "assignment_changes": ("scalable_assignment_changes", "Changes of owners."),
    "failovers": ("scalable_leader_failovers", "Topics that another node took to lead."),
    "flaps": ("scalable_autoscale_flaps", "Flaps of all topics (docs/metrics.md)."),
}
CAPPED = {
    "is_split_capped": ("scalable_topic_split_capped", "1 while maxSegments holds a split back."),
    "is_merge_capped": ("scalable_topic_merge_capped", "1 while maxDagDepth holds a merge back."),
}


class FigureCollector(Collector):
    """Reads the installation's figures when it is asked for, and not again for a while."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._read_at = float("-inf")
        self._metrics: list[Metric] = []

    def collect(self) -> Iterator[Metric]:
        """Give the figures; without the database, the others of this node are still told."""
        with self._lock:
            if monotonic() - self._read_at >= settings.SCALABLE_METRICS_CACHE_SECONDS:
                self._read()
            yield from self._metrics

    def describe(self) -> Iterator[Metric]:
        """Name nothing beforehand: registering reads no table."""
        return iter(())

    def _read(self) -> None:
        try:
            self._metrics = [*_metrics(figures())]
        except DatabaseError:
            logger.warning("The installation's figures cannot be read", exc_info=True)
            self._metrics = []
        self._read_at = monotonic()


def _metrics(found: Figures) -> Iterator[Metric]:
    yield from _totals(found.totals)
    for attribute, (name, text) in COUNTERS.items():
        yield CounterMetricFamily(name, text, value=getattr(found.counted, attribute))
    yield from _of_operations(found)
    yield from _of_topics(found)
    yield from _of_segments(found)
    yield from _of_subscriptions(found)


def _totals(totals: Totals) -> Iterator[Metric]:
    if settings.SCALABLE_READ_ONLY:  # nobody evaluates then, and nobody should
        totals = replace(totals, overdue_seconds=None)
    for attribute, (name, text) in GAUGES.items():
        value = getattr(totals, attribute)
        yield GaugeMetricFamily(name, text, value=value or 0)
    known = totals.watermark_age_seconds is not None
    yield GaugeMetricFamily(
        "scalable_load_pipeline_seen", "1 once a load pipeline has reported.", value=known
    )


def _of_operations(found: Figures) -> Iterator[Metric]:
    ended = CounterMetricFamily(
        "scalable_operations", "Operations that ended, by outcome.", labels=["kind", "outcome"]
    )
    for labels, count in found.counted.operations.items():
        ended.add_metric(labels, count)
    running = GaugeMetricFamily("scalable_operations_running", "Unfinished operations.", labels=["kind"])
    for kind, count in found.running_operations.items():
        running.add_metric([kind], count)
    yield from (ended, running)


def _of_topics(found: Figures) -> Iterator[Metric]:
    active = GaugeMetricFamily(
        "pulsar_scalable_topic_active_segments", "Active segments of a topic.", labels=["topic"]
    )
    age = GaugeMetricFamily(
        "scalable_topic_evaluation_age_seconds", "Since a topic was last evaluated.", labels=["topic"]
    )
    counted = {key: CounterMetricFamily(*what, labels=["topic"]) for key, what in COUNTED.items()}
    capped = {key: GaugeMetricFamily(*what, labels=["topic"]) for key, what in CAPPED.items()}
    for topic in found.topics:
        active.add_metric([topic.name], topic.active_segments)
        if topic.evaluated_seconds_ago is not None:
            age.add_metric([topic.name], topic.evaluated_seconds_ago)
        for key, family in counted.items():
            family.add_metric([topic.name], topic.counted[key])
        for key, gauge in capped.items():
            gauge.add_metric([topic.name], getattr(topic, key))
    yield from (active, age, *counted.values(), *capped.values())


def _of_segments(found: Figures) -> Iterator[Metric]:
    families = [
        GaugeMetricFamily(
            f"scalable_segment_{name}", f"{text} of an active segment.", labels=["topic", "segment"]
        )
        for name, text in RATES.items()
    ]
    for topic in found.topics:
        for segment_id, rates in topic.rates.items():
            for family, rate in zip(families, rates, strict=True):
                family.add_metric([topic.name, str(segment_id)], rate)
    yield from families


def _of_subscriptions(found: Figures) -> Iterator[Metric]:
    labels = ["topic", "subscription", "type"]
    consumers = GaugeMetricFamily("scalable_subscription_consumers", "Registered consumers.", labels=labels)
    assignable = GaugeMetricFamily(
        "scalable_subscription_assignable_segments", "Segments that can be read now.", labels=labels
    )
    backlog = GaugeMetricFamily(
        "scalable_subscription_backlog_messages", "Messages that wait for a subscription.", labels=labels
    )
    for topic in found.topics:
        for values, each in _labelled(topic):
            consumers.add_metric(values, each.consumers)
            assignable.add_metric(values, each.assignable_segments)
            if each.backlog_messages is not None:
                backlog.add_metric(values, each.backlog_messages)
    yield from (consumers, assignable, backlog)


def _labelled(topic: TopicFigures) -> Iterator[tuple[list[str], SubscriptionFigures]]:
    return (([topic.name, each.name, each.type], each) for each in topic.subscriptions)
