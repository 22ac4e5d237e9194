"""A page of a namespace's topics with their figures, in a constant number of statements."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from django.db.models import Exists, OuterRef, QuerySet

from scalable.models import Operation, Topic
from scalable.store import decisions
from scalable.store.clock import milliseconds
from scalable.store.decisions import DecisionView
from scalable.store.topics import namespace_id

COUNTED = 10_000
"""Beyond so many matches of a filter nobody counts on."""
_COLUMNS = {"name": "name", "created": "created_at", "segments": "active_segments", "rate": "msg_rate_in"}
SORTS = frozenset(_COLUMNS)


@dataclass(frozen=True, slots=True)
class TopicFigures:
    """What a list shows of a topic; `last_decision` is the newest one that the journal keeps.

    `reshaping`: a split, merge or rebucket is under way. `msg_rate_in` is as of the last load reported.
    """

    name: str
    epoch: int
    active_segments: int
    sealed_segments: int
    created_at_ms: int
    last_decision: DecisionView | None
    reshaping: bool
    msg_rate_in: float
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which topics a list shows: part of the name in whatever case, properties, state; and in which order."""

    search: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    reshaping: bool | None = None
    sort: str = "name"
    descending: bool = False

    @property
    def is_filtered(self) -> bool:
        """True when not every topic is shown."""
        return bool(self.search or self.properties or self.reshaping is not None)


@dataclass(frozen=True, slots=True)
class Page:
    """A page, and how many topics match: at least so many, unless that is exact."""

    topics: list[TopicFigures]
    total: int
    exact: bool


def page(*, tenant: str, namespace: str, wanted: Wanted, limit: int, offset: int) -> Page:
    """Give a page of topics; ties are in the order of names. Raises NamespaceNotFound."""
    rows = _matching(Topic.objects.filter(namespace_id=namespace_id(tenant, namespace)), wanted)
    shown = list(_sorted(rows, wanted).annotate(reshaping=_unfinished())[offset : offset + limit])
    decided = decisions.last_of([row.pk for row in shown])
    figures = [_figures(row, decided.get(row.pk)) for row in shown]
    if not wanted.is_filtered:
        return Page(figures, rows.count(), exact=True)
    total = rows.order_by()[: COUNTED + 1].count()
    return Page(figures, min(total, COUNTED), exact=total <= COUNTED)


def _matching(rows: QuerySet[Topic], wanted: Wanted) -> QuerySet[Topic]:
    if wanted.search:
        rows = rows.filter(name__icontains=wanted.search)
    if wanted.properties:
        rows = rows.filter(properties__contains=dict(wanted.properties))
    if wanted.reshaping is not None:
        rows = rows.filter(_unfinished() if wanted.reshaping else ~_unfinished())
    return rows


def _unfinished() -> Exists:
    return Exists(Operation.objects.filter(topic_id=OuterRef("pk"), outcome=None))


def _sorted(rows: QuerySet[Topic], wanted: Wanted) -> QuerySet[Topic]:
    columns = dict.fromkeys((_COLUMNS[wanted.sort], "name"))
    sign = "-" if wanted.descending else ""
    return rows.order_by(*(f"{sign}{column}" for column in columns))


def _figures(row: Topic, decision: DecisionView | None) -> TopicFigures:
    return TopicFigures(
        name=row.name,
        epoch=row.epoch,
        active_segments=row.active_segments,
        sealed_segments=row.sealed_segments,
        created_at_ms=milliseconds(row.created_at),
        last_decision=decision,
        reshaping=row.reshaping,  # type: ignore[attr-defined]
        msg_rate_in=row.msg_rate_in,
        properties=row.properties,
    )
