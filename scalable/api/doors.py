"""A door: all about one method of one REST path; the checks and the OpenAPI description come from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scalable.api.serializers import Query
from scalable.domain.access import Level, Right
from scalable.domain.errors import (
    BodyTooSlow,
    CrossSiteRequest,
    Forbidden,
    IdempotencyKeyBusy,
    IdempotencyKeyReused,
    IdempotencyKeysFull,
    Internal,
    InvalidName,
    InvalidParameter,
    MessageTooLarge,
    ReadOnly,
    ScalableError,
    TooManyRequests,
    Unauthenticated,
    Unavailable,
    UnknownField,
    UnreadableBody,
)

COMMON_ERRORS: tuple[type[ScalableError], ...] = (
    InvalidName,
    InvalidParameter,
    UnknownField,
    UnreadableBody,
    Unauthenticated,
    Forbidden,
    CrossSiteRequest,
    TooManyRequests,
    Internal,
    Unavailable,
    ReadOnly,
)
"""What every door may refuse with."""

BODY_ERRORS: tuple[type[ScalableError], ...] = (BodyTooSlow, MessageTooLarge)
"""What a door may refuse with that reads a body."""

KEY_ERRORS: tuple[type[ScalableError], ...] = (IdempotencyKeyBusy, IdempotencyKeyReused, IdempotencyKeysFull)
"""What a door may refuse with that takes idempotency keys."""


class NoQuery(Query):
    """No parameter is known."""


@dataclass(frozen=True, slots=True)
class Door:
    """Who may enter, what is read, what is answered, and how it is refused.

    `answers` maps each status of success to the type of its body (None: none, bytes: octets, str: text).
    `errors` are the refusals beside those that every door has. `body` is the type that is read; None allows
    no body.
    """

    summary: str
    right: Right
    answers: Mapping[int, Any]
    errors: tuple[type[ScalableError], ...] = ()
    query: type[Query] = NoQuery
    body: Any = None
    body_required: bool = True
    level: Level = Level.TOPIC
    """Where the right must hold: in what the path names, down to this level."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers of the answer that carry something, with what they carry."""

    of_machinery: bool = False
    """Whether the product's own pipeline reports by it what it saw, and changes nothing that users made."""

    only_asks: bool = False
    """Whether nothing is changed by it though it is a POST, for what is asked comes in a body."""

    keeps_answer: bool = True
    """Whether an answer may be kept for an idempotency key: none that holds a secret."""

    def takes_keys(self, method: str) -> bool:
        """Tell whether a request by this method may come with an idempotency key."""
        return method not in {"GET", "HEAD"} and self.keeps_answer

    def changes(self, method: str, query: Query | None = None) -> bool:
        """Tell whether a request changes what users made: no preview does, nor what reports load."""
        reads = method in {"GET", "HEAD"} or self.only_asks or getattr(query, "preview", False)
        return not reads and not self.of_machinery
