"""The load samples that nodes publish, as rows: parsed by Spark itself, without Python in the way."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

SAMPLES_TOPIC = "topic://system/load/samples"
PARTS = 32
MOST_KEYS = 64
LONGEST_INTERVAL_MS = 3_600_000
LONGEST_WINDOW_MS = 86_400_000
LATEST_MS = 253_402_300_799_000
"""The last second of the year 9999, after which no load can be reported."""
MOST = 2**53
"""Of what is counted: sums of it are exact, and fit."""

MESSAGE_SCHEMA = (
    "node string, sequence bigint, atMs bigint, everyMs bigint, complete boolean,"
    " samples array<struct<topic string, incarnation bigint, segmentId bigint, intervalMs bigint,"
    " everyMs bigint, windowMs bigint, msgIn bigint, bytesIn bigint, msgOut bigint, bytesOut bigint,"
    " parts array<bigint>, hotKeys struct<seen bigint, error bigint, counts map<string, bigint>>>>"
)
_PLACE = ("segment_id", "offset")
_COUNTS = ("msgIn", "bytesIn", "msgOut", "bytesOut")
_TIMES = ("intervalMs", "everyMs", "windowMs")
_FIELDS = ("topic", "incarnation", "segmentId", *_TIMES, *_COUNTS, "parts", "hotKeys")
_TOPIC = r"\Atopic://[^/]+/[^/]+/[^/]+\z"


def sample_rows(messages: DataFrame) -> DataFrame:
    """One row a sample, with its message's node, sequence and time, and the message's place in the topic.

    A message without samples (a completeness mark alone) gives one row whose `topic` is null, and so does
    each sample that breaks a rule of the format, which is `broken`; a message that cannot be read at all
    gives one whose `node` is null. `every_ms` is null in what nodes of an earlier version tell.
    """
    message = sf.from_json(sf.col("value").cast("string"), MESSAGE_SCHEMA)
    parsed = messages.select("segment_id", "offset", message.alias("message"))
    parsed = parsed.select("segment_id", "offset", "message.*")
    complete = sf.col("node").isNotNull() & (sf.col("sequence") >= 0) & sf.col("atMs").between(1, LATEST_MS)
    complete &= sf.col("complete").isNotNull()
    marks = parsed.select(
        sf.when(complete, sf.col("node")).alias("node"),
        *_PLACE,
        "sequence",
        "complete",
        sf.col("atMs").alias("at_ms"),
        sf.col("everyMs").alias("every_ms"),
        sf.posexplode_outer("samples").alias("number", "sample"),
    )
    valid = sf.coalesce(_is_valid(), sf.lit(False))
    broken = (sf.col("number").isNotNull() & ~valid).alias("broken")
    sample = sf.when(valid, sf.col("sample"))
    head = (*_PLACE, "node", "sequence", "at_ms", "every_ms", "complete")
    return marks.select(*head, broken, *(sample[field].alias(field) for field in _FIELDS))


def _is_valid() -> Column:
    sample = sf.col("sample")
    valid = sf.col("node").isNotNull() & sample["topic"].rlike(_TOPIC)
    valid &= (sample["incarnation"] >= 0) & (sample["segmentId"] >= 0)
    valid &= sample["intervalMs"].between(1, LONGEST_INTERVAL_MS)
    valid &= sample["intervalMs"] <= sf.col("at_ms")
    every_ms = sample["everyMs"]
    valid &= every_ms.isNull() | every_ms.between(1, LONGEST_INTERVAL_MS)
    valid &= sample["windowMs"].between(1, LONGEST_WINDOW_MS)
    for count in _COUNTS:
        valid &= sample[count].between(0, MOST)
    parts = sample["parts"]
    counted = sf.forall(parts, lambda part: part.between(0, MOST))
    return valid & _has_valid_keys() & (sf.size(parts) == PARTS) & counted


def _has_valid_keys() -> Column:
    """Nodes of an earlier version tell no keys."""
    keys = sf.col("sample")["hotKeys"]
    counted = sf.size(keys["counts"]).between(0, MOST_KEYS)
    counted &= sf.forall(sf.map_values(keys["counts"]), lambda count: count.between(0, MOST))
    return keys.isNull() | (keys["seen"].between(0, MOST) & keys["error"].between(0, MOST) & counted)
