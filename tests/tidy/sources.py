"""The product's own files, as the tidy tests read them."""

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PRODUCT = ("scalable", "tasks", "spark", "webui", "launch", "bench")
LOOSE_FILES = ("manage.py", "run")
TEXT_SUFFIXES = {
    *{".css", ".html", ".js", ".md", ".mjs", ".py", ".sh", ".sql", ".svg", ".toml", ".txt", ".yaml", ".yml"},
    "",
}
SKIPPED_FOLDERS = {"__pycache__", "artifacts", "spark-warehouse", "metastore_db", "node_modules"}


@dataclass(frozen=True)
class Source:
    """One file: its path relative to the root, and its text."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def module(self) -> str:
        """Return the dotted name of a Python file."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def paths() -> Iterator[Path]:
    """Yield every file and folder of the product, hidden ones aside (but with `.ci`)."""
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            name
            for name in sorted(folders)
            if (not name.startswith(".") or name == ".ci") and name not in SKIPPED_FOLDERS
        ]
        yield from (Path(folder, name) for name in (*folders, *sorted(names)))


def text_files() -> Iterator[Source]:
    """Yield every text file of the product."""
    for path in paths():
        if path.suffix in TEXT_SUFFIXES and path.is_file() and not path.name.startswith("."):
            yield Source(path.relative_to(ROOT).as_posix(), path.read_text(errors="replace"))


def python_files() -> list[Source]:
    """Return the Python files of product and tests."""
    return [source for source in text_files() if source.path.endswith(".py") or source.path in LOOSE_FILES]


def documents() -> list[Source]:
    """Return the Markdown files."""
    return [source for source in text_files() if source.path.endswith(".md")]
