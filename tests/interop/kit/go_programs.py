"""Our programs in Go, built once into the cache folder of artifacts.py: one drives Apache's Go client
(go/main.go), the other checks registers with porcupine (tests/failover/porcupine).

Go modules are resolved from their proxy, by the sums in go.sum; with a built program neither Go nor the
network is needed. Run as a program it builds all; it uses the standard library only, as artifacts.py does.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

CLIENT: Final = Path(__file__).parent / "go"
PORCUPINE: Final = Path(__file__).parents[2] / "failover" / "porcupine"
_ALL: Final = (CLIENT, PORCUPINE)
_ATTEMPTS: Final = 4
_RETRY_PAUSE_S: Final = 5
_BUILD_TIMEOUT_S: Final = 600


class GoProgramUnavailable(RuntimeError):
    """A Go module could not be resolved, or our program does not build against it."""


def program(sources: Path = CLIENT) -> Path:
    """The built program of a folder; built first where that has not happened yet."""
    target = _target(sources)
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / "go.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _build(sources, target)
    return target


def missing_tools(sources: Path = CLIENT) -> str | None:
    """Why a program cannot be built on this machine, or None when it can or is built already."""
    if _target(sources).exists() or shutil.which("go"):
        return None
    return "needs go on PATH (.ci/interop-setup installs it)"


def _target(sources: Path) -> Path:
    digest = hashlib.sha256()
    for source in sorted(sources.iterdir()):
        digest.update(source.read_bytes())
    return _cache_dir() / f"{sources.name}-{digest.hexdigest()[:12]}"


def _cache_dir() -> Path:
    given = os.environ.get("KOUROU_INTEROP_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "kourou" / "interop"


def _build(sources: Path, target: Path) -> None:
    partial = target.with_suffix(".partial")
    problem = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_RETRY_PAUSE_S * attempt)
        problem = _run_go(sources, partial)
        if not problem:
            # Renamed last: a file under its final name is complete.
            partial.rename(target)
            return
    raise GoProgramUnavailable(f"go build fails, after {_ATTEMPTS} attempts:\n{problem}")


def _run_go(sources: Path, output: Path) -> str:
    """Build once; what go printed when it failed, and nothing when it succeeded."""
    # Modules stay beside the jars; -modcacherw so that the folder can be removed like any other.
    environment = {
        **os.environ,
        "GOPATH": str(_cache_dir() / "gopath"),
        "GOFLAGS": "-modcacherw -buildvcs=false",
    }
    try:
        done = subprocess.run(
            ["go", "build", "-o", str(output), "."],
            cwd=sources,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_BUILD_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else f"{done.stdout}{done.stderr}"[-4000:] or f"exit {done.returncode}"


def main() -> int:
    """Build all; returns the exit status."""
    for sources in _ALL:
        missing = missing_tools(sources)
        if missing:
            print(f"interop Go programs: {missing}", file=sys.stderr)
            return 1
        started = time.monotonic()
        try:
            program(sources)
        except GoProgramUnavailable as error:
            print(f"interop Go programs: {sources.name}: {error}", file=sys.stderr)
            return 1
        print(f"interop Go programs: {sources.name} is ready ({time.monotonic() - started:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
