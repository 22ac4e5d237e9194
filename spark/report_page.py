"""The daily load report as a page: one file, without scripts, with its pictures in it."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]
LOAD, CAPACITY, NEEDED = "#222222", "#2a78d6", "#d03b3b"
_HEADINGS = {
    "topics": "Topics, by waste (segment-hours over the minimum)",
    "segments": "Hot segments, by their highest minute",
    "keys": "Hot keys, by messages",
    "parts": "Hot parts of segments' ranges, by messages",
    "hours": "Completeness: minutes of each hour that have data",
}
_STYLE = """body{font:14px/1.5 system-ui,sans-serif;margin:2rem;color:#222}table{border-collapse:collapse}
th,td{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:right}
th:first-child,td:first-child{text-align:left;max-width:24rem;overflow-wrap:anywhere}
td:nth-child(2){max-width:24rem;overflow-wrap:anywhere}
.wide{overflow-x:auto}img{width:100%;min-width:44rem;max-width:70rem}p{max-width:60rem;overflow-wrap:anywhere}"""


def page(
    title: str,
    tables: Mapping[str, Rows],
    picture: bytes,
    *,
    segment_rate: float,
    unreadable: Sequence[str] = (),
) -> str:
    """Write the page; `unreadable` are the files that it could not take account of."""
    image = base64.b64encode(picture).decode()
    drawn = (
        f'<div class="wide"><img alt="Load and segments by hour" src="data:image/png;base64,{image}"></div>'
        if picture
        else ""
    )
    body = "".join(f"<h2>{_HEADINGS[name]}</h2>{_table(rows)}" for name, rows in tables.items())
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"<p>{_completeness(tables.get('hours', ()), unreadable)}</p>"
        f"<p>{_note(segment_rate)}</p>{drawn}{body}"
        "</body></html>\n"
    )


def _completeness(hours: Rows, unreadable: Sequence[str]) -> str:
    """Say of how much of the day the page tells."""
    told = sum(hour["minutes_with_data"] for hour in hours)
    of_day = 60 * len(hours)
    text = f"{told:,} of the day's {of_day:,} minutes have data." if hours else ""
    if unreadable:
        text += f" Files that cannot be read are left out ({len(unreadable):,}): {', '.join(unreadable)}."
    return escape(text, quote=False)


def _note(segment_rate: float) -> str:
    return (
        f"One segment is taken to carry {segment_rate:,.0f} messages/s. Skew is the hottest segment over the "
        "mean, 1 is even; the trend is messages/s an hour. Minutes without a message are not in the history. "
        "Nodes count all messages by 1/32 of a segment's range, and look at the keys of some: of the messages"
        " that were looked at, a key's share is between the two bounds."
    )


def _table(rows: Rows) -> str:
    if not rows:
        return "<p>Nothing was recorded.</p>"
    head = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in rows[0])
    lines = ("".join(f"<td>{_cell(value)}</td>" for value in row.values()) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(value: object) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() else f"{value:,.2f}"
    return escape(str(value))


def draw(quarters: Rows, segment_rate: float) -> bytes:
    """Draw load and capacity of each topic over the day, as a PNG; nothing for no rows."""
    topics = [(key, list(rows)) for key, rows in groupby(quarters, key=_topic)]
    if not topics:
        return b""
    figure = Figure(figsize=(11, 2.6 * len(topics)), layout="constrained")
    for axes, (key, rows) in zip(figure.subplots(len(topics), squeeze=False)[:, 0], topics, strict=True):
        _draw_topic(axes, rows, segment_rate)
        axes.set_title(key[0], fontsize=10, loc="left", parse_math=False)  # names may have dollar signs
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=100, format="png")
    return buffer.getvalue()


def _topic(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["topic"], row["incarnation"]


def _draw_topic(axes: Axes, rows: Rows, segment_rate: float) -> None:
    hours = [row["quarter"] % 96 / 4 for row in rows]
    for name, colour, label in (("segments", CAPACITY, "capacity"), ("needed", NEEDED, "the minimum")):
        capacity = [row[name] * segment_rate for row in rows]
        axes.step(hours, capacity, where="mid", color=colour, lw=1, label=label)
    axes.plot(hours, [row["msg_rate_in"] for row in rows], color=LOAD, lw=1.2, marker=".", label="load, mean")
    axes.plot(
        hours, [row["highest"] for row in rows], color=LOAD, lw=0.6, ls=":", label="load, highest minute"
    )
    axes.set_xlim(0, 24)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("messages/s")
    axes.set_xlabel("hour (UTC)")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize=8, frameon=False)
