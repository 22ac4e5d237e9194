"""Names of topics and segments; numbers are those of the published test vectors of Pulsar 5.0."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalable.domain.errors import InvalidName, ScalableError
from scalable.domain.keyspace import FULL_RANGE, HashRange
from scalable.domain.names import SegmentName, TopicName, validate_part

TOPIC = TopicName("tenant", "ns", "my-topic")


def test_vector_35_segment_name_of_a_topic() -> None:
    name = SegmentName(TopicName.parse("topic://tenant/ns/my-topic"), HashRange(0, 0x7FFF), 1)
    assert str(name) == "segment://tenant/ns/my-topic/0000-7fff-1"
    assert name.descriptor == "0000-7fff-1"


def test_vector_36_parent_and_id_of_a_segment_name() -> None:
    name = SegmentName.parse("segment://tenant/ns/my-topic/0000-7fff-42")
    assert str(name.topic) == "topic://tenant/ns/my-topic"
    assert name.segment_id == 42


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("persistent://tenant/ns/my-topic", id="vector 37"),
        pytest.param("topic://tenant", id="vector 38c"),
        pytest.param("topic://tenant/namespace/", id="vector 38d"),
        "topic://a/b/c/d",
        "tenant/ns/x",
        "topic:///ns/x",
        "topic://tenant/../x",
    ],
)
def test_invalid_topic_names(text: str) -> None:
    with pytest.raises(InvalidName):
        TopicName.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("segment://tenant/namespace/my-topic", id="vector 38a"),
        pytest.param("segment://tenant/namespace/my-topic/bad-descriptor", id="vector 38b"),
        "segment://tenant/ns/x/0000-7fff-01",
        "segment://tenant/ns/x/0000-7fff--1",
        "segment://tenant/ns/x/8000-7fff-1",
        "segment://tenant/ns/x/y/0000-7fff-1",
        "topic://tenant/ns/x/0000-7fff-1",
    ],
)
def test_invalid_segment_names(text: str) -> None:
    with pytest.raises(ScalableError):
        SegmentName.parse(text)


@pytest.mark.parametrize("value", ["", ".", "..", "a/b", "a\nb", "\x00", "a\x7f", "\u2028", "x" * 256])
def test_invalid_parts_name_their_field(value: str) -> None:
    with pytest.raises(InvalidName) as caught:
        validate_part(value, "namespace")
    assert caught.value.field == "namespace"


@pytest.mark.parametrize("value", ["a", "...", "a b", "a:b", "%2F", "Grüße", "主题", "x" * 255])
def test_valid_parts_come_back_unchanged(value: str) -> None:
    assert validate_part(value, "topic") == value


parts = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters="/"), min_size=1
)
valid_parts = parts.filter(lambda text: text not in {".", ".."} and len(text) <= 255)


@given(valid_parts, valid_parts, valid_parts, st.integers(0, 10**12))
def test_names_come_back_from_their_text(tenant: str, namespace: str, name: str, segment_id: int) -> None:
    topic = TopicName(tenant, namespace, name)
    assert TopicName.parse(str(topic)) == topic
    segment = SegmentName(topic, FULL_RANGE, segment_id)
    assert SegmentName.parse(str(segment)) == segment
