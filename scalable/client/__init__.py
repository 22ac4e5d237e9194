"""The Python client: `Admin`, `Producer`, the consumers, and their synchronous faces."""

from scalable.client.admin import Admin, BatchPage
from scalable.client.async_admin import AsyncAdmin
from scalable.client.batches import BatchLimits, MessageId
from scalable.client.checkpoint_consumer import CheckpointConsumer
from scalable.client.connection import ConnectionLost, Endpoint, FrameOverLimit
from scalable.client.consumer import Positions, StreamConsumer
from scalable.client.inbox import Message
from scalable.client.key_shared_consumer import KeySharedConsumer
from scalable.client.multi_queue_consumer import MultiTopicQueueConsumer, MultiTopicQueueMessage
from scalable.client.multi_stream_consumer import (
    MultiTopicMessage,
    MultiTopicStreamConsumer,
    PositionVector,
)
from scalable.client.multi_sync import SyncMultiTopicQueueConsumer, SyncMultiTopicStreamConsumer
from scalable.client.namespace_watch import NamespaceWatch, TopicsChange
from scalable.client.producer import Producer
from scalable.client.queue_consumer import NegativeAckBackoff, QueueConsumer
from scalable.client.queue_inbox import QueueMessage
from scalable.client.sync import (
    SyncCheckpointConsumer,
    SyncKeySharedConsumer,
    SyncProducer,
    SyncQueueConsumer,
    SyncStreamConsumer,
)
from scalable.client.topology import Topology, TopologyWatch
from scalable.domain.checkpoint import Checkpoint, checkpoint_from_text
from scalable.domain.checkpoint import merge as merge_checkpoints

__all__ = [
    "Admin",
    "AsyncAdmin",
    "BatchLimits",
    "BatchPage",
    "Checkpoint",
    "CheckpointConsumer",
    "ConnectionLost",
    "Endpoint",
    "FrameOverLimit",
    "KeySharedConsumer",
    "Message",
    "MessageId",
    "MultiTopicMessage",
    "MultiTopicQueueConsumer",
    "MultiTopicQueueMessage",
    "MultiTopicStreamConsumer",
    "NamespaceWatch",
    "NegativeAckBackoff",
    "PositionVector",
    "Positions",
    "Producer",
    "QueueConsumer",
    "QueueMessage",
    "StreamConsumer",
    "SyncCheckpointConsumer",
    "SyncKeySharedConsumer",
    "SyncMultiTopicQueueConsumer",
    "SyncMultiTopicStreamConsumer",
    "SyncProducer",
    "SyncQueueConsumer",
    "SyncStreamConsumer",
    "TopicsChange",
    "Topology",
    "TopologyWatch",
    "checkpoint_from_text",
    "merge_checkpoints",
]
