"""Short ways to write snapshots of the autoscaler; what a case does not name is a quiet default."""

from collections.abc import Mapping
from typing import Any

from scalable.domain.autoscale import Snapshot
from scalable.domain.layout import Layout
from scalable.domain.load import LoadRecord, SegmentRates
from scalable.domain.policy import resolve

NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000
OLD_MS = NOW_MS - 10 * MINUTE_MS


def load(
    msg_in: float = 0, bytes_in: float = 0, msg_out: float = 0, bytes_out: float = 0, at_ms: int = OLD_MS
) -> LoadRecord:
    """Give a record that was last modified ten minutes ago unless told."""
    return LoadRecord(SegmentRates(msg_in, bytes_in, msg_out, bytes_out), at_ms)


def snapshot(
    segments: int | Layout = 1,
    loads: Mapping[int, LoadRecord] | None = None,
    policy: Mapping[str, Any] | None = None,
    **rest: Any,
) -> Snapshot:
    """Give a snapshot of a fresh topic with so many segments, all cold for ten minutes unless told."""
    layout = segments if isinstance(segments, Layout) else Layout.initial(segments, OLD_MS)
    if loads is None:
        loads = {segment.segment_id: load() for segment in layout.active}
    return Snapshot(layout=layout, loads=loads, policy=resolve(policy).policy, **rest)
