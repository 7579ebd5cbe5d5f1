"""Processes that tests start."""

from __future__ import annotations

import shutil


def dies_with_parent() -> list[str]:
    """What to put in front of a command, so that tests which are killed leave no process behind, where the
    system can see to that. The thread that starts it has to outlive it."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []
