"""Notices that leave after commit: hints with ids only, for listeners that joined; rows are the truth."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from django.db import transaction

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something was committed; whoever hears of it reads the rows again."""


@dataclass(frozen=True, slots=True)
class TopicChanged(Notice):
    """A topic shows something new to its watchers; `revision` is the lowest at which it can be seen."""

    incarnation: int
    name: str
    revision: int


@dataclass(frozen=True, slots=True)
class TopicDeleted(Notice):
    """A topic is gone."""

    incarnation: int
    name: str


@dataclass(frozen=True, slots=True)
class NamespaceChanged(Notice):
    """A namespace gained or lost a topic, or a topic's properties changed."""

    tenant: str
    namespace: str


@dataclass(frozen=True, slots=True)
class NamespacePolicyChanged(Notice):
    """A namespace's auto-scale policy was set or removed, by which its topics are sampled."""

    tenant: str
    namespace: str


@dataclass(frozen=True, slots=True)
class OperationRequested(Notice):
    """An operation waits for a runner."""

    operation_id: str


@dataclass(frozen=True, slots=True)
class OperationChanged(Notice):
    """An operation entered another phase or ended."""

    operation_id: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class SegmentAppended(Notice):
    """A segment has more messages."""

    incarnation: int
    segment_id: int


@dataclass(frozen=True, slots=True)
class SegmentTerminated(Notice):
    """A segment takes no more messages."""

    incarnation: int
    segment_id: int


@dataclass(frozen=True, slots=True)
class AssignmentChanged(Notice):
    """A subscription's segments changed owners."""

    subscription_id: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class QueueChanged(Notice):
    """A segment has messages again for the consumers of a QUEUE subscription, or is drained there."""

    subscription_id: int
    segment_id: int


@dataclass(frozen=True, slots=True)
class ConsumersChanged(Notice):
    """A consumer of a STREAM subscription was registered or removed: the consumer rule may fire."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class AccessChanged(Notice):
    """Grants, admin roles of tenants, or the validity of tokens changed."""


@dataclass(frozen=True, slots=True)
class JobRequested(Notice):
    """A batch job waits for a runner."""

    job_id: str


Listener = Callable[[Notice], None]
_listeners: list[Listener] = []


def listen(listener: Listener) -> None:
    """Join a listener for the life of the process; it must be quick: the committing thread calls it."""
    if listener not in _listeners:
        _listeners.append(listener)


def silence(listener: Listener) -> None:
    """Remove a listener."""
    if listener in _listeners:
        _listeners.remove(listener)


def publish(notice: Notice) -> None:
    """Hand the notice to every listener once the current transaction has committed, if it does."""
    transaction.on_commit(partial(_deliver, notice), robust=True)


def _deliver(notice: Notice) -> None:
    for listener in tuple(_listeners):
        try:
            listener(notice)
        except Exception:
            # The commit stands whatever a listener does, and the others must still hear of it.
            logger.exception("A listener failed on %s", notice)
