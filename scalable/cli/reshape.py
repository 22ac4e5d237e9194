"""Splits, merges and changes of entry buckets, each with its preview of what is running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from rich.console import Console

from scalable.cli.session import Session, with_admin
from scalable.cli.topics import epoch_option, range_text, topic_argument
from scalable.client import Admin
from scalable.domain.names import TopicName

Reshape = Callable[[bool], dict[str, Any] | None]

CHILD_COLUMNS = ("segment", "range", "msg/s in", "msg/s out")
MOVE_COLUMNS = ("subscription", "segmentId", "bucket", "from", "to")

wait_option = click.option(
    "--wait/--no-wait", default=True, help="Wait for the end, or print the operation at once."
)
preview_option = click.option("--preview", is_flag=True, help="Only show what would be done.")


def _reshape(session: Session, what: str, topic: TopicName, wait: bool, ask: Reshape) -> None:
    """Ask for a change, with a sign of life while it runs."""
    if not wait:
        session.output.document(ask(False))
        return
    with Console(stderr=True, quiet=session.output.as_json).status(f"{what} of {topic}"):
        ask(True)
    session.output.done(f"done: {what} of {topic}", topic=str(topic))


def _show(session: Session, preview: dict[str, Any]) -> None:
    """Show what would be made, and whose work would move."""
    if session.output.as_json:
        session.output.document(preview)
        return
    session.output.rows([_child(each) for each in preview["children"]], CHILD_COLUMNS, empty="no segments")
    moves = [
        {"subscription": name, **each, "from": each["fromConsumer"], "to": each["toConsumer"]}
        for name, passing in preview["moves"].items()
        for each in passing
    ]
    session.output.rows(moves, MOVE_COLUMNS, empty="no consumer would lose or get anything")


def _child(child: dict[str, Any]) -> dict[str, Any]:
    rates = child["estimatedRates"] or {}
    return {
        "segment": child["segmentId"],
        "range": range_text(child),
        "msg/s in": rates.get("msgRateIn"),
        "msg/s out": rates.get("msgRateOut"),
    }


@click.command("split-segment")
@topic_argument
@click.option("-s", "--segment-id", type=int, required=True)
@click.option(
    "--boundary",
    "boundaries",
    type=click.IntRange(0, 65_535),
    multiple=True,
    help="First hash of a later child; may be repeated. Without any the range is halved.",
)
@epoch_option
@wait_option
@preview_option
@with_admin
def split_segment(
    session: Session,
    admin: Admin,
    topic: TopicName,
    segment_id: int,
    boundaries: tuple[int, ...],
    expected_epoch: int | None,
    wait: bool,
    preview: bool,
) -> None:
    """Split a segment in two, or at boundaries."""
    places = sorted(boundaries) or None
    if preview:
        _show(
            session,
            admin.preview_split(topic, segment_id, boundaries=places, expected_epoch=expected_epoch),
        )
        return

    def ask(wait: bool) -> dict[str, Any] | None:
        return admin.split(topic, segment_id, boundaries=places, expected_epoch=expected_epoch, wait=wait)

    _reshape(session, f"split of segment {segment_id}", topic, wait, ask)


@click.command("merge-segments")
@topic_argument
@click.option("--segment-id-1", type=int, help="First of two neighbours.")
@click.option("--segment-id-2", type=int, help="Second of two neighbours.")
@click.option("-s", "--segment-id", "more", type=int, multiple=True, help="One of several; repeat it.")
@epoch_option
@wait_option
@preview_option
@with_admin
def merge_segments(
    session: Session,
    admin: Admin,
    topic: TopicName,
    segment_id_1: int | None,
    segment_id_2: int | None,
    more: tuple[int, ...],
    expected_epoch: int | None,
    wait: bool,
    preview: bool,
) -> None:
    """Merge two or more neighbouring segments."""
    named = [each for each in (segment_id_1, segment_id_2) if each is not None]
    segment_ids = [*named, *more]
    if len(segment_ids) < 2:
        raise click.UsageError("name at least two segments: --segment-id-1 and --segment-id-2, or -s twice")
    if preview:
        _show(session, admin.preview_merge(topic, segment_ids, expected_epoch=expected_epoch))
        return

    def ask(wait: bool) -> dict[str, Any] | None:
        return admin.merge(topic, segment_ids, expected_epoch=expected_epoch, wait=wait)

    _reshape(session, f"merge of segments {', '.join(map(str, segment_ids))}", topic, wait, ask)


@click.command("rebucket-segment")
@topic_argument
@click.option("-s", "--segment-id", type=int, required=True)
@click.option("--buckets", type=click.IntRange(1), required=True, help="So many entry buckets.")
@epoch_option
@wait_option
@preview_option
@with_admin
def rebucket_segment(
    session: Session,
    admin: Admin,
    topic: TopicName,
    segment_id: int,
    buckets: int,
    expected_epoch: int | None,
    wait: bool,
    preview: bool,
) -> None:
    """Give a segment another number of entry buckets (for key-shared consumers)."""
    if preview:
        _show(session, admin.preview_rebucket(topic, segment_id, buckets, expected_epoch=expected_epoch))
        return

    def ask(wait: bool) -> dict[str, Any] | None:
        return admin.rebucket(topic, segment_id, buckets, expected_epoch=expected_epoch, wait=wait)

    _reshape(session, f"rebucket of segment {segment_id}", topic, wait, ask)


COMMANDS = (split_segment, merge_segments, rebucket_segment)
