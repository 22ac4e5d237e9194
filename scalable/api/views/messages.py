"""Positions and stored batches of segments, for readers by REST, and subscriptions."""

import struct
from collections.abc import Iterable

from django.http import HttpResponse
from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.doors import Door
from scalable.api.schema import OCTETS_TYPE
from scalable.api.serializers import (
    BatchesQuery,
    CreateSubscriptionQuery,
    PositionsBody,
    SubscriptionsBody,
)
from scalable.api.views.base import DoorView, segment_id_of, topic_of
from scalable.domain.errors import (
    SegmentNotFound,
    SegmentStoreMissing,
    SubscriptionNotFound,
    SubscriptionTypeMismatch,
    TopicDeleted,
    TopicNotFound,
)
from scalable.domain.subscriptions import SubscriptionType
from scalable.segments.port import StoredBatch
from scalable.services import messages, subscriptions
from scalable.services.access import Right

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
            right=Right.READ,
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
            right=Right.READ,
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


class SubscriptionsView(DoorView):
    """The subscriptions of a topic."""

    tag = "Subscriptions"
    doors = {
        "GET": Door(
            summary="List subscriptions",
            right=Right.READ,
            answers={200: SubscriptionsBody},
            errors=(TopicNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        found = subscriptions.list_subscriptions(name=topic_of(path))
        return Response({"subscriptions": [{"name": each.name, "type": each.type.value} for each in found]})


class SubscriptionView(DoorView):
    """One subscription."""

    tag = "Subscriptions"
    doors = {
        "PUT": Door(
            summary="Create a subscription at earliest; one that exists stays as it is",
            right=Right.OPERATE,
            query=CreateSubscriptionQuery,
            answers={204: None},
            errors=(TopicNotFound, SubscriptionTypeMismatch),
        ),
        "DELETE": Door(
            summary="Delete a subscription with its position",
            right=Right.OPERATE,
            answers={204: None},
            errors=(TopicNotFound, SubscriptionNotFound),
        ),
    }

    def put(self, request: Request, **path: str) -> Response:
        subscriptions.create_subscription(
            name=topic_of(path),
            subscription=path["subscription"],
            kind=SubscriptionType(self.query(CreateSubscriptionQuery).type),
        )
        return Response(status=204)

    def delete(self, request: Request, **path: str) -> Response:
        subscriptions.delete_subscription(name=topic_of(path), subscription=path["subscription"])
        return Response(status=204)


def pack_batches(batches: Iterable[StoredBatch]) -> bytes:
    """The octets of a page: base offset (u64), length (u32) and payload of each batch, big-endian."""
    return b"".join(
        _BATCH_HEAD.pack(batch.base_offset, len(batch.payload)) + batch.payload for batch in batches
    )
