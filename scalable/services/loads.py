"""What the load pipeline reports and what is read of it (PIP-483, Load reporting)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any

from django.conf import settings
from django.db import transaction

from scalable import announce
from scalable.domain.errors import InvalidParameter, LoadReportUnreadable, TopicNotFound
from scalable.domain.load import LoadRecord, SegmentRates, is_material, stale_after_seconds
from scalable.domain.names import TopicName
from scalable.domain.rings import COARSER, MINUTE_MS, MINUTES, layers, lived_ms
from scalable.services.policies import resolve
from scalable.store import evaluations, rings, topics
from scalable.store import loads as store
from scalable.store.clock import database_now, milliseconds, moment
from scalable.store.loads import SegmentRef, Tile, TopicPolicies
from scalable.wire.loads import MAX_TIME_MS, ReportedLoad, ReportedTile, parse_loads, parse_tiles

MAX_REPORTER_LENGTH = 255
MAX_TILES_READ = 20_000

_DELETED_TILES_PER_REPORT = 500


@dataclass(frozen=True, slots=True)
class ReportOutcome:
    """How many entries were written, needed no writing, or named what is not there (any more)."""

    written: int
    unchanged: int
    unknown: int

    def to_json(self) -> dict[str, int]:
        """The body of the answer."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TopicLoads:
    """The loads of a topic's active segments, how far the pipeline has come, and if that is recent enough."""

    loads: Mapping[int, LoadRecord]
    watermark_ms: int | None
    known: bool

    def to_json(self) -> dict[str, Any]:
        """Names as in PIP-483's SegmentLoadStats, with the time of the last material change."""
        return {
            "watermarkMs": self.watermark_ms,
            "known": self.known,
            "segments": {
                str(segment_id): {**record.rates.by_metric(), "modifiedAtMs": record.modified_at_ms}
                for segment_id, record in sorted(self.loads.items())
            },
        }


def load_known(*, watermark_ms: int | None, now_ms: int, rate_window_seconds: float) -> bool:
    """Tell whether loads may be judged: the watermark is not older than `stale_after_seconds`."""
    stale_after_ms = stale_after_seconds(rate_window_seconds) * 1000
    return watermark_ms is not None and now_ms - watermark_ms <= stale_after_ms


@transaction.atomic
def report_loads(*, reporter: str, watermark_ms: int, loads: Sequence[Mapping[str, Any]]) -> ReportOutcome:
    """Write the loads that changed materially and move the reporter's watermark forward.

    `loads` are ReportedLoad bodies; of two for one segment the later counts. Topics, incarnations and
    segments that are gone or sealed are counted as unknown. A report that is older than the reporter's
    watermark (a repeat, or a reporter that was replaced) changes nothing. Raises LoadReportUnreadable.
    """
    reported = _latest(parse_loads(loads))
    _check_report(reporter, watermark_ms)
    now = database_now()
    watermark = min(moment(watermark_ms), now)
    previous = store.lock_watermark(reporter, at=now)
    if previous is not None and watermark < previous:
        return ReportOutcome(written=0, unchanged=len(reported), unknown=0)
    store.move_watermark(reporter, watermark=watermark, at=now)
    known = _known_loads(reported)
    written = _write_changes({ref: SegmentRates(*load.rates) for ref, load in known.items()})
    unknown = len(reported) - len(known)
    return ReportOutcome(written=written, unchanged=len(known) - written, unknown=unknown)


@transaction.atomic
def report_tiles(*, tiles: Sequence[Mapping[str, Any]]) -> ReportOutcome:
    """Set one-minute tiles (ReportedTile bodies) by topic, minute and segment, and roll up what they change.

    A repeat replaces what was there, unless that was observed for longer: a pipeline that began anew may have
    seen a part of its first minute. A minute that its ring has let go changes nothing: what was rolled up of
    it could not be made anew. Sealed segments count, and pruned ones: their last minute is reported after the
    seal. Raises LoadReportUnreadable.
    """
    latest = {((tile.incarnation, tile.segment_id), tile.minute_ms): tile for tile in parse_tiles(tiles)}
    names = store.topic_names(store.lock_topics({tile.incarnation for tile in latest.values()}))
    existing = store.existing_segments({ref for ref, _ in latest})
    now_ms = milliseconds(database_now())
    known = {
        key: tile
        for key, tile in latest.items()
        if key[0] in existing and names.get(tile.incarnation) == tile.topic
    }
    kept = {key: tile for key, tile in known.items() if tile.minute_ms >= MINUTES.start_ms(now_ms)}
    observed = store.observed_minutes(kept)
    kept = {key: tile for key, tile in kept.items() if tile.observed_ms >= observed.get(key, 0)}
    store.write_tiles((tile.incarnation, _tile(tile)) for tile in kept.values())
    _roll_up({key: tile.observed_ms for key, tile in kept.items()}, now_ms)
    rings.trim(now_ms=now_ms, limit=_DELETED_TILES_PER_REPORT)
    evaluations.mark_tiles({tile.incarnation for tile in kept.values()})
    return ReportOutcome(
        written=len(kept), unchanged=len(known) - len(kept), unknown=len(latest) - len(known)
    )


def _roll_up(minutes: Mapping[tuple[SegmentRef, int], int], now_ms: int) -> None:
    """Make the coarser tiles anew that have these minutes; the running minute waits until it is over.

    The pipeline's clock may be ahead: what it observed to the end is over, and with a minute that is over
    comes the one before, which may have ended while it was still running here.
    """
    first_ms = MINUTES.start_ms(now_ms)
    over = {
        (ref, each_ms)
        for (ref, minute_ms), observed_ms in minutes.items()
        if observed_ms == MINUTE_MS or minute_ms + MINUTE_MS <= now_ms
        for each_ms in (minute_ms - MINUTE_MS, minute_ms)
        if each_ms >= first_ms
    }
    for ring, finer in COARSER:
        rings.roll_up({(ref, ring.block_ms(minute_ms)) for ref, minute_ms in over}, ring=ring, finer=finer)


def loads_for_decision(*, incarnation: int, rate_window_seconds: float, now_ms: int) -> TopicLoads:
    """The loads of a topic as the autoscaler judges them at `now_ms`."""
    active = store.active_segments([incarnation])
    records = store.load_records([incarnation])
    watermark_ms = store.newest_watermark_ms()
    return TopicLoads(
        loads={ref[1]: record for ref, record in records.items() if ref in active},
        watermark_ms=watermark_ms,
        known=load_known(watermark_ms=watermark_ms, now_ms=now_ms, rate_window_seconds=rate_window_seconds),
    )


def topic_loads(*, name: TopicName) -> TopicLoads:
    """The loads of a topic, judged now by its effective policy's rate window; raises TopicNotFound."""
    found = _find(name)
    policy = resolve(topic=found.topic, namespace=found.namespace).policy
    return loads_for_decision(
        incarnation=found.incarnation,
        rate_window_seconds=policy.rate_window_seconds,
        now_ms=milliseconds(database_now()),
    )


def tiles(*, name: TopicName, from_ms: int, to_ms: int) -> Sequence[Tile]:
    """The tiles of a topic that begin in a span, both ends included, ascending; at most the newest 20,000.

    Each moment is told by the finest ring that still has it. The mean of a segment that was sealed meanwhile
    is over the time until then, or what was hot would look cold. Raises TopicNotFound, InvalidParameter.
    """
    for parameter, value in (("fromMs", from_ms), ("toMs", to_ms)):
        if not 0 <= value <= MAX_TIME_MS:
            raise InvalidParameter(
                parameter=parameter, value=value, problem="it is not a time in ms since 1970"
            )
    incarnation = _find(name).incarnation
    told = layers(milliseconds(database_now()))
    found = rings.read_layers(incarnation, told, from_ms=from_ms, to_ms=to_ms, limit=MAX_TILES_READ)
    lives = store.lives_of_sealed(incarnation, {tile.segment_id for tile in found})
    return [
        _until_sealed(tile, *lives[tile.segment_id]) if tile.segment_id in lives else tile for tile in found
    ]


def _until_sealed(tile: Tile, created_ms: int, sealed_ms: int) -> Tile:
    """The same messages over the segment's life; no mean above its largest rate, which is of one interval."""
    lived = lived_ms(
        tile.observed_ms,
        start_ms=tile.minute_ms,
        width_ms=tile.span_minutes * MINUTE_MS,
        created_ms=created_ms,
        sealed_ms=sealed_ms,
    )
    if lived == tile.observed_ms:
        return tile
    # A report may say anything: a mean above its largest rate, too.
    fullest = max(
        (min(1.0, mean / peak) for mean, peak in zip(tile.mean, tile.peak, strict=True) if peak > 0),
        default=0.0,
    )
    over_ms = min(tile.observed_ms, max(lived, ceil(tile.observed_ms * fullest), 1))
    factor = tile.observed_ms / over_ms
    return replace(tile, mean=tuple(mean * factor for mean in tile.mean), observed_ms=over_ms)


def _find(name: TopicName) -> TopicPolicies:
    found = store.find_topic(name)
    if found is None:
        raise TopicNotFound(topic=str(name))
    return found


def _latest(loads: Sequence[ReportedLoad]) -> dict[SegmentRef, ReportedLoad]:
    return {(load.incarnation, load.segment_id): load for load in loads}


def _check_report(reporter: object, watermark_ms: object) -> None:
    if not isinstance(reporter, str) or not 1 <= len(reporter) <= MAX_REPORTER_LENGTH or "\0" in reporter:
        raise LoadReportUnreadable(problem=f"reporter is not a name of 1 to {MAX_REPORTER_LENGTH} characters")
    if isinstance(watermark_ms, bool) or not isinstance(watermark_ms, int):
        raise LoadReportUnreadable(problem="watermarkMs is not a whole number")
    if not 0 <= watermark_ms <= MAX_TIME_MS:
        raise LoadReportUnreadable(problem="watermarkMs is not a time in ms since 1970")


def _known_loads(reported: Mapping[SegmentRef, ReportedLoad]) -> dict[SegmentRef, ReportedLoad]:
    incarnations = {incarnation for incarnation, _ in reported}
    names, active = store.topic_names(incarnations), store.active_segments(incarnations)
    return {ref: load for ref, load in reported.items() if ref in active and names.get(ref[0]) == load.topic}


def _write_changes(rates: Mapping[SegmentRef, SegmentRates]) -> int:
    """Write what changed. The first look takes no lock: a steady report never waits for a layout commit."""
    changed = _material(rates)
    if not changed:
        return 0
    locked = store.lock_topics({incarnation for incarnation, _ in changed})
    active = store.active_segments(locked)
    changed = _material({ref: rates[ref] for ref in changed if ref in active})
    store.write_loads(changed, modified_at=database_now())
    evaluations.mark_loads({incarnation for incarnation, _ in changed})
    _announce({incarnation for incarnation, _ in changed})
    return len(changed)


def _material(rates: Mapping[SegmentRef, SegmentRates]) -> dict[SegmentRef, SegmentRates]:
    threshold = settings.SCALABLE_LOAD_CHANGE_THRESHOLD
    records = store.load_records({incarnation for incarnation, _ in rates})
    written = {ref: record.rates for ref, record in records.items()}
    return {ref: rate for ref, rate in rates.items() if is_material(written.get(ref), rate, threshold)}


def _announce(incarnations: set[int]) -> None:
    names, rates = store.topic_names(incarnations), store.messages_in(incarnations)
    for incarnation in sorted(incarnations):
        revision = topics.raise_revision(incarnation, msg_rate_in=rates.get(incarnation, 0.0))
        announce.publish(announce.TopicChanged(incarnation, names[incarnation], revision))


def _tile(tile: ReportedTile) -> Tile:
    mean, peak = tuple(tile.mean), tuple(tile.max)
    return Tile(tile.segment_id, tile.minute_ms, mean, peak, observed_ms=tile.observed_ms)
