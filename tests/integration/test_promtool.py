"""Prometheus' own tool accepts the examples."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "prometheus"

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)"
)


@pytest.mark.parametrize(
    "arguments", [("check", "rules", "alerts.yml"), ("check", "config", "prometheus.yml")]
)
def test_rules_and_configuration_are_accepted(arguments: tuple[str, ...]) -> None:
    *words, file = arguments
    checked = subprocess.run(["promtool", *words, str(EXAMPLES / file)], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "19 rules found" in checked.stdout
