"""What a soak consists of: who takes part, how fast, and how long each phase may take."""

from dataclasses import dataclass
from enum import StrEnum

from scalable.domain.names import TopicName

TOPIC = TopicName("public", "default", "soak")
NODES, WORKERS = 2, 2
MIN_ACTIVE_SEGMENTS, MAX_ACTIVE_SEGMENTS = 1, 6
KEYS_PER_PRODUCER = 16
STALL_SECONDS = 60.0
"""How long, once nothing dies any more, nobody may receive anything new while something is left."""
DRAIN_SECONDS = 600.0
"""How long the consumers may take then to receive what is left, however steadily it comes."""
NODE_TIMEOUT_SECONDS = 5
QUEUE_ACK_TIMEOUT_SECONDS = 5
SETTINGS = {
    "SCALABLE_SESSION_GRACE_SECONDS": "6",
    "SCALABLE_OPERATION_LEASE_SECONDS": "6",
    "SCALABLE_OPERATION_SWEEP_SECONDS": "2",
    "SCALABLE_HANDOVER_SECONDS": "5",
    "SCALABLE_NODE_HEARTBEAT_SECONDS": "1",
    "SCALABLE_NODE_TIMEOUT_SECONDS": str(NODE_TIMEOUT_SECONDS),
    "SCALABLE_QUEUE_ACK_TIMEOUT_SECONDS": str(QUEUE_ACK_TIMEOUT_SECONDS),
}
"""Shorter than by default, so that a short soak sees sessions and leases run out, too."""


class Role(StrEnum):
    """What a client process does."""

    PRODUCER = "producer"
    STREAM = "stream"
    QUEUE = "queue"
    CHECKPOINT = "checkpoint"


CONSUMERS = {Role.STREAM: 3, Role.QUEUE: 3, Role.CHECKPOINT: 1}
"""How many consumers of each kind; the subscription or group has the name of the role."""
PRODUCERS = 4


@dataclass(frozen=True)
class SoakPlan:
    """The choices of one run."""

    seconds: float
    seed: int
    messages_per_second: float = 100.0
    """Of all producers."""
    mean_kill_pause_seconds: float = 3.0
    mean_reshape_pause_seconds: float = 2.0
    mean_interruption_pause_seconds: float = 4.0
