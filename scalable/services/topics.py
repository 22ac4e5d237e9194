"""Topics: create, read, list, delete, and their auto-scale policies."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db import transaction

from scalable import announce
from scalable.domain.access import Scope
from scalable.domain.errors import SegmentClaimed, SegmentsFixed, TopicDeleted, TopicExists
from scalable.domain.layout import Layout
from scalable.domain.names import SAMPLES_TOPIC, TopicName
from scalable.domain.policy import EffectivePolicy, parse_override, validate
from scalable.segments.port import SegmentKey
from scalable.segments.registry import segment_port
from scalable.services import auditing, grants
from scalable.services.policies import resolve
from scalable.services.stores import create_stores, delete_stores
from scalable.store import operations, overview, subscriptions
from scalable.store import topics as store
from scalable.store.clock import database_now, milliseconds
from scalable.store.overview import Page, TopicFigures, Wanted
from scalable.store.topics import TopicView

__all__ = [
    "Page",
    "TopicFigures",
    "TopicView",
    "Wanted",
    "create_topic",
    "delete_topic",
    "effective_policy",
    "ensure_topic",
    "get_auto_scale_policy",
    "get_topic",
    "heal_topic",
    "list_figures",
    "list_topics",
    "remove_auto_scale_policy",
    "set_auto_scale_policy",
    "set_properties",
]


def create_topic(
    *,
    name: TopicName,
    initial_segments: int = 1,
    properties: Mapping[str, str] | None = None,
    actor: str,
) -> TopicView:
    """Create a topic whose first segments divide the hash space evenly.

    Raises NamespaceNotFound, NamespaceDeleting, TopicExists, InvalidInitialSegments. With a port outside
    the metadata database the topic exists from the moment its row does: if making its stores fails,
    `heal_topic` makes the rest.
    """
    port = segment_port()
    with transaction.atomic():
        now = database_now()
        layout = Layout.initial(
            initial_segments, milliseconds(now), bucket_budget=settings.SCALABLE_ENTRY_BUCKET_BUDGET
        )
        topic = store.insert(name=name, layout=layout, properties=properties or {}, created_at=now)
        if port.transactional:
            create_stores(topic, layout.active)
        auditing.record(
            "topic.create",
            name,
            actor=actor,
            after={"segments": initial_segments, "properties": dict(properties or {})},
        )
        announce.publish(announce.NamespaceChanged(name.tenant, name.namespace))
    if not port.transactional:
        create_stores(topic, layout.active)
    return topic


def ensure_topic(*, name: TopicName, actor: str) -> int:
    """Make a topic with one segment unless it exists, and give its incarnation.

    Raises TopicNotFound when it is gone again; NamespaceNotFound, NamespaceDeleting.
    """
    try:
        return create_topic(name=name, actor=actor).incarnation
    except TopicExists:
        return store.read(name).incarnation


def heal_topic(*, incarnation: int) -> tuple[int, ...]:
    """Make the missing stores of a topic's active segments and give their ids; raises TopicNotFound.

    A sealed segment's store is never made again: its messages are gone.
    """
    with transaction.atomic():
        topic = store.lock_incarnation(incarnation)
        present = set(segment_port().keys(incarnation=incarnation))
        missing = [
            segment
            for segment in topic.layout.active
            if SegmentKey(incarnation, segment.segment_id) not in present
        ]
        create_stores(topic, missing)
    return tuple(segment.segment_id for segment in missing)


def get_topic(*, name: TopicName) -> TopicView:
    """Read a topic with its layout; raises TopicNotFound."""
    return store.read(name)


def list_topics(
    *,
    tenant: str,
    namespace: str,
    filters: Mapping[str, str] | None = None,
    limit: int,
    offset: int = 0,
) -> tuple[list[TopicName], int]:
    """Give a page of a namespace's topics by name, and how many there are with exactly these properties.

    Raises NamespaceNotFound.
    """
    return store.page(tenant=tenant, namespace=namespace, filters=filters or {}, limit=limit, offset=offset)


def list_figures(*, tenant: str, namespace: str, wanted: Wanted, limit: int, offset: int = 0) -> Page:
    """Give a page of a namespace's topics with their figures, and how many match.

    Raises NamespaceNotFound.
    """
    return overview.page(tenant=tenant, namespace=namespace, wanted=wanted, limit=limit, offset=offset)


def incarnation_of(*, name: TopicName) -> int:
    """Give the present life of a topic's name; raises TopicNotFound."""
    return subscriptions.incarnation_of(name)


def delete_topic(
    *,
    name: TopicName,
    force: bool = False,
    expected_epoch: int | None = None,
    incarnation: int | None = None,
    actor: str,
) -> None:
    """Delete a topic with its messages; raises TopicNotFound, SegmentsFixed, EpochMoved.

    Unless forced it raises SegmentClaimed while an operation is under way. With an incarnation it deletes
    only that life of the name; raises TopicDeleted when another one has it now.

    The metadata goes first. A store that a crash leaves behind, or that a driver of a forcibly deleted
    operation still makes, is an orphan for the sweep.
    """
    with transaction.atomic():
        topic = store.lock_to_delete(name)
        if name == SAMPLES_TOPIC:  # it is made with the database, and the load pipeline has no other
            raise SegmentsFixed(topic=str(name))
        if incarnation not in {None, topic.incarnation}:
            raise TopicDeleted(topic=str(name))
        topic.check_epoch(expected_epoch)
        running = operations.unfinished([topic.incarnation])
        if running and not force:
            raise SegmentClaimed(
                segment_id=running[0].plan.parent_ids[0], operation_id=running[0].operation_id
            )
        store.delete(topic.incarnation)
        grants.forget(scope=Scope(name.tenant, name.namespace, name.name))
        auditing.record(
            "topic.delete",
            name,
            actor=actor,
            before={"epoch": topic.epoch, "properties": dict(topic.properties)},
        )
        announce.publish(announce.TopicDeleted(topic.incarnation, str(name)))
        announce.publish(announce.NamespaceChanged(name.tenant, name.namespace))
    keys = segment_port().keys(incarnation=topic.incarnation)
    delete_stores(topic.incarnation, [key.segment_id for key in keys])


def set_properties(
    *, name: TopicName, properties: Mapping[str, str], expected_epoch: int | None = None, actor: str
) -> None:
    """Replace all properties of a topic; raises TopicNotFound, EpochMoved."""
    with transaction.atomic():
        topic = store.lock(name)
        topic.check_epoch(expected_epoch)
        revision = store.write_properties(topic.incarnation, properties)
        auditing.record(
            "topic.properties", name, actor=actor, before=topic.properties, after=dict(properties)
        )
        announce.publish(announce.TopicChanged(topic.incarnation, str(name), revision))
        announce.publish(announce.NamespaceChanged(name.tenant, name.namespace))


def set_auto_scale_policy(
    *, name: TopicName, override: object, expected_epoch: int | None = None, actor: str
) -> None:
    """Replace a topic's policy override, a JSON object of policy fields; all else stays as it is.

    Raises TopicNotFound, EpochMoved, UnknownField, PolicyUnreadable, and PolicyInvalid for what contradicts
    itself once resolved.
    """
    parsed = parse_override(override)
    with transaction.atomic():
        topic = store.lock(name)
        topic.check_epoch(expected_epoch)
        validate(resolve(topic=parsed, namespace=topic.namespace_policy).policy)
        auditing.record("topic.policy", name, actor=actor, before=topic.auto_scale_policy, after=parsed)
        _write_policy(topic, parsed)


def remove_auto_scale_policy(*, name: TopicName, expected_epoch: int | None = None, actor: str) -> None:
    """Drop a topic's policy override, so that it inherits every field; raises TopicNotFound, EpochMoved."""
    with transaction.atomic():
        topic = store.lock(name)
        topic.check_epoch(expected_epoch)
        auditing.record("topic.policy", name, actor=actor, before=topic.auto_scale_policy)
        _write_policy(topic, None)


def _write_policy(topic: TopicView, override: dict[str, Any] | None) -> None:
    store.write_auto_scale_policy(topic.incarnation, override)
    revision = store.raise_revision(topic.incarnation)
    announce.publish(announce.TopicChanged(topic.incarnation, str(topic.name), revision))


def get_auto_scale_policy(*, name: TopicName) -> dict[str, Any] | None:
    """Give a topic's own policy override, or None; raises TopicNotFound."""
    return store.read(name).auto_scale_policy


def effective_policy(*, name: TopicName) -> EffectivePolicy:
    """Resolve a topic's policy over its namespace's and the defaults, with sources; raises TopicNotFound."""
    topic = store.read(name)
    return resolve(topic=topic.auto_scale_policy, namespace=topic.namespace_policy)
