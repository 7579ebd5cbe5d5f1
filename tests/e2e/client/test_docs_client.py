"""The client's guide has every client, and pip installs what the documents use.

Not here: the programs of the guide (tests/e2e/test_docs_in_order.py).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kourou
from tests.e2e.doc_programs import PROJECT

pytestmark = pytest.mark.e2e

PIP = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]


@pytest.mark.slow
def test_pip_installs_what_the_readme_uses(tmp_path: Path) -> None:
    """`pip install .`, into a folder of its own; dependencies are those of the tests."""
    site = tmp_path / "site"
    subprocess.run(
        [*PIP, "--quiet", "--no-deps", "--target", str(site), str(PROJECT)], check=True, timeout=300
    )
    found = "import kourou; print(kourou.Producer, kourou.PushConsumer, kourou.__file__)"
    environ = {**os.environ, "PYTHONPATH": str(site)}
    for command in ([sys.executable, "-c", found], [str(site / "bin" / "kourou"), "standalone", "--help"]):
        ran = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert str(site) in ran.stdout or "--namesrv-port" in ran.stdout


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
    assert len(clients) == 11
    assert [name for name in clients if name.removeprefix("Async") not in guide] == []
