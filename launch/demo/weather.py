"""Weather at the three airports of New York, hour by hour in 2013, keyed by the airport."""

import csv
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter

from launch.demo.events import Event, event, table_file

TABLE = "weather.csv"
TOTAL_OBSERVATIONS = 26_115


def read_weather(count: int) -> Iterator[Event]:
    """Give the first observations by hour and airport."""
    with table_file(TABLE).open(newline="", encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=itemgetter("time_hour", "origin"))
    return (event(number, row, key="origin") for number, row in enumerate(islice(rows, count)))
