"""The program that drives Apache's Go client (go/main.go), built once into the cache folder of artifacts.py.

The Go module is resolved from its proxy, by the sums in go/go.sum; with a built program neither Go nor the
network is needed. Run as a program it builds; it uses the standard library only, as artifacts.py does.
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

_SOURCES: Final = Path(__file__).parent / "go"
_ATTEMPTS: Final = 4
_RETRY_PAUSE_S: Final = 5
_BUILD_TIMEOUT_S: Final = 600


class GoClientUnavailable(RuntimeError):
    """The Go module could not be resolved, or our program does not build against it."""


def program() -> Path:
    """The built program; built first where that has not happened yet."""
    target = _target()
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(target.parent / "go.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _build(target)
    return target


def missing_tools() -> str | None:
    """Why the Go client cannot be built on this machine, or None when it can or is built already."""
    if _target().exists() or shutil.which("go"):
        return None
    return "needs go on PATH (.ci/interop-setup installs it)"


def _target() -> Path:
    digest = hashlib.sha256()
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.read_bytes())
    return _cache_dir() / f"go-{digest.hexdigest()[:12]}"


def _cache_dir() -> Path:
    given = os.environ.get("KOUROU_INTEROP_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "kourou" / "interop"


def _build(target: Path) -> None:
    partial = target.with_suffix(".partial")
    problem = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_RETRY_PAUSE_S * attempt)
        problem = _run_go(partial)
        if not problem:
            # Renamed last: a file under its final name is complete.
            partial.rename(target)
            return
    raise GoClientUnavailable(f"go build fails, after {_ATTEMPTS} attempts:\n{problem}")


def _run_go(output: Path) -> str:
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
            cwd=_SOURCES,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_BUILD_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else f"{done.stdout}{done.stderr}"[-4000:] or f"exit {done.returncode}"


def main() -> int:
    """Build; returns the exit status."""
    missing = missing_tools()
    if missing:
        print(f"interop Go client: {missing}", file=sys.stderr)
        return 1
    started = time.monotonic()
    try:
        program()
    except GoClientUnavailable as error:
        print(f"interop Go client: {error}", file=sys.stderr)
        return 1
    print(f"interop Go client: ready ({time.monotonic() - started:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
