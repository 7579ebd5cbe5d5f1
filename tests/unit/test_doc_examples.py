"""The examples in docstrings and in the documents run."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import kourou
from kourou.store.kernel import MODULE as KERNEL
from tests.needed import need_module

PROJECT = Path(__file__).parents[2]
DOCUMENTS = [*sorted(PROJECT.glob("*.md")), *sorted((PROJECT / "docs").rglob("*.md"))]
# The compiled kernel has no source to look for examples in.
MODULES = sorted(
    module.name for module in pkgutil.walk_packages(kourou.__path__, "kourou.") if module.name != KERNEL
)
PACKAGES = sorted({name.split(".")[1] for name in MODULES})
LAKES = {
    "kourou.spark.pipelines.lake.lake_delta": "deltalake",
    "kourou.spark.pipelines.lake.lake_iceberg": "pyiceberg",
}


def failed_examples(name: str) -> int:
    module = importlib.import_module(name)
    if ">>>" not in inspect.getsource(module):  # to search its members takes as long as to import it
        return 0
    return doctest.testmod(module).failed


@pytest.mark.parametrize("package", PACKAGES)
def test_docstring_examples(package: str) -> None:
    if package == "spark":
        pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    names = [name for name in MODULES if name.split(".")[1] == package and name not in LAKES]
    assert [name for name in names if failed_examples(name)] == []


@pytest.mark.parametrize("name", LAKES)
def test_docstring_examples_of_lakes(name: str) -> None:
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    need_module(LAKES[name])
    assert failed_examples(name) == 0


def test_contributing_names_only_files_and_targets_that_are_there() -> None:
    text = (PROJECT / "CONTRIBUTING.md").read_text()
    paths = set(re.findall(r"(?<![\w./-])((?:tests|docs|\.ci)/[\w./]*\w)", text))
    assert len(paths) > 8
    assert [path for path in sorted(paths) if not (PROJECT / path).exists()] == []
    makefile = (PROJECT / "Makefile").read_text()
    targets = set(re.findall(r"\bmake (\w+)", text))
    assert [target for target in sorted(targets) if f"\n{target}:" not in makefile] == []


def test_documents_link_only_to_files_that_are_there() -> None:
    missing = [
        f"{path.name}: {target}"
        for path in DOCUMENTS
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", path.read_text())
        if not (path.parent / target).exists()
    ]
    assert missing == []


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_documents_link_only_to_headings_that_are_there() -> None:
    links = [
        (path, path.parent / target if target else path, anchor)
        for path in DOCUMENTS
        for target, anchor in re.findall(r"\]\((?!https?://)([^)#]*\.md|)#([^)]+)\)", path.read_text())
    ]
    assert len(links) > 30
    assert [link for link in links if link[2] not in anchors(link[1])] == []
