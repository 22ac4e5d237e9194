"""Each rule complains about what it forbids, and only about that."""

import pytest

from tests.tidy import rules
from tests.tidy.sources import Source

SHORT = 'def short():\n    """Say one thing.\n\n    And more.\n    """\n    return 1\n'
LONG = "async def long():\n" + "    x = 1\n" * 60


def test_lengths_do_not_count_docstrings() -> None:
    assert [function.length for function in rules.functions(Source("a.py", SHORT))] == [2]


def test_a_long_function_is_named_with_its_place() -> None:
    assert rules.long_functions([Source("a.py", SHORT + LONG)]) == ["a.py:7 long: 61 lines"]


def test_a_long_file_is_named() -> None:
    assert rules.long_files([Source("a.py", "x = 1\n" * 401), Source("b.py", "x = 1\n" * 400)]) == [
        "a.py: 401 lines"
    ]


@pytest.mark.parametrize("word", rules.FORBIDDEN_WORDS)
def test_a_forbidden_word_is_found_with_its_line(word: str) -> None:
    assert rules.forbidden_words(Source("a.md", f"fine\nsee {word}x\n"))[0] == f"a.md:2: {word}"


@pytest.mark.parametrize("comment", ["# -----", "# === Helpers ===", "    # ----------", "// ****"])
def test_a_banner_is_found(comment: str) -> None:
    assert rules.banners(Source("a.py", f"x = 1\n{comment}\n"))


@pytest.mark.parametrize("comment", ["# why -- because", "#!/bin/sh", "# --flag is optional"])
def test_a_comment_is_no_banner(comment: str) -> None:
    assert rules.banners(Source("a.py", f"{comment}\n")) == []


def test_a_module_that_nobody_imports_is_dead() -> None:
    sources = [
        Source("p/__init__.py", ""),
        Source("p/used.py", ""),
        Source("p/also.py", "import p.used"),
        Source("p/dead.py", "from p import also"),
        Source("p/served.py", ""),
        Source("p/program.py", 'if __name__ == "__main__":\n    main()'),
        Source("p/main.py", "command = ('uvicorn', 'p.served:application')"),
    ]
    assert rules.dead_modules(sources, entry_points=["p/main.py"]) == ["p/dead.py"]


def test_a_broken_link_is_found_and_a_good_one_is_not() -> None:
    text = "[a](../README.md#top) [b](gone.md) ![c](pic.png) [d](https://example.org/x) [e](#here)"
    source = Source("docs/page.md", text)
    assert rules.broken_links(source, existing=["README.md", "docs/page.md"]) == [
        "docs/page.md: gone.md",
        "docs/page.md: pic.png",
    ]


def test_a_good_changelog_passes() -> None:
    text = "# Changelog\n\n## Unreleased\n\n* A thing\n  in two lines.\n\n## 0.1.0 (2026-01-31)\n\n* First.\n"
    assert rules.changelog_shape(Source("CHANGELOG.md", text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "# Changes\n\n## Unreleased\n",
        "# Changelog\n",
        "# Changelog\n\n## 1.0\n",
        "# Changelog\n\n## Unreleased\n\n* no stop\n",
    ],
)
def test_a_bad_changelog_does_not(text: str) -> None:
    assert rules.changelog_shape(Source("CHANGELOG.md", text))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("docs/decisions/7-x.md", "# 7-x. X\n**Decision.** y"),
        ("docs/decisions/0007-x.md", "# 0008 X\n**Decision.** y"),
        ("docs/decisions/0007-x.md", "# 0007 X\nnothing"),
    ],
)
def test_a_bad_decision_record_is_refused(path: str, text: str) -> None:
    assert rules.decision_shape(Source(path, text))
