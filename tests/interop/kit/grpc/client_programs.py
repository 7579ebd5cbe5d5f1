"""Our programs that drive the official clients for gRPC: how each is made ready once, in the cache folder of
artifacts.py, and how it is started.

Maven, the Go proxy, npm and pip are asked only the first time. Run as a program it makes all ready; it uses
the standard library only, as artifacts.py does.
"""

from __future__ import annotations

import fcntl
import hashlib
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parents[4]))

from tests.interop.kit import artifacts, go_programs  # noqa: E402

_FOLDER: Final = Path(__file__).parent
GO_SOURCES: Final = _FOLDER / "go"
_NODE_SOURCES: Final = _FOLDER / "node"
_PYTHON_SOURCES: Final = _FOLDER / "python"
_JAVA_SET: Final = "grpc-client-5.2.0"
# Of the heap little is used; C1 alone starts fastest.
_JVM_OPTIONS: Final = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_OLDEST_GO: Final = (1, 21)  # fetches the toolchain that the client asks for; Go before does not
_OLDEST_NODE: Final = (16, 19)
_ATTEMPTS: Final = 4
_RETRY_PAUSE_S: Final = 5
_INSTALL_TIMEOUT_S: Final = 600


class ClientUnavailable(RuntimeError):
    """The packages of a client cannot be installed."""


@dataclass(frozen=True, slots=True)
class ClientProgram:
    """A program for one language."""

    language: str
    command: Callable[[Path], list[str]]
    """How it is started, to write below a folder; makes it ready first."""
    missing: Callable[[], str | None]
    """Why it cannot run on this machine, or None."""


def _java(home: Path) -> list[str]:
    java = artifacts.java_tool("java") or "java"
    return [java, *_JVM_OPTIONS, f"-Duser.home={home}", "-cp", artifacts.class_path(_JAVA_SET), "GrpcSession"]


def _java_missing() -> str | None:
    return None if artifacts.java_tool("javac") else "needs javac on PATH (.ci/interop-setup installs it)"


def _go(home: Path) -> list[str]:
    return [str(go_programs.program(GO_SOURCES))]


def _go_missing() -> str | None:
    return go_programs.missing_tools(GO_SOURCES) or _too_old("Go", ["go", "version"], _OLDEST_GO)


def _node(home: Path) -> list[str]:
    source = _NODE_SOURCES / "session.js"
    folder = _installed(
        "grpc-node",
        _NODE_SOURCES / "package.json",
        lambda target: [
            ["npm", "install", "--prefix", str(target), "--no-audit", "--no-fund", "--ignore-scripts"]
        ],
    )
    # Node looks for packages beside the program.
    shutil.copyfile(source, copy := folder / f"session-{_digest(source)}.js")
    return ["node", str(copy)]


def _node_missing() -> str | None:
    if not (shutil.which("node") and shutil.which("npm")):
        return "needs node and npm on PATH (.ci/interop-setup installs them)"
    return _too_old("Node", ["node", "--version"], _OLDEST_NODE)


def _python(home: Path) -> list[str]:
    requirements = _PYTHON_SOURCES / "requirements.txt"
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements))
    folder = _installed(
        "grpc-python",
        requirements,
        lambda target: [
            [sys.executable, "-m", "venv", str(target / "venv")],
            [str(target / "venv/bin/python"), *pip],
        ],
    )
    return [str(folder / "venv/bin/python"), str(_PYTHON_SOURCES / "session.py")]


PROGRAMS: Final = (
    ClientProgram("java", _java, _java_missing),
    ClientProgram("go", _go, _go_missing),
    ClientProgram("python", _python, lambda: None),
    ClientProgram("node", _node, _node_missing),
)
"""The programs of all languages."""


def _too_old(name: str, command: Sequence[str], oldest: tuple[int, int]) -> str | None:
    if shutil.which(command[0]) is None:
        return None
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    found = re.search(r"(\d+)\.(\d+)", said)
    version = (int(found[1]), int(found[2])) if found else oldest
    return None if version >= oldest else f"needs {name} {oldest[0]}.{oldest[1]}, found {said.strip()}"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def _installed(name: str, manifest: Path, commands: Callable[[Path], list[list[str]]]) -> Path:
    """The folder with the packages of a manifest, installed by commands where that has not happened yet."""
    target = artifacts.cache_dir() / f"{name}-{_digest(manifest)}"
    # A virtual environment holds its own path: it cannot be renamed when it is complete.
    complete = target / "complete"
    with _locked(name):
        if not complete.exists():
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir(parents=True)
            shutil.copy(manifest, target)
            for command in commands(target):
                _run_with_retries(command, target)
            complete.touch()
    return target


def _run_with_retries(command: list[str], folder: Path) -> None:
    output = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_RETRY_PAUSE_S * attempt)
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S, check=False
        )
        if done.returncode == 0:
            return
        output = f"{done.stdout}{done.stderr}"[-4000:]
    raise ClientUnavailable(f"{' '.join(command)} fails, after {_ATTEMPTS} attempts:\n{output}")


@contextmanager
def _locked(name: str) -> Iterator[None]:
    artifacts.cache_dir().mkdir(parents=True, exist_ok=True)
    with open(artifacts.cache_dir() / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Make all programs ready; returns the exit status."""
    for program in PROGRAMS:
        missing = program.missing()
        if missing:
            print(f"interop gRPC client: {program.language}: {missing}", file=sys.stderr)
            return 1
        started = time.monotonic()
        try:
            program.command(artifacts.cache_dir())
        except (ClientUnavailable, artifacts.ArtifactsUnavailable, go_programs.GoProgramUnavailable) as error:
            print(f"interop gRPC client: {program.language}: {error}", file=sys.stderr)
            return 1
        took_s = time.monotonic() - started
        print(f"interop gRPC client: {program.language} is ready ({took_s:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
