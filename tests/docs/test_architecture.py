"""What the journeys of the architecture page name is there, and is called where they say so."""

import re

from launch.process import ROOT

PAGE = (ROOT / "ARCHITECTURE.md").read_text()
QUALIFIED = re.compile(r"`((?:\w+/)+\w+)\.(?!py`|js`)(\w+)")
CALLED = re.compile(r"((?:`[\w/]+\.py`(?: and )?)+)[^`()]*\(`(?:\w+\.)?(\w+_\w+)`\)")
FILES = re.compile(r"`([\w/]+\.py)`")
FOLDERS = ("scalable", ".")


def source_of(path: str) -> str:
    """The text of a file that the page names from the package or from the root; empty when there is none."""
    files = [ROOT / folder / path for folder in FOLDERS]
    return next((file.read_text() for file in files if file.exists()), "")


def calls(path: str, name: str) -> bool:
    """Tell whether a file that the page names, perhaps by its last part alone, calls a function."""
    found = [file for file in (ROOT / "scalable").rglob(path.rpartition("/")[2]) if str(file).endswith(path)]
    return any(re.search(rf"(?<!def )\b{name}\(", file.read_text()) for file in found)


def test_each_function_that_is_named_with_its_module_is_there() -> None:
    named = QUALIFIED.findall(PAGE)
    assert len(named) > 10
    missing = [
        f"{module}.{name}"
        for module, name in named
        if not re.search(
            rf"^(?:async )?(?:def|class) {name}\b|^{name}\b.*=", source_of(f"{module}.py"), re.MULTILINE
        )
    ]
    assert missing == []


def test_each_call_that_is_said_to_be_in_a_file_is_in_it() -> None:
    said = [(path, name) for paths, name in CALLED.findall(PAGE) for path in FILES.findall(paths)]
    assert len(said) >= 3
    assert [(path, name) for path, name in said if not calls(path, name)] == []
