"""The house keeps its own rules."""

import statistics
import subprocess
from collections.abc import Iterable

import pytest

from scalable.api.errors import ANSWERS
from scalable.domain.errors import BY_CODE
from tests.tidy import rules
from tests.tidy.sources import PRODUCT, ROOT, Source, documents, paths, python_files, text_files

ENTRY_POINTS = (
    *("scalable/apps.py", "tasks/apps.py", "webui/apps.py"),
    *("scalable/api/headers.py", "scalable/api/hosts.py", "scalable/api/logins.py"),  # named in the settings
    "scalable/api/pages.py",
    *("**/__main__.py", "**/migrations/*.py", "**/management/commands/*.py", "**/templatetags/*.py"),
    *("bench/rows/*.py", "tests/**/test_*.py", "**/conftest.py"),
)


def clean(complaints: Iterable[str]) -> None:
    """Fail with one complaint a line."""
    found = list(complaints)
    assert not found, "\n" + "\n".join(found)


@pytest.fixture(scope="module")
def python() -> list[Source]:
    return python_files()


def test_no_function_is_long(python: list[Source]) -> None:
    clean(rules.long_functions(python))


def test_functions_are_short_on_the_whole(python: list[Source]) -> None:
    product = [source for source in python if source.path.startswith(PRODUCT)]
    lengths = [function.length for source in product for function in rules.functions(source)]
    assert statistics.median(lengths) < rules.MEDIAN_FUNCTION
    assert sum(length >= rules.LONG_FUNCTION for length in lengths) < rules.LONG_SHARE * len(lengths)


def test_no_file_is_long(python: list[Source]) -> None:
    written = [source for source in python if "/migrations/" not in source.path]  # those are generated
    clean(rules.long_files(written))


def test_the_product_speaks_of_itself_alone() -> None:
    clean(complaint for source in text_files() for complaint in rules.forbidden_words(source))


def test_clients_bound_their_waits_in_clean_ups_too(python: list[Source]) -> None:
    """See `time_limit`: `asyncio.timeout` does not before Python 3.11.3."""
    clean(
        f"{source.path}: asyncio.timeout in place of time_limit"
        for source in python
        if source.path.startswith(("scalable/client/", "scalable/cli/")) and "asyncio.timeout(" in source.text
        if not source.path.endswith("/time_limit.py")
    )


def test_no_link_is_kept() -> None:
    """A link to somewhere else is broken in every clone; a checkout replaces what stands in its place."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "--stage"], capture_output=True, text=True, check=False
    )
    clean(line for line in listed.stdout.splitlines() if line.startswith("120000"))


def test_comments_draw_no_lines(python: list[Source]) -> None:
    clean(complaint for source in python for complaint in rules.banners(source))


def test_every_module_is_used(python: list[Source]) -> None:
    clean(rules.dead_modules(python, entry_points=ENTRY_POINTS))


def test_every_error_has_a_row_and_every_row_an_error() -> None:
    assert set(ANSWERS) == set(BY_CODE)


def test_every_link_of_a_document_leads_somewhere() -> None:
    existing = [path.relative_to(ROOT).as_posix() for path in paths()]
    clean(c for source in documents() for c in rules.broken_links(source, existing=existing))


def test_the_changelog_has_its_shape() -> None:
    clean(rules.changelog_shape(Source("CHANGELOG.md", (ROOT / "CHANGELOG.md").read_text())))


def test_decision_records_have_their_shape() -> None:
    records = [source for source in documents() if source.path.startswith("docs/decisions/")]
    assert records
    clean(complaint for record in records for complaint in rules.decision_shape(record))
