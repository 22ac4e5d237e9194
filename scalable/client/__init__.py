"""The Python client: `Admin`, `Producer`, `StreamConsumer`, and their synchronous faces."""

from scalable.client.admin import Admin, BatchPage
from scalable.client.batches import BatchLimits, MessageId
from scalable.client.connection import ConnectionLost, Endpoint
from scalable.client.consumer import StreamConsumer
from scalable.client.inbox import Message
from scalable.client.producer import Producer
from scalable.client.sync import SyncProducer, SyncStreamConsumer
from scalable.client.topology import Topology, TopologyWatch

__all__ = [
    "Admin",
    "BatchLimits",
    "BatchPage",
    "ConnectionLost",
    "Endpoint",
    "Message",
    "MessageId",
    "Producer",
    "StreamConsumer",
    "SyncProducer",
    "SyncStreamConsumer",
    "Topology",
    "TopologyWatch",
]
