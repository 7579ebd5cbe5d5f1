"""Shared by all tests: hypothesis profiles, the marker `nightly`, counts of fault loops, a plain SIGINT, a
user without saved contexts."""

from __future__ import annotations

import os
import signal
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from tests.crash.rounds import NIGHTLY, summaries

# The same examples every time, so that a change is judged by what it changed.
settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
# `make nightly` tries ten times as many examples, and different ones each time.
settings.register_profile(
    "nightly", deadline=None, max_examples=1_000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("nightly" if NIGHTLY else "default")

# A shell that starts tests in the background has SIGINT ignored, and so would the programs that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Otherwise commands would connect to a context of the user who runs the tests.
os.environ.pop("KOUROU_CONTEXT", None)
_config_home = tempfile.TemporaryDirectory(prefix="kourou-tests-")
os.environ["XDG_CONFIG_HOME"] = _config_home.name


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Outside of a nightly run, tests with the marker `nightly` are deselected, whatever -m says."""
    if NIGHTLY:
        return
    deselected = [item for item in items if item.get_closest_marker("nightly")]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if not item.get_closest_marker("nightly")]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if summaries:
        terminalreporter.section("fault loops")
        for line in summaries:
            terminalreporter.write_line(line)
