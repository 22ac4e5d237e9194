"""The blocks of code of a page, and the files beside it that say the same."""

from __future__ import annotations

import configparser
import re
import shlex
from pathlib import Path
from typing import Any

import yaml

from tests.tidy.sources import ROOT

DEPLOYMENT = ROOT / "docs" / "deployment.md"
UNITS = ROOT / "deploy" / "systemd"
COMPOSE = ROOT / "deploy" / "container" / "compose.yaml"
BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
PROCESSES = {
    "node": "uvicorn",
    "worker": "tasks.app --quiet worker",
    "beat": "tasks.app --quiet beat",
    "load-report": "spark.load_report",
}
"""The processes of an installation, and by what a command is known to start one."""


def blocks(language: str) -> list[str]:
    """Give the blocks of the page in a language, in their order."""
    return [
        found["text"] for found in BLOCK.finditer(DEPLOYMENT.read_text()) if found["language"] == language
    ]


def block_of(process: str) -> str:
    """Give the block that starts a process."""
    (found,) = [text for text in blocks("bash") if PROCESSES[process] in text]
    return found


def words_of(command: str) -> list[str]:
    """Give the words of a command without the interpreter; options and values apart."""
    words = shlex.split(re.sub(r"\\\n", " ", command))
    while words and words[0].rpartition("/")[2] != "python":
        words = words[1:]
    return [part for word in words[1:] for part in (word.split("=", 1) if word.startswith("--") else [word])]


def command_of_page(process: str) -> list[str]:
    """Give the words of the command that the page starts a process with."""
    return words_of(block_of(process).partition("exec ")[2])


def unit_of(process: str) -> configparser.SectionProxy:
    """Give what a unit says of its service; of lines with one key the last counts here."""
    (path,) = UNITS.glob(f"scalable-topics-{process}*.service")
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(re.sub(r"\\\n\s*", "", path.read_text()))
    return parser["Service"]


def service_of(process: str) -> dict[str, Any]:
    """Give what the sketch of an installation says of a process."""
    services: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
    return services[process]


def as_options(words: list[str]) -> list[str]:
    """Give words in a form in which spellings of one command are equal."""
    spelled = ["--app" if word == "-A" else word for word in words]
    return sorted(part.replace("\n", "") for part in spelled)


def files_copied(containerfile: Path) -> list[str]:
    """Give the files and folders that an image is made of."""
    lines = [
        line.split()[1:-1] for line in containerfile.read_text().splitlines() if line.startswith("COPY ")
    ]
    return [name for names in lines for name in names]
