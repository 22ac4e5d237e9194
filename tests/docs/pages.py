"""Pages of the documentation: their sections, tables and names."""

import re

from tests.tidy.sources import ROOT

__all__ = ["ROOT", "names", "page", "rows", "section"]

NAME = re.compile(r"`([^`]+)`")
CELL_END = re.compile(r"(?<!\\)\|")


def page(name: str) -> str:
    """Give the text of `docs/<name>.md`."""
    return (ROOT / "docs" / f"{name}.md").read_text()


def section(text: str, heading: str) -> str:
    """Give what stands under a heading of the second level, up to the next one."""
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def names(text: str) -> list[str]:
    """Give what stands between backticks, in its order."""
    return NAME.findall(text)


def rows(text: str, *header: str) -> list[tuple[str, ...]]:
    """Give the cells of each row of all tables with this header; there is one at least."""
    found: list[tuple[str, ...]] = []
    inside = met = False
    for line in text.splitlines():
        cells = tuple(cell.strip() for cell in CELL_END.split(line)[1:-1])
        if cells == header:
            inside = met = True
        elif not line.startswith("|"):
            inside = False
        elif inside and set("".join(cells)) - set(":- "):
            found.append(cells)
    assert met, f"no table has the header {header}"
    return found
