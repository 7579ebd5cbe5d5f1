"""Kourou built and installed as users do it, with the dependencies of the environment that runs the tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

PROJECT = Path(__file__).parents[2]
# What belongs to this project's own installation.
_OURS = re.compile(r"(?i)(_*editable_.*kourou|kourou)")
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
# The build backend is among the packages of the tests: nothing is downloaded.
_BUILD = ("--no-deps", "--no-build-isolation")


def run(*command: str | Path, cwd: Path, fails: bool = False, **variables: str) -> str:
    """Run a command to its end, which is a good one unless it `fails`; what it has printed."""
    kept = ("PYTHON", "PYTEST", "KOUROU_")
    environ = {key: text for key, text in os.environ.items() if not key.startswith(kept)}
    ran = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**environ, "PYTHONDONTWRITEBYTECODE": "1", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert (ran.returncode != 0) == fails, ran.stdout
    return ran.stdout


def build_wheel(folder: Path, **variables: str) -> Path:
    """The wheel of this checkout."""
    run(*_PIP, "wheel", "--quiet", *_BUILD, "--wheel-dir", folder, PROJECT, cwd=folder, **variables)
    (wheel,) = folder.glob("kourou-*.whl")
    return wheel


def fresh_environment(folder: Path) -> Path:
    """An environment without Kourou that has all else of the one that runs this; its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if not _OURS.match(package.name):
            (site / package.name).symlink_to(package)
    return folder / "bin" / "python"


def install(python: Path, what: Path, *, fails: bool = False, **variables: str) -> str:
    """Install Kourou from a wheel or a checkout into an environment; what is printed on the way."""
    command = [*_PIP, "--python", python, "install", "--verbose", "--no-index", "--no-compile", *_BUILD, what]
    return run(*command, cwd=python.parent, fails=fails, **variables)
