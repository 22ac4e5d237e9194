"""Splits, merges and changes of entry buckets, each with its preview of what is running."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from rich.console import Console

from scalable.cli.session import Session, with_admin
from scalable.cli.topics import topic_argument
from scalable.client import Admin
from scalable.domain.names import TopicName

Reshape = Callable[[bool], dict[str, Any] | None]

wait_option = click.option(
    "--wait/--no-wait", default=True, help="Wait for the end, or print the operation at once."
)
epoch_option = click.option(
    "--expected-epoch", type=int, help="Refuse when the layout is at another epoch by now."
)


def _reshape(session: Session, what: str, topic: TopicName, wait: bool, ask: Reshape) -> None:
    """Ask for a change, with a sign of life while it runs."""
    if not wait:
        session.output.document(ask(False))
        return
    with Console(stderr=True, quiet=session.output.as_json).status(f"{what} of {topic}"):
        ask(True)
    session.output.done(f"done: {what} of {topic}", topic=str(topic))


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
@with_admin
def split_segment(
    session: Session,
    admin: Admin,
    topic: TopicName,
    segment_id: int,
    boundaries: tuple[int, ...],
    expected_epoch: int | None,
    wait: bool,
) -> None:
    """Split a segment in two, or at boundaries."""

    def ask(wait: bool) -> dict[str, Any] | None:
        return admin.split(
            topic,
            segment_id,
            boundaries=sorted(boundaries) or None,
            expected_epoch=expected_epoch,
            wait=wait,
        )

    _reshape(session, f"split of segment {segment_id}", topic, wait, ask)


@click.command("merge-segments")
@topic_argument
@click.option("--segment-id-1", type=int, help="First of two neighbours.")
@click.option("--segment-id-2", type=int, help="Second of two neighbours.")
@click.option("-s", "--segment-id", "more", type=int, multiple=True, help="One of several; repeat it.")
@epoch_option
@wait_option
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
) -> None:
    """Merge two or more neighbouring segments."""
    named = [each for each in (segment_id_1, segment_id_2) if each is not None]
    segment_ids = [*named, *more]
    if len(segment_ids) < 2:
        raise click.UsageError("name at least two segments: --segment-id-1 and --segment-id-2, or -s twice")

    def ask(wait: bool) -> dict[str, Any] | None:
        return admin.merge(topic, segment_ids, expected_epoch=expected_epoch, wait=wait)

    _reshape(session, f"merge of segments {', '.join(map(str, segment_ids))}", topic, wait, ask)


@click.command("rebucket-segment")
@topic_argument
@click.option("-s", "--segment-id", type=int, required=True)
@click.option("--buckets", type=click.IntRange(1), required=True, help="So many entry buckets.")
@epoch_option
@wait_option
@with_admin
def rebucket_segment(
    session: Session,
    admin: Admin,
    topic: TopicName,
    segment_id: int,
    buckets: int,
    expected_epoch: int | None,
    wait: bool,
) -> None:
    """Give a segment another number of entry buckets (for key-shared consumers)."""

    def ask(wait: bool) -> dict[str, Any] | None:
        return admin.rebucket(topic, segment_id, buckets, expected_epoch=expected_epoch, wait=wait)

    _reshape(session, f"rebucket of segment {segment_id}", topic, wait, ask)


COMMANDS = (split_segment, merge_segments, rebucket_segment)
