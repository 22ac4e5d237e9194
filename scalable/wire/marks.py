"""Producer marks: which sequences of a producer are stored already, hash by hash (`docs/decisions/0032`).

A mark says that everything of a producer up to `last_sequence` whose hash lies in the range is stored. Where
marks overlap the highest rules. Segments hand their marks on: a split clips them, a merge unites them; a
maximum over the parents of a merge would take a sequence that only one of them holds for stored.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import groupby, pairwise
from typing import NamedTuple

from scalable.domain.keyspace import MAX_HASH, HashRange, segment_hash
from scalable.wire.batch import NO_SEQUENCE, Record


class Mark(NamedTuple):
    """Everything up to `last_sequence` in the inclusive hash range is stored."""

    hash_start: int
    hash_end: int
    last_sequence: int


class Verdict(Enum):
    """What marks say of a batch."""

    NEW = "new"
    DUPLICATE = "duplicate"
    PARTLY_DUPLICATE = "partly_duplicate"


def flatten(marks: Iterable[Mark]) -> list[Mark]:
    """Give marks that say the same, ascending, disjoint, and joined where neighbours agree."""
    known = list(marks)
    starts = sorted({mark.hash_start for mark in known} | {mark.hash_end + 1 for mark in known})
    pieces = [
        Mark(start, end - 1, highest)
        for start, end in pairwise(starts)
        if (highest := _highest_at(known, start)) > NO_SEQUENCE
    ]
    return _join(pieces)


def clip(marks: Iterable[Mark], hash_range: HashRange) -> list[Mark]:
    """Give what the marks say of the hashes in a range."""
    return [
        Mark(max(mark.hash_start, hash_range.start), min(mark.hash_end, hash_range.end), mark.last_sequence)
        for mark in marks
        if mark.hash_start <= hash_range.end and hash_range.start <= mark.hash_end
    ]


def bounds(marks: Iterable[Mark], hash_range: HashRange) -> tuple[int, int]:
    """Give the lowest and the highest last sequence over the hashes of a range; -1 where no mark lies."""
    pieces = flatten(clip(marks, hash_range))
    covered = sum(piece.hash_end - piece.hash_start + 1 for piece in pieces)
    sequences = [piece.last_sequence for piece in pieces] or [NO_SEQUENCE]
    return (min(sequences) if covered == hash_range.size else NO_SEQUENCE), max(sequences)


def judge(marks: Iterable[Mark], hash_range: HashRange, first_sequence: int, last_sequence: int) -> Verdict:
    """Tell whether a batch within the range is wholly new, wholly stored, or must be cut by its producer."""
    lowest, highest = bounds(marks, hash_range)
    if first_sequence > highest:
        return Verdict.NEW
    return Verdict.DUPLICATE if last_sequence <= lowest else Verdict.PARTLY_DUPLICATE


def cut(
    records: Sequence[Record], marks: Iterable[Sequence[int]], *, keyless_hash: int | None = None
) -> list[list[Record]]:
    """Drop what is stored and cut the rest into batches that the segment accepts one after the other.

    `records` ascend by sequence; `marks` are those of `BatchPartlyDuplicate`: start, end, last sequence of
    each. Order is kept: a later batch holds higher sequences only, since an accepted batch marks the
    segment's whole range. Keyless records need the hash by which they are routed.
    """
    pieces = flatten(Mark(*mark) for mark in marks)
    batches: list[list[Record]] = []
    hull = HashRange(0, 0)
    for record in records:
        place = _hash_of(record, keyless_hash)
        if record.sequence <= _highest_at(pieces, place):
            continue
        wider = (
            HashRange(min(hull.start, place), max(hull.end, place)) if batches else HashRange(place, place)
        )
        if batches and batches[-1][0].sequence > bounds(pieces, wider)[1]:
            batches[-1].append(record)
            hull = wider
        else:
            batches.append([record])
            hull = HashRange(place, place)
    return batches


def _hash_of(record: Record, keyless_hash: int | None) -> int:
    if record.key_hash is not None:
        return segment_hash(record.key_hash)
    if keyless_hash is None or not 0 <= keyless_hash <= MAX_HASH:
        raise ValueError("keyless records are cut by the hash that routed them")
    return keyless_hash


def _highest_at(marks: Iterable[Mark], place: int) -> int:
    return max(
        (mark.last_sequence for mark in marks if mark.hash_start <= place <= mark.hash_end),
        default=NO_SEQUENCE,
    )


def _join(pieces: Iterable[Mark]) -> list[Mark]:
    joined: list[Mark] = []
    for last_sequence, group in groupby(pieces, key=lambda piece: piece.last_sequence):
        for piece in group:
            if (
                joined
                and joined[-1].last_sequence == last_sequence
                and joined[-1].hash_end + 1 == piece.hash_start
            ):
                joined[-1] = Mark(joined[-1].hash_start, piece.hash_end, last_sequence)
            else:
                joined.append(piece)
    return joined
