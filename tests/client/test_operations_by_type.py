"""What makes no sense for a type of consumer is not there: neither at run time nor for the type checker.

An ignored complaint that is not made is itself an error of the type checker (`warn_unused_ignores`).
"""

from __future__ import annotations

import pytest

from scalable.client import (
    CheckpointConsumer,
    KeySharedConsumer,
    MultiTopicQueueConsumer,
    MultiTopicQueueMessage,
    MultiTopicStreamConsumer,
    QueueConsumer,
    QueueMessage,
    StreamConsumer,
    SyncCheckpointConsumer,
    SyncKeySharedConsumer,
    SyncMultiTopicQueueConsumer,
    SyncMultiTopicStreamConsumer,
    SyncQueueConsumer,
    SyncStreamConsumer,
)

NAMESPACE = "public/default"
URL, TOPIC = "http://localhost", "topic://public/default/t"


def test_a_queue_consumer_has_no_order_to_acknowledge_by() -> None:
    consumer = QueueConsumer(URL, TOPIC, "s", "token")
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


def test_a_stream_consumer_gives_nothing_back_and_keeps_no_checkpoint() -> None:
    consumer = StreamConsumer(URL, TOPIC, "s", "token")
    with pytest.raises(AttributeError):
        consumer.negative_acknowledge(None)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        consumer.acknowledge_individually(None)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        consumer.checkpoint()  # type: ignore[attr-defined]


def test_a_key_shared_consumer_has_no_position_in_a_segment() -> None:
    consumer = KeySharedConsumer(URL, TOPIC, "s", "token")
    with pytest.raises(AttributeError):
        consumer.positions()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        consumer.acknowledge_all()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        consumer.negative_acknowledge(None)  # type: ignore[attr-defined]


def test_a_checkpoint_consumer_acknowledges_nothing() -> None:
    consumer = CheckpointConsumer(URL, TOPIC, "token", group="g")
    with pytest.raises(AttributeError):
        consumer.acknowledge(None)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        consumer.acknowledge_all()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        consumer.flush()  # type: ignore[attr-defined]


def test_a_consumer_has_a_topic_or_a_namespace() -> None:
    with pytest.raises(TypeError):
        StreamConsumer(URL, TOPIC, "s", "token", namespace=NAMESPACE)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        StreamConsumer(URL, TOPIC, "s", "token", properties={})  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        MultiTopicStreamConsumer(URL, NAMESPACE, "s", "token", topic=TOPIC)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        MultiTopicQueueConsumer(URL, NAMESPACE, "s", "token", topic=TOPIC)  # type: ignore[call-arg]


def test_a_multi_topic_stream_consumer_gives_nothing_back_and_keeps_no_checkpoint() -> None:
    consumer = MultiTopicStreamConsumer(URL, NAMESPACE, "s", "token")
    with pytest.raises(AttributeError):
        consumer.negative_acknowledge(None)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        consumer.checkpoint()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = consumer.topic  # type: ignore[attr-defined]


def test_a_multi_topic_queue_consumer_has_no_order_to_acknowledge_by() -> None:
    consumer = MultiTopicQueueConsumer(URL, NAMESPACE, "s", "token")
    with pytest.raises(AttributeError):
        consumer.acknowledge_cumulative(None)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        consumer.acknowledge_all()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        consumer.positions()  # type: ignore[attr-defined]
    assert not hasattr(MultiTopicQueueMessage, "generation")


def test_synchronous_faces_have_no_more_than_what_they_stand_before() -> None:
    with pytest.raises(AttributeError):
        _ = SyncStreamConsumer.negative_acknowledge  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = SyncKeySharedConsumer.positions  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = SyncCheckpointConsumer.acknowledge  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = SyncQueueConsumer.checkpoint  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = SyncMultiTopicQueueConsumer.positions  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        _ = SyncMultiTopicStreamConsumer.negative_acknowledge  # type: ignore[attr-defined]
