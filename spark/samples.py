"""The load samples that nodes publish, as rows: parsed by Spark itself, without Python in the way."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

SAMPLES_TOPIC = "topic://system/load/samples"
PARTS = 32
MOST_KEYS = 64
LONGEST_INTERVAL_MS = 3_600_000
LONGEST_WINDOW_MS = 86_400_000

MESSAGE_SCHEMA = (
    "node string, sequence bigint, atMs bigint, complete boolean, samples array<struct<topic string,"
    " incarnation bigint, segmentId bigint, intervalMs bigint, windowMs bigint, msgIn bigint, bytesIn bigint,"
    " msgOut bigint, bytesOut bigint, parts array<bigint>, hotKeys struct<seen bigint, error bigint,"
    " counts map<string, bigint>>>>"
)
_PLACE = ("segment_id", "offset")
_COUNTS = ("msgIn", "bytesIn", "msgOut", "bytesOut")
_FIELDS = ("topic", "incarnation", "segmentId", "intervalMs", "windowMs", *_COUNTS, "parts", "hotKeys")


def sample_rows(messages: DataFrame) -> DataFrame:
    """One row a sample, with its message's node, sequence and time, and the message's place in the topic.

    A message without samples (a completeness mark alone) gives one row whose `topic` is null, and so does
    each sample that breaks a rule of the format; a message that cannot be read at all gives one whose `node`
    is null.
    """
    message = sf.from_json(sf.col("value").cast("string"), MESSAGE_SCHEMA)
    parsed = messages.select("segment_id", "offset", message.alias("message"))
    parsed = parsed.select("segment_id", "offset", "message.*")
    complete = sf.col("node").isNotNull() & (sf.col("sequence") >= 0) & (sf.col("atMs") > 0)
    marks = parsed.select(
        sf.when(complete, sf.col("node")).alias("node"),
        *_PLACE,
        "sequence",
        "complete",
        sf.col("atMs").alias("at_ms"),
        sf.explode_outer("samples").alias("sample"),
    )
    sample = sf.when(_is_valid(), sf.col("sample"))
    return marks.select(
        *_PLACE, "node", "sequence", "at_ms", "complete", *(sample[field].alias(field) for field in _FIELDS)
    )


def _is_valid() -> Column:
    sample = sf.col("sample")
    valid = sf.col("node").isNotNull() & sample["topic"].isNotNull()
    valid &= (sample["incarnation"] >= 0) & (sample["segmentId"] >= 0)
    valid &= sample["intervalMs"].between(1, LONGEST_INTERVAL_MS)
    valid &= sample["windowMs"].between(1, LONGEST_WINDOW_MS)
    for count in _COUNTS:
        valid &= sample[count] >= 0
    parts = sample["parts"]
    return valid & _has_valid_keys() & (sf.size(parts) == PARTS) & sf.forall(parts, lambda part: part >= 0)


def _has_valid_keys() -> Column:
    """Nodes of an earlier version tell no keys."""
    keys = sf.col("sample")["hotKeys"]
    counted = sf.size(keys["counts"]).between(0, MOST_KEYS)
    counted &= sf.forall(sf.map_values(keys["counts"]), lambda count: count >= 0)
    return keys.isNull() | ((keys["seen"] >= 0) & (keys["error"] >= 0) & counted)
