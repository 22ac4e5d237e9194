"""What is asked about a topic's layout: keys, lines of descent, segments, loads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from scalable.cli.moments import as_text
from scalable.cli.paging import gather, limit_option
from scalable.cli.session import Session, with_admin
from scalable.cli.topics import range_text, topic_argument
from scalable.cli.values import MOMENT, SEGMENT_PLACE, SPAN, OrdinaryTopicType
from scalable.client import Admin
from scalable.domain.errors import SegmentNotFound
from scalable.domain.names import SegmentName, TopicName

NODE_COLUMNS = ("segment", "state", "range", "parents", "created epoch", "sealed", "pruned", "end offset")
READING_COLUMNS = ("subscription", "segmentId", "position", "endOffset", "msgBacklog", "owner")
LOAD_COLUMNS = ("segment", "msgRateIn", "bytesRateIn", "msgRateOut", "bytesRateOut")


@click.command()
@topic_argument
@click.argument("key")
@click.option("--at", "at_ms", type=MOMENT, help="Where it was then: a span ago (1h), or ISO 8601.")
@with_admin
def locate(session: Session, admin: Admin, topic: TopicName, key: str, at_ms: int | None) -> None:
    """Tell in which segment a key is, which held it before, and how far each subscription is with it."""
    body = admin.locate(topic, key, at_ms=at_ms)
    if session.output.as_json:
        session.output.document(body)
        return
    segment = body["segment"]
    session.output.document(
        {
            "segment": None if segment is None else segment["segmentId"],
            "range": None if segment is None else range_text(segment),
            "entry bucket": body["entryBucket"],
            "hash": f"{body['segmentHash']:04x}",
            "line": [each["segmentId"] for each in body["lineage"]],
        }
    )
    rows = [{"subscription": name, **each} for name, found in body["subscriptions"].items() for each in found]
    session.output.rows(rows, READING_COLUMNS, empty="no subscription reads it")


@click.command()
@topic_argument
@click.option("--pruned", type=click.IntRange(0, 10_000), default=1_000, show_default=True)
@with_admin
def lineage(session: Session, admin: Admin, topic: TopicName, pruned: int) -> None:
    """Show what came of what, with so many of the segments that were pruned last."""
    body = admin.lineage(topic, pruned=pruned)
    if session.output.as_json:
        session.output.document(body)
        return
    parents: dict[int, list[int]] = {}
    for edge in body["edges"]:
        parents.setdefault(edge["childId"], []).append(edge["parentId"])
    rows = [_node_row(node, parents.get(node["segmentId"], [])) for node in body["nodes"]]
    session.output.rows(rows, NODE_COLUMNS, empty="no segments")


def _node_row(node: dict[str, Any], parents: list[int]) -> dict[str, Any]:
    sealed = node["sealedAtMs"]
    return {
        "segment": node["segmentId"],
        "state": node["state"],
        "range": range_text(node),
        "parents": ",".join(map(str, parents)),
        "created epoch": node["createdAtEpoch"],
        "sealed": as_text(sealed if sealed is not None and sealed >= 0 else None),
        "pruned": as_text(node["prunedAtMs"]),
        "end offset": node["endOffset"],
    }


@click.command("pruned-segments")
@topic_argument
@limit_option
@with_admin
def pruned_segments(session: Session, admin: Admin, topic: TopicName, limit: int | None) -> None:
    """List the segments that were pruned, the last first."""
    found = gather(lambda n, behind: admin.pruned_segments(topic, limit=n, offset=behind), limit)
    rows = found if session.output.as_json else [_node_row(each, []) for each in found]
    columns = tuple(column for column in NODE_COLUMNS if column not in ("state", "parents"))
    session.output.rows(rows, columns, empty="no segment was pruned")


@click.command("segment-stats")
@click.argument("place", metavar="TOPIC|SEGMENT", type=SEGMENT_PLACE)
@click.option("-s", "--segment-id", type=int, help="Of a TOPIC; the whole name of a SEGMENT has it.")
@with_admin
def segment_stats(
    session: Session, admin: Admin, place: TopicName | SegmentName, segment_id: int | None
) -> None:
    """Show a segment's offsets, size, rates and subscriptions.

    It is named as TOPIC -s ID, or by its whole name, as in segment://public/default/orders/0000-7fff-1.
    """
    if isinstance(place, SegmentName) == (segment_id is not None):
        raise click.UsageError("give a topic and --segment-id, or the whole name of a segment")
    if isinstance(place, TopicName):
        session.output.document(admin.segment_stats(place, segment_id or 0))
        return
    body = admin.segment_stats(place.topic, place.segment_id)
    if body["name"] != str(place):
        raise SegmentNotFound(segment_id=place.segment_id)
    session.output.document(body)


@click.command()
@topic_argument
@with_admin
def positions(session: Session, admin: Admin, topic: TopicName) -> None:
    """Show incarnation, epoch, and the offsets of each segment."""
    session.output.document(admin.positions(topic))


@click.command()
@topic_argument
@with_admin
def loads(session: Session, admin: Admin, topic: TopicName) -> None:
    """Show the rates of each segment as last reported, and whether they are known."""
    body = admin.loads(topic)
    if session.output.as_json:
        session.output.document(body)
        return
    session.output.document({"known": body["known"], "as of": as_text(body["watermarkMs"])})
    rows = [{"segment": number, **rates} for number, rates in body["segments"].items()]
    session.output.rows(rows, LOAD_COLUMNS, empty="no rates")


@click.command()
@topic_argument
@click.option("--last", type=SPAN, default="1h", show_default=True, help="So far back.")
@with_admin
def tiles(session: Session, admin: Admin, topic: TopicName, last: float) -> None:
    """List the load of each segment: by the minute, of the past by ten minutes, then by the hour."""
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    rows = [
        {
            **each,
            "from": as_text(each["minuteMs"]),
            "minutes": each["spanMs"] // 60_000,
            "mean/s": sum(each["mean"]),
        }
        for each in admin.tiles(topic, from_ms=now_ms - int(last * 1000), to_ms=now_ms)
    ]
    session.output.rows(rows, ("from", "minutes", "segmentId", "mean/s"), empty="no load was reported")


@click.command()
@click.argument("topic", type=OrdinaryTopicType())
@click.option("-f", "--force", is_flag=True, help="Even while it has producers or consumers.")
@with_admin
def migrate(session: Session, admin: Admin, topic: TopicName, force: bool) -> None:
    """Make a scalable topic of an ordinary one, where an adapter for Pulsar is there."""
    admin.migrate(topic, force=force)
    session.output.done(f"migrated {topic}", topic=str(topic))


COMMANDS = (locate, lineage, pruned_segments, segment_stats, positions, loads, tiles, migrate)
