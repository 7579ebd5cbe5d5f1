"""The client's guide has every client, and pip installs what the documents use.

Not here: the programs of the guide (tests/e2e/test_docs_in_order.py).
"""

from __future__ import annotations

import subprocess
import sys

import pytest

import kourou
from tests.e2e.doc_programs import PROJECT

pytestmark = pytest.mark.e2e

PIP = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]


@pytest.mark.slow
def test_an_extra_installs_though_no_package_index_has_kourou() -> None:
    """Error messages say `pip install 'kourou[extra]'`: pip takes the extra from the installed package."""
    ran = subprocess.run(
        [*PIP, "--no-index", "kourou[compression]"], capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert "Requirement already satisfied: lz4" in ran.stdout


def test_every_client_is_in_the_guide() -> None:
    guide = (PROJECT / "docs" / "client.md").read_text()
    clients = [name for name in kourou.__all__ if name.endswith(("Producer", "Consumer", "Reader"))]
    assert len(clients) == 13
    assert [name for name in clients if name.removeprefix("Async") not in guide] == []
