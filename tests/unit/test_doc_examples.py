"""The examples in docstrings and in the documents run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kourou
from tests.needed import need_module

PROJECT = Path(__file__).parents[2]
DOCUMENTS = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
MODULES = sorted(module.name for module in pkgutil.walk_packages(kourou.__path__, "kourou."))
LAKES = {"kourou.spark.pipelines.lake_delta": "deltalake", "kourou.spark.pipelines.lake_iceberg": "pyiceberg"}
# They need servers: tests/e2e/client/test_docs_client.py runs them.
CLIENT_PROGRAMS = re.compile(r"^from kourou import .*(?:Producer|Consumer|QueueReader|idempotent)", re.M)
PROGRAMS = [
    pytest.param(program, id=f"{path.name}-{number}")
    for path in DOCUMENTS
    for number, program in enumerate(re.findall(r"^```python\n(.*?)^```", path.read_text(), re.S | re.M), 1)
    if not CLIENT_PROGRAMS.search(program)
]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    if name.startswith("kourou.spark"):
        pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    if name in LAKES:
        need_module(LAKES[name])
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("program", PROGRAMS)
def test_document_examples(program: str, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,  # nobody presses Enter, but there is an end
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, "")


def test_documents_link_only_to_files_that_are_there() -> None:
    missing = [
        f"{path.name}: {target}"
        for path in DOCUMENTS
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", path.read_text())
        if not (path.parent / target).exists()
    ]
    assert missing == []
