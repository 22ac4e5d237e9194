"""Splits, merges and rebuckets, and their operations."""

from collections.abc import Callable
from functools import partial
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.authentication import actor_of
from scalable.api.doors import Door
from scalable.api.layout_bodies import PreviewBody, preview_body
from scalable.api.serializers import (
    ListOperationsQuery,
    MergeBody,
    OperationBody,
    OperationsBody,
    RebucketQuery,
    ReshapeQuery,
    SplitBody,
)
from scalable.api.views.base import DoorView, body_of, segment_id_of, topic_of
from scalable.api.views.waiting import answer_operation
from scalable.domain.access import Right
from scalable.domain.errors import (
    BucketCountUnchanged,
    EpochMoved,
    InvalidBoundaries,
    InvalidBucketCount,
    LayoutCorrupt,
    OperationAborted,
    OperationNotAbortable,
    OperationNotFound,
    OperationNotRetriable,
    SegmentClaimed,
    SegmentNotActive,
    SegmentNotFound,
    SegmentsFixed,
    SegmentsNotAdjacent,
    SegmentTooNarrow,
    TooManyBuckets,
    TooManyParts,
    TopicDeleted,
    TopicNotFound,
)
from scalable.services import previewing, scaling
from scalable.services.previewing import Preview
from scalable.services.scaling import OperationView as StoredOperation

RESHAPE_ANSWERS: dict[int, Any] = {204: None, 202: OperationBody, 200: PreviewBody}
RESHAPE_HEADERS = {"Location": "with 202, the address of the operation"}
RETRY_ANSWERS: dict[int, Any] = {204: None, 202: OperationBody}
RESHAPE_ERRORS = (
    TopicNotFound,
    TopicDeleted,
    SegmentNotFound,
    SegmentNotActive,
    SegmentsFixed,
    SegmentClaimed,
    EpochMoved,
    OperationAborted,
    LayoutCorrupt,
)


class ReshapeView(DoorView):
    """What the changes of a layout share."""

    tag = "Split and merge"

    def reshape(
        self, request: Request, ask: Callable[..., StoredOperation], tell: Callable[..., Preview], **what: Any
    ) -> Response:
        """Do it and answer, or tell what it would do."""
        query = self.query(ReshapeQuery)
        if query.preview:
            return Response(preview_body(tell(**what, expected_epoch=query.epoch)))
        start = partial(ask, **what, expected_epoch=query.epoch, actor=actor_of(request))
        return answer_operation(request, start)

    def merge(self, request: Request, path: dict[str, str], segment_ids: list[int]) -> Response:
        """Merge and answer."""
        what = {"name": topic_of(path), "segment_ids": segment_ids}
        return self.reshape(request, scaling.request_merge, previewing.preview_merge, **what)


class SplitView(ReshapeView):
    """A segment's split."""

    doors = {
        "POST": Door(
            summary="Split a segment in two, or at the given boundaries",
            right=Right.ADMIN,
            query=ReshapeQuery,
            body=SplitBody,
            body_required=False,
            answers=RESHAPE_ANSWERS,
            errors=(*RESHAPE_ERRORS, SegmentTooNarrow, TooManyParts, InvalidBoundaries),
            headers=RESHAPE_HEADERS,
        ),
    }

    def post(self, request: Request, **path: str) -> Response:
        return self.reshape(
            request,
            scaling.request_split,
            previewing.preview_split,
            name=topic_of(path),
            segment_id=segment_id_of(path),
            boundaries=body_of(request, SplitBody, default=SplitBody()).boundaries,
        )


class MergeView(ReshapeView):
    """A merge of two or more neighbours."""

    doors = {
        "POST": Door(
            summary="Merge two or more neighbours",
            right=Right.ADMIN,
            query=ReshapeQuery,
            body=MergeBody,
            answers=RESHAPE_ANSWERS,
            errors=(*RESHAPE_ERRORS, TooManyParts, SegmentsNotAdjacent),
            headers=RESHAPE_HEADERS,
        ),
    }

    def post(self, request: Request, **path: str) -> Response:
        return self.merge(request, path, body_of(request, MergeBody).segment_ids)


class MergePairView(ReshapeView):
    """A merge of two neighbours named in the path."""

    doors = {
        "POST": Door(
            summary="Merge two neighbours",
            right=Right.ADMIN,
            query=ReshapeQuery,
            answers=RESHAPE_ANSWERS,
            errors=(*RESHAPE_ERRORS, SegmentsNotAdjacent),
            headers=RESHAPE_HEADERS,
        ),
    }

    def post(self, request: Request, **path: str) -> Response:
        pair = [segment_id_of(path), segment_id_of(path, "other_segment_id")]
        return self.merge(request, path, pair)


class RebucketView(ReshapeView):
    """Another number of entry buckets for a segment."""

    doors = {
        "POST": Door(
            summary="Replace a segment by one of the same range with another number of entry buckets",
            right=Right.ADMIN,
            query=RebucketQuery,
            answers=RESHAPE_ANSWERS,
            errors=(*RESHAPE_ERRORS, InvalidBucketCount, BucketCountUnchanged, TooManyBuckets),
            headers=RESHAPE_HEADERS,
        ),
    }

    def post(self, request: Request, **path: str) -> Response:
        return self.reshape(
            request,
            scaling.request_rebucket,
            previewing.preview_rebucket,
            name=topic_of(path),
            segment_id=segment_id_of(path),
            bucket_count=self.query(RebucketQuery).bucket_count,
        )


class OperationsView(DoorView):
    """The splits, merges and rebuckets of a topic."""

    tag = "Split and merge"
    doors = {
        "GET": Door(
            summary="List operations, the newest first",
            right=Right.LOOKUP,
            query=ListOperationsQuery,
            answers={200: OperationsBody},
            errors=(TopicNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        query = self.query(ListOperationsQuery)
        operations = scaling.list_operations(
            name=topic_of(path), limit=query.limit, unfinished_only=query.unfinished
        )
        return Response({"operations": [operation.to_json() for operation in operations]})


class OperationView(DoorView):
    """One split, merge or rebucket."""

    tag = "Split and merge"
    doors = {
        "GET": Door(
            summary="Get an operation with its step and timings",
            right=Right.LOOKUP,
            answers={200: OperationBody},
            errors=(TopicNotFound, OperationNotFound),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        operation = scaling.get_operation(name=topic_of(path), operation_id=path["operation_id"])
        return Response(operation.to_json())


class AbortView(DoorView):
    """The end of an operation before its point of no return."""

    tag = "Split and merge"
    doors = {
        "POST": Door(
            summary="Abort an operation that has not begun to terminate segments",
            right=Right.ADMIN,
            answers={200: OperationBody},
            errors=(TopicNotFound, OperationNotFound, OperationNotAbortable),
        ),
    }

    def post(self, request: Request, **path: str) -> Response:
        operation = scaling.abort_operation(
            name=topic_of(path), operation_id=path["operation_id"], actor=actor_of(request)
        )
        return Response(operation.to_json())


class RetryView(DoorView):
    """An operation that failed or was aborted, asked for anew."""

    tag = "Split and merge"
    doors = {
        "POST": Door(
            summary="Ask anew for what failed or was aborted; hurry on what is under way",
            right=Right.ADMIN,
            answers=RETRY_ANSWERS,
            errors=(
                *RESHAPE_ERRORS,
                OperationNotFound,
                OperationNotRetriable,
                SegmentTooNarrow,
                TooManyBuckets,
                TooManyParts,
                InvalidBoundaries,
                SegmentsNotAdjacent,
                InvalidBucketCount,
                BucketCountUnchanged,
            ),
            headers=RESHAPE_HEADERS,
        ),
    }

    def post(self, request: Request, **path: str) -> Response:
        start = partial(
            scaling.retry_operation,
            name=topic_of(path),
            operation_id=path["operation_id"],
            actor=actor_of(request),
        )
        return answer_operation(request, start)
