"""Topics: list, create, look at, delete."""

from __future__ import annotations

from typing import Any

import click

from scalable.cli.paging import gather, limit_option
from scalable.cli.session import Session, with_admin
from scalable.cli.values import NAMESPACE, PAIR, TOPIC, properties_of
from scalable.client import Admin
from scalable.domain.names import TopicName

property_option = click.option(
    "-p", "--property", "properties", type=PAIR, multiple=True, help="key=value; may be repeated."
)
topic_argument = click.argument("topic", type=TOPIC)
epoch_option = click.option(
    "--expected-epoch", type=int, help="Refuse when the layout is at another epoch by now."
)


@click.command("list")
@click.argument("namespace", type=NAMESPACE)
@property_option
@limit_option
@with_admin
def list_topics(
    session: Session,
    admin: Admin,
    namespace: str,
    properties: tuple[tuple[str, str], ...],
    limit: int | None,
) -> None:
    """Name the topics of a namespace, those with all the properties."""
    wanted = properties_of(properties)
    session.output.names(
        gather(
            lambda n, behind: admin.list_topics(namespace, properties=wanted, limit=n, offset=behind), limit
        )
    )


@click.command()
@topic_argument
@click.option(
    "-s", "--segments", type=click.IntRange(1), default=1, show_default=True, help="Initial segments."
)
@property_option
@with_admin
def create(
    session: Session,
    admin: Admin,
    topic: TopicName,
    segments: int,
    properties: tuple[tuple[str, str], ...],
) -> None:
    """Create a topic."""
    admin.create_topic(topic, initial_segments=segments, properties=properties_of(properties))
    session.output.done(f"created {topic}", topic=str(topic))


@click.command("get-metadata")
@topic_argument
@with_admin
def get_metadata(session: Session, admin: Admin, topic: TopicName) -> None:
    """Show epoch, segments, properties and policy."""
    body = admin.get_topic(topic)
    session.output.document(body if session.output.as_json else _without_segments(body))
    if not session.output.as_json:
        session.output.rows(_segment_rows(body), SEGMENT_COLUMNS, empty="no segments")


SEGMENT_COLUMNS = ("segment", "state", "range", "parents", "children", "created epoch", "sealed epoch")


def _without_segments(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "segments"}


def range_text(segment: dict[str, Any]) -> str:
    """Write the hash range of a segment."""
    return "{start:04x}-{end:04x}".format(**segment["hashRange"])


def _segment_rows(body: dict[str, Any]) -> list[dict[str, Any]]:
    segments = sorted(body["segments"].values(), key=lambda segment: segment["segmentId"])
    return [
        {
            "segment": segment["segmentId"],
            "state": segment["state"],
            "range": range_text(segment),
            "parents": ",".join(map(str, segment["parentIds"])),
            "children": ",".join(map(str, segment["childIds"])),
            "created epoch": segment["createdAtEpoch"],
            "sealed epoch": segment["sealedAtEpoch"] if segment["state"] == "SEALED" else None,
        }
        for segment in segments
    ]


@click.command()
@topic_argument
@with_admin
def stats(session: Session, admin: Admin, topic: TopicName) -> None:
    """Show rates, and every subscription with its backlog and consumers."""
    body = admin.stats(topic)
    if session.output.as_json:
        session.output.document(body)
    else:
        _show_stats(session, body)


def _show_stats(session: Session, body: dict[str, Any]) -> None:
    apart = {"layout", "subscriptions", "producers", "segments"}
    session.output.document({key: value for key, value in body.items() if key not in apart})
    rows = [
        {"subscription": name, **each, "consumers": len(each.get("consumers", []))}
        for name, each in body["subscriptions"].items()
    ]
    columns = ("subscription", "type", "msgBacklog", "consumers", "msgRateOut")
    session.output.rows(rows, columns, empty="no subscriptions")


@click.command()
@topic_argument
@click.option("-f", "--force", is_flag=True, help="Do not wait for unfinished splits and merges.")
@epoch_option
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_admin
def delete(
    session: Session, admin: Admin, topic: TopicName, force: bool, expected_epoch: int | None, yes: bool
) -> None:
    """Delete a topic with all its messages."""
    if not yes:
        click.confirm(f"Delete {topic} with all its messages?", abort=True, err=True)
    admin.delete_topic(topic, force=force, expected_epoch=expected_epoch)
    session.output.done(f"deleted {topic}", topic=str(topic))


COMMANDS = (list_topics, create, get_metadata, stats, delete)
