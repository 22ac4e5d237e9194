"""The options of the format `scalable-topic`, as texts that Spark hands over, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast
from uuid import uuid4

from scalable.domain.checkpoint import Checkpoint, checkpoint_from_json
from scalable.domain.json_text import load_shallow_json
from scalable.domain.names import TopicName
from spark.rest import NodeClient

FORMAT = "scalable-topic"
DEFAULT_MAX_MESSAGES = 10_000
DEFAULT_MAX_BYTES = 4 * 1024 * 1024
DEFAULT_PATIENCE_SECONDS = 60
NAME = re.compile(r"[a-zA-Z0-9._:-]{1,100}")
COMPRESSIONS = ("zstd", "none")
Compression = Literal["none", "zstd"]
Starting = Literal["earliest", "latest"] | Checkpoint


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a reader was asked for; see `spark.source`."""

    topic: TopicName
    node: NodeClient
    starting: Starting
    ending: Checkpoint | None
    max_messages: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a writer was asked for; see `spark.sink`. `producer` is None where the query names it."""

    topic: TopicName
    url: str
    token: str
    producer: str | None
    compression: Compression
    order: tuple[str, ...]
    timeout_seconds: int


def source_options(options: Mapping[str, str]) -> SourceOptions:
    """Read the options of a reader; raises ValueError, InvalidParameter."""
    token = _access(options)
    return SourceOptions(
        topic=TopicName.parse(options["topic"]),
        node=NodeClient(
            options["url"].rstrip("/"),
            token,
            patience_seconds=_positive(options, "patienceSeconds", DEFAULT_PATIENCE_SECONDS),
        ),
        starting=_starting(options.get("starting", "earliest")),
        ending=_ending(options.get("ending", "latest")),
        max_messages=_positive(options, "maxMessagesPerSegment", DEFAULT_MAX_MESSAGES),
        max_bytes=_positive(options, "maxBytesPerRequest", DEFAULT_MAX_BYTES),
    )


def sink_options(options: Mapping[str, str], *, named_by_query: bool) -> SinkOptions:
    """Read the options of a writer; raises ValueError.

    A batch that names no producer gets a name of its own, the same for all attempts of its tasks.
    """
    token = _access(options)
    compression = options.get("compression", COMPRESSIONS[0])
    if compression not in COMPRESSIONS:
        raise ValueError(f"compression is one of {', '.join(COMPRESSIONS)}, not {compression!r}")
    producer = options.get("producer")
    if producer is not None and not NAME.fullmatch(producer):
        raise ValueError(f"producer {producer!r} is no name: 1 to 100 of a-z, A-Z, 0-9, . _ : -")
    return SinkOptions(
        topic=TopicName.parse(options["topic"]),
        url=options["url"].rstrip("/"),
        token=token,
        producer=producer or (None if named_by_query else f"spark-{uuid4()}"),
        compression=cast("Compression", compression),
        order=tuple(name.strip() for name in options.get("orderBy", "").split(",") if name.strip()),
        timeout_seconds=_positive(options, "patienceSeconds", DEFAULT_PATIENCE_SECONDS),
    )


def _access(options: Mapping[str, str]) -> str:
    missing = [name for name in ("url", "topic") if not options.get(name)]
    if missing or not (options.get("token") or options.get("tokenFile")):
        raise ValueError(f"the format {FORMAT} needs the options url, topic, and token or tokenFile")
    return options.get("token") or Path(options["tokenFile"]).read_text().strip()


def _starting(text: str) -> Starting:
    match text.strip():
        case "earliest":
            return "earliest"
        case "latest":
            return "latest"
        case checkpoint if checkpoint.startswith("{"):
            return _checkpoint("starting", checkpoint)
        case _:
            raise ValueError(f"starting is earliest, latest or a checkpoint as JSON, not {text!r}")


def _ending(text: str) -> Checkpoint | None:
    if text.strip() == "latest":
        return None
    if text.strip().startswith("{"):
        return _checkpoint("ending", text)
    raise ValueError(f"ending is latest or a checkpoint as JSON, not {text!r}")


def _checkpoint(name: str, text: str) -> Checkpoint:
    try:
        return checkpoint_from_json(load_shallow_json(text))
    except ValueError as error:
        raise ValueError(f"{name} is not a checkpoint: {error}") from error


def _positive(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise ValueError(f"{name} is {text!r}, but must be a whole number of at least 1")
    return int(text)
