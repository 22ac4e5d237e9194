"""`docs/settings.md` names every setting that is read from the environment, with its default."""

import ast
import re
from collections.abc import Iterator

from scalable import settings
from tests.tidy.sources import ROOT

READERS = {"_text", "_number", "_whole", "_flag", "_names", "_secret"}
TOLD_IN_WORDS = {
    *("DATABASE_URL", "SCALABLE_DATA_DIR", "SCALABLE_SECURE_COOKIES", "SCALABLE_REDIRECT_TO_HTTPS"),
    "SCALABLE_HSTS_SECONDS",
}
NAME = re.compile(r"`([A-Z][A-Z_]+)`")


def read_by_the_settings() -> dict[str, ast.expr | None]:
    """Give each name that `scalable/settings.py` reads, and the expression of its default."""
    found: dict[str, ast.expr | None] = {}
    for node in ast.walk(ast.parse((ROOT / "scalable" / "settings.py").read_text())):
        match node:
            case ast.Call(func=ast.Name(id=reader), args=[ast.Constant(value=str(name)), *rest]):
                if reader in READERS:
                    found[name] = rest[0] if rest else found.get(name)
                if reader == "_secret":
                    found[f"{name}_FILE"] = None
    return found


def documented() -> Iterator[tuple[str, str]]:
    """Yield each setting of the page with its default, as written there."""
    for line in (ROOT / "docs" / "settings.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        names = NAME.findall(cells[0]) if cells else []
        defaults = cells[1].replace("`", "").split(", ") if names else []
        yield from zip(names, defaults if len(defaults) == len(names) else [""] * len(names), strict=True)


def test_every_setting_is_documented_and_no_other() -> None:
    names = [name for name, _ in documented()]
    assert len(names) == len(set(names))
    assert set(names) == set(read_by_the_settings())


def test_defaults_are_those_of_the_page() -> None:
    page = dict(documented())
    for name, expression in read_by_the_settings().items():
        if expression is not None and name not in TOLD_IN_WORDS:
            value = eval(compile(ast.Expression(expression), name, "eval"), vars(settings))
            assert page[name] == (str(value).lower() if isinstance(value, bool) else str(value)), name
