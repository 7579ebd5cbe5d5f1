"""The programs of the documents run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_doc_examples import DOCUMENTS

# They need servers: tests/e2e/client/test_docs_client.py runs them.
CLIENT_PROGRAMS = re.compile(r"^from kourou import .*(?:Producer|Consumer|QueueReader|idempotent)", re.M)


PROGRAMS = [
    pytest.param(program, id=f"{path.name}-{number}")
    for path in DOCUMENTS
    for number, program in enumerate(re.findall(r"^```python\n(.*?)^```", path.read_text(), re.S | re.M), 1)
    if not CLIENT_PROGRAMS.search(program)
]


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
