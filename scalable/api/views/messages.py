"""Positions and stored batches of segments, for readers by REST."""

import struct
from collections.abc import Iterable

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.doors import Door
from scalable.api.schema import OCTETS_TYPE
from scalable.api.serializers import (
    BatchesQuery,
    PositionsBody,
)
from scalable.api.views.base import DoorView, segment_id_of, topic_of
from scalable.domain.access import Right
from scalable.domain.errors import (
    SegmentNotFound,
    SegmentStoreMissing,
    TopicDeleted,
    TopicNotFound,
)
from scalable.segments.port import StoredBatch
from scalable.services import messages

MAX_BATCHES = 1_000
NEXT_OFFSET_HEADER = "X-Scalable-Next-Offset"
END_OFFSET_HEADER = "X-Scalable-End-Offset"
TERMINATED_HEADER = "X-Scalable-Terminated"
_BATCH_HEAD = struct.Struct(">QI")


class PositionsView(DoorView):
    """Where the segments of a topic begin and end."""

    tag = "Messages"
    doors = {
        "GET": Door(
            summary="Get the offsets of all segments",
            right=Right.LOOKUP,
            answers={200: PositionsBody},
            errors=(TopicNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        return Response(messages.positions(name=topic_of(path)).to_json())


class BatchesView(DoorView):
    """The stored batches of a segment."""

    tag = "Messages"
    doors = {
        "GET": Door(
            summary="Read batches: base offset (u64), length (u32) and octets of each, big-endian",
            right=Right.CONSUME,
            query=BatchesQuery,
            answers={200: bytes},
            errors=(TopicNotFound, TopicDeleted, SegmentNotFound, SegmentStoreMissing),
            headers={
                NEXT_OFFSET_HEADER: "the offset to read on from",
                END_OFFSET_HEADER: "the offset behind the last message",
                TERMINATED_HEADER: "`true` when the segment takes no more messages",
            },
        ),
    }

    def get(self, request: Request, **path: str) -> HttpResponse:
        query = self.query(BatchesQuery)
        page = messages.read_by_name(
            name=topic_of(path),
            incarnation=query.incarnation,
            segment_id=segment_id_of(path),
            offset=query.offset,
            max_bytes=query.max_bytes,
            max_batches=MAX_BATCHES,
        )
        headers = {
            NEXT_OFFSET_HEADER: str(page.next_offset),
            END_OFFSET_HEADER: str(page.end_offset),
            TERMINATED_HEADER: str(page.terminated).lower(),
        }
        return HttpResponse(pack_batches(page.batches), content_type=OCTETS_TYPE, headers=headers)


def pack_batches(batches: Iterable[StoredBatch]) -> bytes:
    """The octets of a page: base offset (u64), length (u32) and payload of each batch, big-endian."""
    return b"".join(
        _BATCH_HEAD.pack(batch.base_offset, len(batch.payload)) + batch.payload for batch in batches
    )
