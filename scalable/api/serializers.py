"""What REST reads and answers, as types: strict about unknown fields, unknown parameters and every bound.

Names are those of the wire. The OpenAPI description is made from these types (`scalable.api.schema`).
"""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
from django.http import QueryDict
from msgspec import UNSET, Meta, UnsetType

from scalable.domain.errors import InvalidParameter, UnknownField, UnreadableBody
from scalable.domain.json_names import RepeatedName, refuse_repeated_names

MAX_BIGINT = 2**63 - 1
MAX_TIME_MS = 253_402_300_799_000
MAX_PAGE = 1_000
MAX_NAMES_PAGE = 10_000
MAX_BATCHES_BYTES = 8 * 1024 * 1024
_UNKNOWN_FIELD = "Object contains unknown field"
_WHOLE = re.compile(r"-?[0-9]+")
_Query = TypeVar("_Query", bound="Query")

Identifier = Annotated[int, Meta(ge=0, le=MAX_BIGINT)]
Boundary = Annotated[int, Meta(ge=-MAX_BIGINT, le=MAX_BIGINT)]
TimeMs = Annotated[int, Meta(ge=0, le=MAX_TIME_MS)]
TopicState = Literal["STEADY", "RESHAPING"]
PageSize = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
PropertyKey = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]
PropertyValue = Annotated[str, Meta(max_length=4096, pattern=r"^[^\x00]*$")]
Properties = Annotated[dict[PropertyKey, PropertyValue], Meta(max_length=100)]


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A JSON object that is read or answered."""


class Query(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The parameters behind the question mark."""


# Queries


class ListTopicsQuery(Query):
    """`property=key=value` may be repeated: all must hold."""

    property: list[str] = []
    limit: Annotated[int, Meta(ge=1, le=MAX_NAMES_PAGE)] = 1_000
    offset: Identifier = 0


class ListFiguresQuery(Query):
    """A page of the topics whose name contains `search`, in whatever case, and that have the properties.

    `property=key=value` may be repeated. `rate` is that of messages in, as last reported.
    """

    search: Annotated[str, Meta(max_length=255, pattern=r"^[^\x00]*$")] = ""
    property: list[str] = []
    state: TopicState | None = None
    sort: Literal["name", "created", "segments", "rate"] = "name"
    descending: bool = False
    limit: PageSize = 50
    offset: Identifier = 0


class CreateTopicQuery(Query):
    """With how many segments the topic begins."""

    num_initial_segments: Annotated[int, Meta(ge=-MAX_BIGINT, le=MAX_BIGINT)] = 1


class EpochQuery(Query):
    """The epoch that the caller saw; the request is refused when the layout has moved on."""

    expected_epoch: Identifier | UnsetType = UNSET

    @property
    def epoch(self) -> int | None:
        """The expected epoch, None for any."""
        return None if self.expected_epoch is UNSET else self.expected_epoch


class DeleteTopicQuery(EpochQuery):
    """`force` deletes although somebody is connected; `expectedEpoch` as elsewhere."""

    force: bool = False


class ReshapeQuery(EpochQuery):
    """The epoch that the caller saw: refused when the layout has moved on. `preview` changes nothing."""

    preview: bool = False


class RebucketQuery(ReshapeQuery):
    """How many entry buckets the segment is to have."""

    bucket_count: Annotated[int, Meta(ge=-MAX_BIGINT, le=MAX_BIGINT)] = 0


class ListOperationsQuery(Query):
    """A page, the newest first."""

    limit: PageSize = 100
    unfinished: bool = False


class ListDecisionsQuery(Query):
    """A page, the newest first, behind the decision with the id `before`."""

    limit: PageSize = 100
    before: Identifier | None = None


class BatchesQuery(Query):
    """Where to read, and about how many bytes at most (one batch comes even when it is larger).

    With an incarnation, only of this life of the topic's name.
    """

    offset: Identifier = 0
    max_bytes: Annotated[int, Meta(ge=1, le=MAX_BATCHES_BYTES)] = 1024 * 1024
    incarnation: Identifier | None = None


# Bodies that are read


class SplitBody(Body):
    """The first hashes of the second and later children, ascending; without them the range is halved."""

    boundaries: Annotated[list[Boundary], Meta(max_length=65_535)] | None = None


class MergeBody(Body):
    """Two or more neighbours."""

    segment_ids: Annotated[list[Identifier], Meta(max_length=65_536)]


# Bodies that are answered


class ErrorBody(Body):
    """Why a request was refused; `code` is stable, `fields` name what the sentence speaks of."""

    reason: str
    code: str
    fields: dict[str, Any]
    hint: str


class HashRangeBody(Body):
    """Inclusive 16-bit hashes."""

    start: Annotated[int, Meta(ge=0, le=65_535)]
    end: Annotated[int, Meta(ge=0, le=65_535)]


class SegmentBody(Body):
    """A node of the DAG; `sealedAtEpoch` is 0 and `sealedAtMs` -1 while it is ACTIVE."""

    segment_id: Identifier
    hash_range: HashRangeBody
    state: Literal["ACTIVE", "SEALED"]
    parent_ids: list[Identifier]
    child_ids: list[Identifier]
    created_at_epoch: int
    sealed_at_epoch: int
    created_at_ms: int
    sealed_at_ms: int
    entry_bucket_splits: list[Annotated[int, Meta(ge=1, le=65_535)]]


class TopicBody(Body):
    """A topic's metadata; `segments` by id."""

    name: str
    incarnation: int
    epoch: int
    revision: int
    next_segment_id: Identifier
    segments: dict[str, SegmentBody]
    properties: dict[str, str]
    auto_scale_policy: dict[str, Any] | None
    created_at_ms: int


class OperationBody(Body):
    """A split, merge or rebucket: its plan, how far it is, and how it ended."""

    operation_id: str
    kind: Literal["SPLIT", "MERGE", "REBUCKET"]
    topic: str
    phase: str
    outcome: Literal["SUCCEEDED", "ABORTED", "FAILED"] | None
    plan: dict[str, Any]
    actor: str
    reason: str
    created_at_ms: int
    finished_at_ms: int | None
    timings: dict[str, Any]
    error: dict[str, Any] | None
    epoch: int | None
    attempts: int


class OperationsBody(Body):
    """A page of operations, the newest first."""

    operations: list[OperationBody]


class DecisionsBody(Body):
    """A page of the autoscaler's decisions, the newest first; `next` is the next page's `before`."""

    decisions: list[dict[str, Any]]
    next: int | None


class EffectivePolicyBody(Body):
    """The resolved policy, where each field comes from, and which rules it breaks."""

    policy: dict[str, Any]
    sources: dict[str, str]
    violations: list[str]


class DecisionPreviewBody(Body):
    """What would be decided, and under which policy."""

    decision: dict[str, Any]
    policy: EffectivePolicyBody


class TopicFiguresBody(Body):
    """What a list shows of a topic."""

    name: str
    epoch: int
    active_segments: int
    sealed_segments: int
    created_at_ms: int
    state: TopicState
    msg_rate_in: float
    properties: dict[str, str]
    last_decision: dict[str, Any] | None


class TopicFiguresPage(Body):
    """A page of topics, and how many match: at least 10,000 when `totalExact` is false."""

    topics: list[TopicFiguresBody]
    total: int
    total_exact: bool


class PositionBody(Body):
    """Offsets of one segment and its place in the DAG."""

    start_offset: int
    end_offset: int
    state: Literal["ACTIVE", "SEALED"]
    terminated: bool
    parent_ids: list[Identifier]
    child_ids: list[Identifier]


class PositionsBody(Body):
    """Positions by segment id."""

    incarnation: int
    epoch: int
    segments: dict[str, PositionBody]


def read_body(data: bytes, shape: Any) -> Any:
    """Read a JSON body of a type; raises UnreadableBody, UnknownField."""
    try:
        body = msgspec.json.decode(data, type=shape)
        _check_names(data)
    except msgspec.ValidationError as error:
        _raise_unknown_field(error, shape)
        raise UnreadableBody(problem=str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, RepeatedName) as error:
        raise UnreadableBody(problem=_problem_of(data, error)) from error
    return body


def _problem_of(data: bytes, error: Exception) -> str:
    """Say what is wrong with a body: the decoder takes half of a surrogate pair for a truncated text."""
    try:
        json.dumps(json.loads(data), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return "a text has half of a surrogate pair, which is no character"
    except (ValueError, RecursionError):
        pass
    return str(error)


def _check_names(data: bytes) -> None:
    """Refuse an object that has a name twice; raises RepeatedName.

    Numbers are left as they are written: only the names count.
    """
    json.loads(data, object_pairs_hook=refuse_repeated_names, parse_int=str, parse_float=str, strict=False)


def read_query(parameters: QueryDict, shape: type[_Query]) -> _Query:
    """Read query parameters; raises InvalidParameter, UnknownField."""
    lists = {field.encode_name for field in msgspec.structs.fields(shape) if field.type == list[str]}
    values: dict[str, Any] = {}
    for name, given in parameters.lists():
        if name not in lists and len(given) > 1:
            raise InvalidParameter(parameter=name, value=given[:10], problem="it is given more than once")
        values[name] = given if name in lists else given[0]
    _check_given(values, shape)
    try:
        return msgspec.convert(values, shape, strict=False)
    except msgspec.ValidationError as error:
        _raise_unknown_field(error, shape)
        name = str(error).rpartition("$.")[2].rstrip("`")
        value = str(values.get(name, ""))[:100]
        raise InvalidParameter(parameter=name, value=value, problem=str(error)) from error


def _check_given(values: Mapping[str, Any], shape: type[Query]) -> None:
    """Refuse a text that would be taken for null, or for another number than it is written as.

    A parameter that is not meant is left out, and `5.0` or `5e0` is no whole number.
    """
    for field in msgspec.structs.fields(shape):
        value = values.get(field.encode_name)
        if not isinstance(value, str):
            continue
        if value.lower() == "null" and type(None) in get_args(field.type):
            raise InvalidParameter(parameter=field.encode_name, value=value, problem="it has no value")
        if _is_whole(field.type) and not _WHOLE.fullmatch(value):
            problem = "it is not a whole number"
            raise InvalidParameter(parameter=field.encode_name, value=value[:100], problem=problem)


def _is_whole(kind: Any) -> bool:
    """Tell whether whole numbers are read, also where they have bounds or may be left out."""
    return kind is int or any(map(_is_whole, get_args(kind)))


def _raise_unknown_field(error: msgspec.ValidationError, shape: Any) -> None:
    if str(error).startswith(_UNKNOWN_FIELD):
        field = str(error).split("`")[1][:100]
        known = [known.encode_name for known in msgspec.structs.fields(shape)]
        raise UnknownField(field=field, known=known) from error
