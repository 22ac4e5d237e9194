"""Subscriptions of a topic: made, listed, moved, looked into, deleted; and who reads what."""

from msgspec import UNSET
from rest_framework.request import Request
from rest_framework.response import Response

from scalable.api.doors import Door
from scalable.api.forwarding import answer_of_leader
from scalable.api.leader import SessionState
from scalable.api.node import node
from scalable.api.subscription_answers import (
    Sessions,
    assignments_body,
    moved_body,
    peeked_body,
    stats_body,
    subscription_body,
    topic_stats_body,
)
from scalable.api.subscription_bodies import (
    AssignmentsBody,
    CreateSubscriptionQuery,
    MovedBody,
    PeekedBody,
    PeekQuery,
    PreviewQuery,
    SeekQuery,
    SkipQuery,
    StartBody,
    SubscriptionsBody,
    SubscriptionStatsBody,
)
from scalable.api.topic_stats_bodies import ExtendedStatsBody, extension_of
from scalable.api.views.base import DoorView, body_of, topic_of
from scalable.domain.access import Right
from scalable.domain.errors import (
    InvalidParameter,
    PositionInvalid,
    ScalableError,
    SegmentNotFound,
    SegmentStoreMissing,
    SubscriptionNotFound,
    SubscriptionTypeMismatch,
    TopicNotFound,
)
from scalable.domain.subscriptions import SubscriptionType
from scalable.services import loads, peeking, seeking, subscription_stats, subscriptions, topics
from scalable.services.positions import AtPositions, AtTime, Start
from scalable.services.seeking import Moved
from scalable.store.subscriptions import SubscriptionView as StoredSubscription

POSITION_ERRORS: tuple[type[ScalableError], ...] = (SegmentNotFound, PositionInvalid, SegmentStoreMissing)
MOVE_ERRORS = (TopicNotFound, SubscriptionNotFound, SubscriptionTypeMismatch)


class SubscriptionsView(DoorView):
    """The subscriptions of a topic."""

    tag = "Subscriptions"
    doors = {
        "GET": Door(
            summary="List subscriptions",
            right=Right.LOOKUP,
            answers={200: SubscriptionsBody},
            errors=(TopicNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        found = subscriptions.list_subscriptions(name=topic_of(path))
        return Response({"subscriptions": [subscription_body(each) for each in found]})


class SubscriptionView(DoorView):
    """One subscription."""

    tag = "Subscriptions"
    doors = {
        "PUT": Door(
            summary="Create a subscription on every segment; one that exists stays as it is",
            right=Right.CONSUME,
            query=CreateSubscriptionQuery,
            body=StartBody,
            body_required=False,
            answers={204: None},
            errors=(TopicNotFound, SubscriptionTypeMismatch, *POSITION_ERRORS),
        ),
        "GET": Door(
            summary="Get a subscription with its backlog and its consumers",
            right=Right.LOOKUP,
            answers={200: SubscriptionStatsBody},
            errors=(TopicNotFound, SubscriptionNotFound),
        ),
        "DELETE": Door(
            summary="Delete a subscription with its position; its consumers end",
            right=Right.CONSUME,
            answers={204: None},
            errors=(TopicNotFound, SubscriptionNotFound),
        ),
    }

    def put(self, request: Request, **path: str) -> Response:
        query = self.query(CreateSubscriptionQuery)
        subscriptions.create_subscription(
            name=topic_of(path),
            subscription=path["subscription"],
            kind=SubscriptionType(query.type),
            start=_only_start(request, query) or "earliest",
            key_shared=query.key_shared,
            holds_pruning=query.holds_pruning,
        )
        return Response(status=204)

    def get(self, request: Request, **path: str) -> Response:
        stats = subscription_stats.subscription_stats(name=topic_of(path), subscription=path["subscription"])
        told = answer_of_leader(request, stats.leader_url)
        return told or Response(stats_body(stats, sessions_of(stats.subscription)))

    def delete(self, request: Request, **path: str) -> Response:
        subscriptions.delete_subscription(name=topic_of(path), subscription=path["subscription"])
        return Response(status=204)


class AssignmentsView(DoorView):
    """Who reads what of a subscription."""

    tag = "Subscriptions"
    doors = {
        "GET": Door(
            summary="Get the consumers of a subscription with what they own",
            right=Right.ADMIN,
            answers={200: AssignmentsBody},
            errors=(TopicNotFound, SubscriptionNotFound),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        view = subscription_stats.assignments(name=topic_of(path), subscription=path["subscription"])
        told = answer_of_leader(request, view.membership.leader_url)
        return told or Response(assignments_body(view, sessions_of(view.subscription)))


class SeekView(DoorView):
    """Where a subscription goes on."""

    tag = "Subscriptions"
    doors = {
        "POST": Door(
            summary="Go on from a time or from positions, in all segments or in none",
            right=Right.CONSUME,
            query=SeekQuery,
            body=StartBody,
            body_required=False,
            answers={200: MovedBody, 204: None},
            errors=(*MOVE_ERRORS, *POSITION_ERRORS),
        ),
    }

    def post(self, request: Request, **path: str) -> Response:
        query = self.query(SeekQuery)
        start = _only_start(request, query)
        if start is None:
            raise InvalidParameter(
                parameter="timestamp", value=None, problem="give it, or positions in the body"
            )
        return answer_move(
            seeking.seek(
                name=topic_of(path), subscription=path["subscription"], start=start, preview=query.preview
            )
        )


class SkipAllView(DoorView):
    """The whole backlog of a subscription."""

    tag = "Subscriptions"
    doors = {
        "POST": Door(
            summary="Skip all messages that there are",
            right=Right.CONSUME,
            query=PreviewQuery,
            answers={200: MovedBody, 204: None},
            errors=MOVE_ERRORS,
        ),
    }

    def post(self, request: Request, **path: str) -> Response:
        preview = self.query(PreviewQuery).preview
        return answer_move(
            seeking.clear_backlog(name=topic_of(path), subscription=path["subscription"], preview=preview)
        )


class SkipView(DoorView):
    """The next messages of a subscription, passed over."""

    tag = "Subscriptions"
    doors = {
        "POST": Door(
            summary="Skip the next messages, those of ancestors first",
            right=Right.CONSUME,
            query=SkipQuery,
            answers={200: MovedBody, 204: None},
            errors=MOVE_ERRORS,
        ),
    }

    def post(self, request: Request, **path: str) -> Response:
        query = self.query(SkipQuery)
        return answer_move(
            seeking.skip(
                name=topic_of(path),
                subscription=path["subscription"],
                count=query.count,
                preview=query.preview,
            )
        )


class PeekView(DoorView):
    """The next messages of a subscription, looked at."""

    tag = "Subscriptions"
    doors = {
        "GET": Door(
            summary="Look at the next messages; nothing is moved",
            right=Right.CONSUME,
            query=PeekQuery,
            answers={200: PeekedBody},
            errors=(TopicNotFound, SubscriptionNotFound),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        count = self.query(PeekQuery).count
        peeked = peeking.peek(name=topic_of(path), subscription=path["subscription"], count=count)
        return Response(peeked_body(peeked))


class TopicStatsView(DoorView):
    """A topic in numbers."""

    tag = "Subscriptions"
    doors = {
        "GET": Door(
            summary="Get a topic's rates, its subscriptions, and which segments wait for which",
            right=Right.LOOKUP,
            answers={200: ExtendedStatsBody},
            errors=(TopicNotFound,),
        ),
    }

    def get(self, request: Request, **path: str) -> Response:
        name = topic_of(path)
        stats = subscription_stats.topic_stats(name=name)
        told = answer_of_leader(request, stats.leader_url)
        if told is not None:
            return told
        extension = extension_of(loads.topic_loads(name=name), topics.effective_policy(name=name))
        return Response(topic_stats_body(stats, sessions_of) | extension)


def sessions_of(subscription: StoredSubscription) -> Sessions:
    """Give what this node, if it leads the topic, knows of a subscription's sessions."""

    def state(consumer: str) -> SessionState:
        return node.leader.state(subscription.incarnation, (subscription.subscription_id, consumer))

    return state


def answer_move(moved: Moved) -> Response:
    """Answer what a preview found, or that it is done."""
    return Response(status=204) if moved.applied else Response(moved_body(moved))


def _only_start(request: Request, query: CreateSubscriptionQuery | SeekQuery) -> Start | None:
    """Read where to begin, which is told in one way or not at all; raises InvalidParameter."""
    starts: list[Start] = []
    if query.timestamp is not UNSET:
        starts.append(AtTime(query.timestamp))
    if isinstance(query, CreateSubscriptionQuery) and query.initial_position is not UNSET:
        starts.append(query.initial_position)
    if request._request.body.strip():
        body = body_of(request, StartBody)
        positions = {int(key): position for key, position in body.positions.items()}
        starts.append(AtPositions(positions, None if body.incarnation is UNSET else body.incarnation))
    if len(starts) > 1:
        problem = "a time, positions and an initial position exclude one another"
        by_time = query.timestamp is not UNSET
        parameter, value = ("timestamp", query.timestamp) if by_time else ("initialPosition", starts[0])
        raise InvalidParameter(parameter=parameter, value=value, problem=problem)
    return starts[0] if starts else None
