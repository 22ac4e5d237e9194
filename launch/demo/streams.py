"""The streams that the demo can send, and what is hot in each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from launch.demo.events import Event
from launch.demo.flights import TOTAL_FLIGHTS, read_flights
from launch.demo.weather import TOTAL_OBSERVATIONS, read_weather
from scalable.domain.names import TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A table as a stream of events.

    `segment_share` of the hot rate is what one segment may carry, `lasting_share` is how much of it is sent
    while splits are late.
    """

    title: str
    topic: TopicName
    total: int
    read: Callable[[int], Iterator[Event]]
    segment_share: float
    lasting_share: float
    min_segments: int


FLIGHTS = Stream(
    title="Flights from New York, 2013",
    topic=TopicName("public", "default", "flights"),
    total=TOTAL_FLIGHTS,
    read=read_flights,
    # Thousands of keys: four to eight segments are needed, and three stay hot in between.
    segment_share=1 / 6,
    lasting_share=0.45,
    min_segments=2,
)
WEATHER = Stream(
    title="Weather in New York, 2013",
    topic=TopicName("public", "default", "weather"),
    total=TOTAL_OBSERVATIONS,
    read=read_weather,
    # Three keys of a third each: a segment carries one of them, and two are too much.
    segment_share=0.4,
    lasting_share=0.9,
    min_segments=1,
)
STREAMS: Mapping[str, Stream] = {"flights": FLIGHTS, "weather": WEATHER}
