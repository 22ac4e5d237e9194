"""Messages of load samples: what is said of many segments is told in several, each of which can be stored."""

from scalable.api.counters import SegmentCounts
from scalable.api.sample_feed import MAX_SAMPLES, KeyCounts, Sample, SampleFeed
from scalable.api.sampler import MOST_KEYS
from scalable.domain.sketch import LONGEST_KEY, shown
from scalable.wire.batch import decode_header

LONGEST_NAME = "\U0001f600" * 255
COUNT = 10**12


def sample(segment_id: int) -> Sample:
    """A sample than which none is longer."""
    counts = SegmentCounts()
    rest = "\x01" * (LONGEST_KEY - 1)  # six bytes each, as JSON
    counts.add_keys([shown(f"{number}{rest}") for number in range(MOST_KEYS)])
    assert counts.keys is not None
    return Sample(
        topic=f"topic://{LONGEST_NAME}/{LONGEST_NAME}/{LONGEST_NAME}",
        incarnation=COUNT,
        segment_id=segment_id,
        interval_ms=COUNT,
        every_ms=COUNT,
        window_ms=COUNT,
        msg_in=COUNT,
        bytes_in=COUNT,
        msg_out=COUNT,
        bytes_out=COUNT,
        parts=[COUNT] * 32,
        hot_keys=KeyCounts(seen=COUNT, error=COUNT, counts=counts.keys.counts),
    )


def test_a_message_can_be_stored_whatever_names_and_keys_are_like() -> None:
    feed = SampleFeed(node_id="n")
    feed.add([sample(COUNT + number) for number in range(MAX_SAMPLES + 1)], at_ms=COUNT, every_ms=COUNT)
    assert [decode_header(batch).count for _, batch in feed._backlog] == [1, 1]
