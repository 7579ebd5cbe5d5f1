"""docs/architecture.md and docs/glossary.md name files, folders and classes that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "src" / "kourou"
PAGES = ["architecture.md", "glossary.md"]
QUOTED = re.compile(r"`([^`\n]+)`")
# A folder ends in a slash, a file in its extension.
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*(?:/|\.(?:py|c|h|md))")
NAME = re.compile(r"[A-Z]\w*[a-z]\w*(?:\.\w+)?|[A-Z]+(?:_[A-Z]+)+")


def quoted(page: str, pattern: re.Pattern[str]) -> set[str]:
    return set(filter(pattern.fullmatch, QUOTED.findall((PROJECT / "docs" / page).read_text())))


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page: str) -> None:
    paths = quoted(page, PATH)
    assert len(paths) > 15
    assert [
        path for path in sorted(paths) if not any((root / path).exists() for root in (PACKAGE, PROJECT))
    ] == []


@pytest.mark.parametrize("page", PAGES)
def test_names_are_defined(page: str) -> None:
    names = {part for name in quoted(page, NAME) for part in name.split(".")}
    source = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    defined = set(re.findall(r"^\s*(?:class |def |async def )?(\w+)(?=[(:=\[]| =)", source, re.M))
    assert names and names - defined == set()
