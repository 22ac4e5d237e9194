"""Names of topics and segments, as `topic://tenant/namespace/name` and `segment://.../0000-7fff-1`."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from scalable.domain.errors import InvalidName
from scalable.domain.keyspace import HashRange

MAX_NAME_LENGTH = 255
TOPIC_SCHEME = "topic://"
SEGMENT_SCHEME = "segment://"
_DESCRIPTOR = re.compile(r"(?P<hex>[0-9a-f]{4}-[0-9a-f]{4})-(?P<segment_id>0|[1-9][0-9]{0,17})")
_INVISIBLE = frozenset({"Cc", "Cs", "Zl", "Zp"})


def validate_part(value: str, field: str) -> str:
    """Return a tenant, namespace, topic, subscription or consumer name unchanged; raises InvalidName."""
    problem = _problem_of(value)
    if problem:
        raise InvalidName(field=field, value=value[:MAX_NAME_LENGTH], problem=problem)
    return value


def _problem_of(value: str) -> str | None:
    if not 1 <= len(value) <= MAX_NAME_LENGTH:
        return f"it has {len(value)} characters"
    if "/" in value:
        return "it contains '/'"
    if value in {".", ".."}:
        return "it is a path step"
    if not value.isprintable() and any(unicodedata.category(each) in _INVISIBLE for each in value):
        return "it contains a control character"
    return None


def _without_scheme(text: str, scheme: str, field: str) -> list[str]:
    if not text.startswith(scheme):
        raise InvalidName(
            field=field, value=text[:MAX_NAME_LENGTH], problem=f"it does not begin with {scheme}"
        )
    return text.removeprefix(scheme).split("/")


@dataclass(frozen=True, slots=True, order=True)
class NamespaceName:
    """The full name of a namespace; raises InvalidName when a part is invalid."""

    tenant: str
    namespace: str

    def __post_init__(self) -> None:
        validate_part(self.tenant, "tenant")
        validate_part(self.namespace, "namespace")

    def __str__(self) -> str:
        return self.path

    @property
    def path(self) -> str:
        """Give `tenant/namespace`."""
        return f"{self.tenant}/{self.namespace}"

    @classmethod
    def parse(cls, text: str) -> NamespaceName:
        """Read `tenant/namespace`; raises InvalidName."""
        parts = text.split("/")
        if len(parts) != 2:
            raise InvalidName(field="namespace name", value=text, problem="it has not two parts")
        return cls(*parts)


@dataclass(frozen=True, slots=True, order=True)
class TopicName:
    """The full name of a topic; raises InvalidName when a part is invalid."""

    tenant: str
    namespace: str
    name: str

    def __post_init__(self) -> None:
        for field, value in (("tenant", self.tenant), ("namespace", self.namespace), ("topic", self.name)):
            validate_part(value, field)

    def __str__(self) -> str:
        return f"{TOPIC_SCHEME}{self.path}"

    @property
    def path(self) -> str:
        """Give `tenant/namespace/name`, without the scheme."""
        return f"{self.tenant}/{self.namespace}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> TopicName:
        """Read `topic://tenant/namespace/name`; raises InvalidName."""
        parts = _without_scheme(text, TOPIC_SCHEME, "topic name")
        if len(parts) != 3:
            raise InvalidName(field="topic name", value=text, problem="it has not three parts")
        return cls(*parts)


SAMPLES_TOPIC = TopicName("system", "load", "samples")
"""Where nodes publish what they measure, and the load pipeline begins."""


@dataclass(frozen=True, slots=True, order=True)
class SegmentName:
    """The full name of a segment: its topic, range and id."""

    topic: TopicName
    hash_range: HashRange
    segment_id: int

    def __str__(self) -> str:
        return f"{SEGMENT_SCHEME}{self.topic.path}/{self.descriptor}"

    @property
    def descriptor(self) -> str:
        """Give the last part of the name, as in `0000-7fff-1`."""
        return f"{self.hash_range.hex}-{self.segment_id}"

    @classmethod
    def parse(cls, text: str) -> SegmentName:
        """Read `segment://tenant/namespace/name/0000-7fff-1`; raises InvalidName, InvalidRange."""
        parts = _without_scheme(text, SEGMENT_SCHEME, "segment name")
        match = _DESCRIPTOR.fullmatch(parts[-1])
        if len(parts) != 4 or match is None:
            raise InvalidName(field="segment name", value=text, problem="it has no topic and descriptor")
        return cls(TopicName(*parts[:3]), HashRange.parse_hex(match["hex"]), int(match["segment_id"]))
