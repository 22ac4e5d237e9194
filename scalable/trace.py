"""What a log line and an entry of the audit are about: the request, the operation, whoever asks.

Held per task or thread; whatever runs a function on another thread copies the context (`api/executor.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

NOT_IMPLEMENTED = 501


@dataclass(frozen=True, slots=True)
class Trace:
    """Empty where there is none."""

    request_id: str = ""
    operation_id: str = ""
    actor: str = ""


_current: ContextVar[Trace] = ContextVar("scalable_trace", default=Trace())  # noqa: B039  (it is frozen)


def current() -> Trace:
    """Give what the running code is about."""
    return _current.get()


@contextmanager
def about(*, request_id: str = "", operation_id: str = "", actor: str = "") -> Iterator[None]:
    """Name what the block is about, beside what is named already."""
    named = {"request_id": request_id, "operation_id": operation_id, "actor": actor}
    token = _current.set(replace(_current.get(), **{key: value for key, value in named.items() if value}))
    try:
        yield
    finally:
        _current.reset(token)


def name_actor(actor: str) -> None:
    """Name whoever asks, for the rest of the running request."""
    _current.set(replace(_current.get(), actor=actor))


def clear() -> None:
    """Forget what the running code was about, where one context serves one thing after the other."""
    _current.set(Trace())


class TraceFilter(logging.Filter):
    """Puts `request_id`, `operation_id` and `actor` on each record, and `about` with all of them."""

    def filter(self, record: logging.LogRecord) -> bool:
        trace = current()
        record.request_id, record.operation_id, record.actor = (
            trace.request_id,
            trace.operation_id,
            trace.actor,
        )
        named = (("request", trace.request_id), ("operation", trace.operation_id), ("by", trace.actor))
        parts = [f"{name}={value}" for name, value in named if value]
        record.about = f" [{' '.join(parts)}]" if parts else ""
        return True


class WithoutQuery(logging.Filter):
    """Cuts the query off addresses in a line: somebody may have put a token there."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(_without_query(value) for value in record.args)
        return True


class CalmRefusals(logging.Filter):
    """Makes a warning in one line of what Django tells of a refused request: any stranger can cause those.

    Also of what is not supported (501), which is no fault either.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        status = getattr(record, "status_code", 0)
        if 400 <= status < 500 or status == NOT_IMPLEMENTED:
            record.exc_info = record.exc_text = None
            if record.levelno > logging.WARNING:
                record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


def _without_query(value: object) -> object:
    return value.partition("?")[0] if isinstance(value, str) and value.startswith("/") else value
