"""What makes no sense for a type of consumer is not there: neither at run time nor for the type checker.

An ignored complaint that is not made is itself an error of the type checker (`warn_unused_ignores`).
"""

from __future__ import annotations

import pytest

from scalable.client import QueueConsumer, QueueMessage


def test_a_queue_consumer_has_no_order_to_acknowledge_by() -> None:
    consumer = QueueConsumer("http://localhost", "topic://public/default/t", "s", "token")
    with pytest.raises(AttributeError):
        consumer.acknowledge_all()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        consumer.acknowledge_positions({0: 1})  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        consumer.positions()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        consumer.checkpoint()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = consumer.standby  # type: ignore[attr-defined]
    assert not hasattr(QueueMessage, "generation")
