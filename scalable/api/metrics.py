"""What a node tells Prometheus: of itself, and of the installation what every node tells alike."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scalable.api import bus
from scalable.api.figures import FigureCollector
from scalable.api.node import node
from scalable.api.sampler import sampler

REGISTRY = CollectorRegistry()
BUCKETS_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

REQUESTS = Counter(
    "scalable_http_requests", "HTTP requests answered.", ["method", "door", "status"], registry=REGISTRY
)
REQUEST_SECONDS = Histogram(
    "scalable_http_request_seconds",
    "Time to answer an HTTP request.",
    ["method", "door"],
    buckets=BUCKETS_SECONDS,
    registry=REGISTRY,
)
SOCKETS = Gauge("scalable_sockets", "WebSockets that are open.", ["socket"], registry=REGISTRY)
SOCKET_CLOSES = Counter(
    "scalable_socket_closes", "WebSockets that ended, by close code.", ["socket", "code"], registry=REGISTRY
)


class NodeCollector(Collector):
    """Reads the node's own state when it is asked for."""

    def collect(self) -> Iterator[Metric]:
        yield from _gauges()
        totals = sampler.totals
        for name, text, value in (
            ("scalable_messages_in", "Messages stored by this node.", totals.messages_in),
            ("scalable_bytes_in", "Bytes of batches stored by this node.", totals.bytes_in),
            ("scalable_messages_out", "Messages delivered by this node.", totals.messages_out),
            ("scalable_bytes_out", "Bytes of batches delivered by this node.", totals.bytes_out),
        ):
            yield CounterMetricFamily(name, text, value=value)


def _gauges() -> Iterator[Metric]:
    yield GaugeMetricFamily("scalable_node_ready", "1 when the node can work.", value=node.trouble is None)
    heard = bus.hearing.trouble is None
    yield GaugeMetricFamily("scalable_notices_connected", "1 while notices of others arrive.", value=heard)
    yield GaugeMetricFamily(
        "scalable_node_heartbeat_age_seconds", "Since the last heartbeat.", value=node.heartbeat_age_seconds
    )
    yield GaugeMetricFamily("scalable_node_led_topics", "Topics led by this node.", value=node.leader.led)
    yield GaugeMetricFamily(
        "scalable_services_unfinished", "Calls of services that run or wait.", value=node.unfinished_calls
    )


REGISTRY.register(NodeCollector())
REGISTRY.register(FigureCollector())
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)


def exposition() -> bytes:
    """Give all metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
