"""Artifacts: Apache RocketMQ's jars from Maven Central, and our Java programs compiled against them.

Each set of jars is resolved once by Maven into the cache folder and then reused: with a full cache neither
Maven nor the network is needed. The folder is KOUROU_INTEROP_CACHE, else ~/.cache/kourou/interop.
Run as a program it fills the cache; it uses the standard library only, since CI calls it before all else.
Not here: running anything of it (apache.py, java_session.py).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_GROUP: Final = "org.apache.rocketmq"
_COPY_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_ATTEMPTS: Final = 4
_RETRY_PAUSE_S: Final = 5
_MAVEN_TIMEOUT_S: Final = 600
_JAVAC_TIMEOUT_S: Final = 120
_SOURCES: Final = Path(__file__).parent / "java"

ARTIFACT_SETS: Final[dict[str, tuple[str, ...]]] = {
    "server-4.9.7": ("rocketmq-broker:4.9.7", "rocketmq-namesrv:4.9.7", "rocketmq-tools:4.9.7"),
    "server-5.5.0": (
        "rocketmq-broker:5.5.0",
        "rocketmq-namesrv:5.5.0",
        "rocketmq-tools:5.5.0",
        "rocketmq-example:5.5.0",  # holds the official benchmark programs
    ),
    # The hook that signs requests is a module of its own in 4.9.
    "client-4.9.8": ("rocketmq-client:4.9.8", "rocketmq-acl:4.9.8"),
    "proxy-5.5.0": ("rocketmq-proxy:5.5.0",),
    "grpc-client-5.2.0": ("rocketmq-client-java:5.2.0",),
}
"""Every set by name: what is asked of Maven, as artifact:version; Maven adds what these depend on."""

_SHARED: Final = ("Json", "ShutdownHurry")
_MESSAGING: Final = (
    *("MessagingSession", "Producers", "PushConsumers", "PullConsumers", "Load", "Strategies"),
    *("Described", "Options", "Since5", "Verdicts", "UserProperties", "Transactions", "RequestReply", "Keys"),
)
_GRPC: Final = tuple(
    f"../grpc/java/{name}"
    for name in (
        *("GrpcSession", "GrpcProducers", "GrpcSimpleConsumers", "GrpcPushConsumers"),
        *("GrpcMessages", "GrpcSettings", "Failure", "Inbox"),
    )
)
PROGRAMS: Final[dict[str, tuple[str, ...]]] = {
    "server-4.9.7": ("AdminSession", "StoreSession", "SqlOracle", *_SHARED),
    "server-5.5.0": ("AdminSession", "StoreSession", "SqlOracle", "ClientSession", *_MESSAGING, *_SHARED),
    "client-4.9.8": ("ClientSession", *_MESSAGING, *_SHARED),
    "grpc-client-5.2.0": ("Json", "Options", *_GRPC),
}
"""Our Java programs that are compiled against each set, if there are any."""


class ArtifactsUnavailable(RuntimeError):
    """Jars could not be resolved, or a program of ours does not compile against them."""


def cache_dir() -> Path:
    """The folder that keeps jars and compiled programs between runs."""
    given = os.environ.get("KOUROU_INTEROP_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "kourou" / "interop"


def java_tool(name: str) -> str | None:
    """The path of `java` or `javac`: from JAVA_HOME, else from PATH."""
    home = os.environ.get("JAVA_HOME")
    in_home = Path(home) / "bin" / name if home else None
    return str(in_home) if in_home and in_home.exists() else shutil.which(name)


def missing_tools() -> str | None:
    """Why the interop tests cannot run on this machine, or None when they can."""
    missing = [name for name in ("java", "javac") if java_tool(name) is None]
    if shutil.which("mvn") is None and not all(_jar_dir(name).is_dir() for name in ARTIFACT_SETS):
        missing.append("mvn")
    return f"needs {', '.join(missing)} on PATH (.ci/interop-setup installs them)" if missing else None


def class_path(set_name: str) -> str:
    """The class path of a set, with our programs in front; resolves and compiles what is not there yet."""
    jars = f"{resolve(set_name)}/*"
    if set_name not in PROGRAMS:
        return jars
    return f"{_compile(set_name, jars)}{os.pathsep}{jars}"


def resolve(set_name: str) -> Path:
    """The folder with all jars of a set; Maven is called only the first time."""
    target = _jar_dir(set_name)
    with _locked(set_name):
        if not target.is_dir():
            _run_maven(set_name, target)
    return target


def _jar_dir(set_name: str) -> Path:
    digest = hashlib.sha256(_pom(set_name).encode()).hexdigest()[:12]
    return cache_dir() / f"{set_name}-{digest}" / "jars"


def _pom(set_name: str) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{_GROUP}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>\n"
        for artifact, version in (wanted.split(":") for wanted in ARTIFACT_SETS[set_name])
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion>\n"
        f"<groupId>kourou.interop</groupId><artifactId>{set_name}</artifactId><version>1</version>"
        f"<packaging>pom</packaging>\n<dependencies>\n{dependencies}</dependencies></project>\n"
    )


def _run_maven(set_name: str, target: Path) -> None:
    pom = target.parent / "pom.xml"
    partial = target.parent / "jars.partial"
    shutil.rmtree(partial, ignore_errors=True)
    pom.parent.mkdir(parents=True, exist_ok=True)
    pom.write_text(_pom(set_name))
    command = ["mvn", "-B", "-q", "-f", str(pom), _COPY_GOAL, f"-DoutputDirectory={partial}"]
    _run_with_retries(command, f"Maven cannot resolve {', '.join(ARTIFACT_SETS[set_name])}")
    # Renamed last: a folder under its final name is complete.
    partial.rename(target)


def _run_with_retries(command: list[str], failure: str) -> None:
    output = ""
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(_RETRY_PAUSE_S * attempt)
        output = _failed_output(command, _MAVEN_TIMEOUT_S)
        if not output:
            return
    raise ArtifactsUnavailable(f"{failure}, after {_ATTEMPTS} attempts:\n{output}")


def _failed_output(command: list[str], timeout_s: float) -> str:
    """Run a command; what it printed when it failed, and nothing when it succeeded."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    return f"{done.stdout}{done.stderr}"[-4000:] or f"exit status {done.returncode}"


def _compile(set_name: str, jars: str) -> Path:
    sources = [_SOURCES / f"{program}.java" for program in PROGRAMS[set_name]]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    target = resolve(set_name).parent / f"classes-{digest}"
    with _locked(set_name):
        if not target.is_dir():
            _run_javac(sources, jars, target)
    return target


def _run_javac(sources: list[Path], jars: str, target: Path) -> None:
    partial = target.parent / "classes.partial"
    shutil.rmtree(partial, ignore_errors=True)
    javac = java_tool("javac") or "javac"
    command = [javac, "-nowarn", "-encoding", "UTF-8", "-cp", jars, "-d", str(partial)]
    output = _failed_output([*command, *map(str, sources)], _JAVAC_TIMEOUT_S)
    if output:
        raise ArtifactsUnavailable(f"javac fails on {', '.join(s.name for s in sources)}:\n{output}")
    partial.rename(target)


@contextmanager
def _locked(set_name: str) -> Iterator[None]:
    """One process at a time fills a set: tests and benchmarks may start side by side."""
    cache_dir().mkdir(parents=True, exist_ok=True)
    with open(cache_dir() / f"{set_name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Fill the cache with every set; returns the exit status."""
    missing = missing_tools()
    if missing:
        print(f"interop artifacts: {missing}", file=sys.stderr)
        return 1
    for set_name in ARTIFACT_SETS:
        started = time.monotonic()
        try:
            class_path(set_name)
        except ArtifactsUnavailable as error:
            print(f"interop artifacts: {set_name}: {error}", file=sys.stderr)
            return 1
        print(f"interop artifacts: {set_name} ready ({time.monotonic() - started:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
