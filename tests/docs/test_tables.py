"""Tables and lists of the documentation hold what the code has, no more and no less."""

import ast
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions, requires
from inspect import isclass
from typing import Any

import msgspec
import pytest
from packaging.requirements import Requirement

import scalable.api
from scalable.api.serializers import MAX_BATCHES_BYTES, MAX_NAMES_PAGE, MAX_PAGE, BatchesQuery, Query
from scalable.client.connection import RETRIABLE_ERRORS
from scalable.domain.decision import GuardCode
from scalable.domain.errors import ScalableError
from scalable.domain.jobs import MAX_POLICIES, OPTIONS
from scalable.domain.policy import DEFAULTS
from scalable.domain.profiles import PROFILES
from tests.docs.pages import ROOT, names, page, rows, section

AUTOSCALE, REST = page("autoscale"), page("rest")
POLICY_HEADER = ("field", "default", "`recommended`", "what it does")


def policy_table() -> dict[str, tuple[Any, Any]]:
    """Default and value in `recommended` of each field of the tables; an empty cell is the default."""
    found: dict[str, tuple[Any, Any]] = {}
    for fields, default, recommended, _ in rows(AUTOSCALE, *POLICY_HEADER):
        defaults = _values(default)
        told = zip(names(fields), defaults, _values(recommended) or defaults, strict=True)
        for name, *values in told:
            assert name not in found, f"{name} has two rows"
            found[name] = values[0], values[1]
    return found


def _values(cell: str) -> list[Any]:
    return [json.loads(value) for value in cell.split(", ")] if cell else []


def test_every_field_of_a_policy_is_told_with_its_defaults() -> None:
    recommended = {**DEFAULTS, **PROFILES["recommended"]}
    expected = {name: (DEFAULTS[name], recommended[name]) for name in DEFAULTS if name != "profile"}
    assert policy_table() == expected


def test_every_guard_is_explained() -> None:
    assert [names(code)[0] for code, _ in rows(AUTOSCALE, "guard", "what holds back")] == list(GuardCode)


def recorded_actions() -> Iterator[re.Pattern[str]]:
    """What each call of `auditing.record` names as the action; parts that vary match anything."""
    for path in sorted((ROOT / "scalable").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "auditing.record":
                yield _action(node.args[0], path.name)


def _action(said: ast.expr, where: str) -> re.Pattern[str]:
    parts = said.values if isinstance(said, ast.JoinedStr) else [said]
    texts = [re.escape(str(part.value)) if isinstance(part, ast.Constant) else "[a-z]+" for part in parts]
    assert any(isinstance(part, ast.Constant) for part in parts), f"{where}: what is {ast.unparse(said)}?"
    return re.compile("".join(texts))


def test_every_action_of_the_audit_is_told() -> None:
    told = [name for action, _ in rows(page("audit"), "action", "when") for name in names(action)]
    done = list(recorded_actions())
    assert [pattern.pattern for pattern in done if not any(map(pattern.fullmatch, told))] == []
    verbs = {"skip", "skip-all"}  # of subscription.seek, named beside it
    assert [name for name in told if not any(each.fullmatch(name) for each in done)] == sorted(verbs)


def test_the_options_of_jobs_are_told() -> None:
    told = {names(kind)[0]: set(names(options)) for kind, options in rows(REST, "kind", "options")}
    assert told == {kind.value: set(options) for kind, options in OPTIONS.items()}
    assert f"`policies`, at most {MAX_POLICIES}, are" in " ".join(REST.split())


def queries() -> list[type[Query]]:
    """Every set of parameters that a door of REST takes."""
    modules = [info.name for info in pkgutil.walk_packages(scalable.api.__path__, "scalable.api.")]
    kinds = [
        kind for name in modules for _, kind in inspect.getmembers(importlib.import_module(name), isclass)
    ]
    return [kind for kind in kinds if issubclass(kind, Query)]


def test_the_sizes_of_pages_are_told() -> None:
    """A list that has another size than the usual one says so in its row."""
    sizes = set()
    for query in queries():
        for field in msgspec.structs.fields(query):
            if field.name == "limit":
                described = msgspec.inspect.type_info(field.type)
                assert isinstance(described, msgspec.inspect.IntType)
                sizes.add((field.default, described.le))
    assert sizes == {(100, MAX_PAGE), (50, MAX_PAGE), (1_000, MAX_NAMES_PAGE)}
    for said in (
        f"`limit` (100, at most {MAX_PAGE:,}, where nothing else is said)",
        f"`limit` (50, at most {MAX_PAGE:,})",
        "`limit` (50), `offset`",
        f"`limit` (1,000, at most {MAX_NAMES_PAGE:,})",
    ):
        assert said in REST, said


def test_the_size_of_an_answer_of_batches_is_told() -> None:
    (field,) = [each for each in msgspec.structs.fields(BatchesQuery) if each.name == "max_bytes"]
    assert f"`maxBytes` ({field.default:,}, at most {MAX_BATCHES_BYTES:,})" in REST


def test_what_a_client_waits_out_is_told() -> None:
    told = page("client").split("waited\nout, too:")[1].split(".")[0]
    waited_out = {kind.__name__ for kind in RETRIABLE_ERRORS if issubclass(kind, ScalableError)}
    assert set(names(told)) == waited_out


ALONE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(name)

absent = set(sys.argv[1:])
sys.meta_path.insert(0, Absent())
import scalable.client
print(*{name.partition(".")[0] for name in sys.modules})
"""


def test_the_client_runs_on_what_it_needs_alone() -> None:
    told = names(page("client").split("and install ")[1].split(", in the versions")[0])
    allowed = _with_what_they_need(told)
    homes = {module: {each.lower() for each in found} for module, found in packages_distributions().items()}
    absent = [name for name, found in homes.items() if not found & allowed and name != "scalable"]
    run = subprocess.run(
        [sys.executable, "-c", ALONE, *absent], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert run.returncode == 0, run.stderr
    used = set().union(*(homes.get(module, set()) for module in run.stdout.split()))
    assert set(told) <= used, "and it needs each of them"


def _with_what_they_need(packages: list[str]) -> set[str]:
    found: set[str] = set()
    left = list(packages)
    while left:
        package = left.pop().lower()
        if package not in found:
            found.add(package)
            wanted = [Requirement(line) for line in requires(package) or ()]
            left += [
                each.name for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})
            ]
    return found


def test_every_decision_has_its_row_in_the_architecture() -> None:
    text = section("\n" + (ROOT / "ARCHITECTURE.md").read_text(), "Decisions")
    ranges = [
        (int(first), int(last or first))
        for numbers, _ in rows(text, "records", "subject")
        for first, last in re.findall(r"(\d{4})(?: to (\d{4}))?", numbers)
    ]
    decisions = [int(path.name[:4]) for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md")]
    lost = [number for number in sorted(decisions) if not any(low <= number <= high for low, high in ranges)]
    assert lost == []
    assert [pair for pair in ranges if not any(pair[0] <= number <= pair[1] for number in decisions)] == []


@pytest.mark.parametrize(
    "name", ["protocol", "websocket", "batch-format", "client", "rest", "audit", "autoscale"]
)
def test_every_link_of_a_page_leads_somewhere(name: str) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", page(name)):
        path, _, anchor = target.partition("#")
        there = ROOT / "docs" / path if path else ROOT / "docs" / f"{name}.md"
        assert there.exists(), target
        headings = re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE) if anchor else []
        assert not anchor or anchor in {_anchor(heading) for heading in headings}, target


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
