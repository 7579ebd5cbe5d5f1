"""The examples in docstrings and in the documents run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import kourou
from tests.needed import need_module

PROJECT = Path(__file__).parents[2]
DOCUMENTS = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
MODULES = sorted(module.name for module in pkgutil.walk_packages(kourou.__path__, "kourou."))
LAKES = {"kourou.spark.pipelines.lake_delta": "deltalake", "kourou.spark.pipelines.lake_iceberg": "pyiceberg"}


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    if name.startswith("kourou.spark"):
        pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    if name in LAKES:
        need_module(LAKES[name])
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_documents_link_only_to_files_that_are_there() -> None:
    missing = [
        f"{path.name}: {target}"
        for path in DOCUMENTS
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", path.read_text())
        if not (path.parent / target).exists()
    ]
    assert missing == []
