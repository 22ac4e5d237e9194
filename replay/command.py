"""`./run replay`: play a trace by one or more rules."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from rich.console import Console

from replay import keys, picture, studies, synthetic, table, traces
from replay.profile import policy_of
from replay.run import RULES, load_named, replay
from replay.setup import Setup
from replay.traces import TraceUnreadable
from scalable.domain.errors import ScalableError
from scalable.domain.json_names import RepeatedName, unique_names
from scalable.domain.json_text import load_shallow_json
from scalable.domain.policy import parse_override, validate
from scalable.domain.profiles import PROFILES


def parser() -> argparse.ArgumentParser:
    """Describe the command's options; each number of the set-up is one."""
    shapes = ", ".join(synthetic.SHAPES)
    made = argparse.ArgumentParser(prog="./run replay", description=__doc__, allow_abbrev=False)
    made.add_argument(
        "--trace",
        metavar="F",
        action="append",
        help=f"CSV file (timestamp,value), a bundled trace ({', '.join(traces.bundled())}) or a made-up load "
        f"({shapes}); may be repeated; default: all bundled ones",
    )
    made.add_argument(
        "--profile", action="append", choices=RULES, help="may be repeated; default: that of --policy, or all"
    )
    made.add_argument(
        "--policy",
        type=Path,
        metavar="FILE",
        help="JSON override of policy fields, for profiles; one that names a profile is played on that, "
        "unless --profile is given",
    )
    made.add_argument("--keys", default="uniform", metavar="K", help="uniform, zipf:A or dominant:SHARE")
    made.add_argument("--json", action="store_true", help="one JSON object a line, no table")
    made.add_argument("--picture", type=Path, metavar="FILE.png", help="draw load, capacity and segments")
    made.add_argument("--study", choices=studies.STUDIES, help="a table of docs/autoscale.md, as Markdown")
    group = made.add_argument_group("set-up")
    for number in fields(Setup):
        kind = int if number.type == "int" else float
        name, text = f"--{number.name.replace('_', '-')}", number.metadata["help"]
        group.add_argument(
            name, type=kind, default=number.default, metavar="N", help=f"{text}; default: {number.default:g}"
        )
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; exit status 2 for what cannot be read."""
    options = parser().parse_args(argv)
    try:
        setup = Setup(**{number.name: getattr(options, number.name) for number in fields(Setup)})
        if options.study:
            for lines in _study(options)(setup):
                print(lines, end="", flush=True)
            return 0
        return _play(options, setup, _override(options.policy))
    except (TraceUnreadable, ScalableError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def _study(options: argparse.Namespace) -> Callable[[Setup], Iterator[str]]:
    """Give a study, which chooses traces, rules and keys itself; raises ValueError for others."""
    usual = parser().parse_args([])
    extra = [f"--{name}" for name in CHOICES if getattr(options, name) != getattr(usual, name)]
    if extra:
        raise ValueError(f"--study takes no {', '.join(extra)}")
    return studies.STUDIES[options.study]


CHOICES = ("trace", "profile", "policy", "keys", "json", "picture")


def _override(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8-sig")
        return parse_override(load_shallow_json(text, object_pairs_hook=unique_names))
    except RepeatedName as error:
        raise ValueError(f"{path.name}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path.name} is no JSON in UTF-8: {error}") from None


def _play(options: argparse.Namespace, setup: Setup, override: dict[str, Any]) -> int:
    spread = keys.parse(options.keys)
    named = override.pop("profile", None)
    rules = options.profile or ([named] if named else RULES)
    for name in rules:
        if name in PROFILES:
            validate(policy_of(name, override, setup.max_segments))
    results, drawn = [], []
    for name in options.trace or traces.bundled():
        load = load_named(name, setup)
        for rule in rules:
            result = replay(Path(name).stem, load, rule, setup=setup, keys=spread, override=override)
            results.append(result[0])
            drawn.append(result)
            if options.json:
                print(json.dumps(result[0].to_json()), flush=True)
    if not options.json:
        table.show(results, Console())
    if options.picture:
        picture.draw(drawn, options.picture)
    return 0
