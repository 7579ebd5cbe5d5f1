"""The clients that are measured: ours by `kourou bench`, Apache's Java client by ClientLoad.java."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

OURS = "Kourou"
JAVA = "Java 5.5.0"
SOURCE = Path(__file__).parent / "ClientLoad.java"
SPARE_S = 120
# The heap is ample for the window; headers as Apache's own benchmark scripts choose them.
JVM_OPTIONS = ("-server", "-Xms512m", "-Xmx1g", "-XX:+UseG1GC", "-Drocketmq.serialize.type=ROCKETMQ")


class ClientError(RuntimeError):
    """A client ended without a result."""


@dataclass(frozen=True)
class Asked:
    """One measurement. `mode` is that of ClientLoad.java, which says what `number` is."""

    mode: str
    topic: str
    group: str
    number: int
    size_bytes: int
    warm_up_s: float
    seconds: float


@dataclass(frozen=True)
class Measured:
    """What came of it; latencies are those of sends, or from end to end."""

    messages_per_s: float
    cpu_us: float
    p50_ms: float
    p99_ms: float
    failed: int


class Client(Protocol):
    """Something that can be asked to do a load."""

    name: str

    def measure(self, asked: Asked) -> Measured:
        """One measurement. ClientError if there is no result."""


class OurClient:
    """`kourou bench` of this tree, in a process of its own."""

    name = OURS

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv

    def measure(self, asked: Asked) -> Measured:
        """One measurement."""
        words = [sys.executable, "-m", "kourou.cli.main", "bench", *_bench_words(asked)]
        words += ["-n", self._namesrv, "-t", asked.topic, "--json"]
        words += ["--warm-up", str(asked.warm_up_s), "--seconds", str(asked.seconds)]
        result = _run_json(words, asked)
        counts = result["counts"]
        times = result["times_ms"].get("end_to_end") or result["times_ms"].get("rt")
        return Measured(
            messages_per_s=result["messages_per_s"],
            cpu_us=result["cpu_us_per_message"] or 0.0,
            p50_ms=times["p50"] if times else 0.0,
            p99_ms=times["p99"] if times else 0.0,
            failed=counts.get("send_failed", 0) + counts.get("response_failed", 0) + counts.get("failed", 0),
        )


def _bench_words(asked: Asked) -> list[str]:
    number, size = str(asked.number), str(asked.size_bytes)
    if asked.mode == "threads":
        return ["producer", "-w", number, "-s", size]
    if asked.mode == "window":
        return ["producer", "-y", "true", "--in-flight", number, "-s", size]
    if asked.mode == "latency":
        return ["latency", "-r", number, "-s", size]
    return ["consumer", "-g", asked.group, "--consume-from", "first", "-q", number]


class JavaClient:
    """Apache's client 5.5.0, in a JVM of its own."""

    name = JAVA

    def __init__(self, namesrv: str, folder: Path) -> None:
        from tests.interop.kit import apache

        self._namesrv = namesrv
        *words, class_path = apache.java_command("server-5.5.0", folder, JVM_OPTIONS)
        classes = _compiled(folder, class_path)
        self._command = [*words, f"{classes}{os.pathsep}{class_path}", SOURCE.stem]

    def measure(self, asked: Asked) -> Measured:
        """One measurement."""
        numbers = (asked.number, asked.size_bytes, asked.warm_up_s, asked.seconds)
        words = [asked.mode, self._namesrv, asked.topic, asked.group, *map(str, numbers)]
        result = _run_json([*self._command, *words], asked)
        return Measured(
            messages_per_s=result["messages_per_s"],
            cpu_us=result["cpu_us_per_message"],
            p50_ms=result["p50_ms"],
            p99_ms=result["p99_ms"],
            failed=result["failed"],
        )


def _compiled(folder: Path, class_path: str) -> Path:
    from tests.interop.kit import artifacts

    classes = folder / "classes"
    javac = artifacts.java_tool("javac") or "javac"
    words = [javac, "-nowarn", "-encoding", "UTF-8", "-cp", class_path, "-d", str(classes), str(SOURCE)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=SPARE_S)
    if done.returncode != 0:
        raise ClientError(f"javac does not compile {SOURCE.name}:\n{done.stderr}")
    return classes


def _run_json(words: list[str], asked: Asked) -> dict[str, Any]:
    timeout_s = asked.warm_up_s + asked.seconds + SPARE_S
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout_s)
    beginning = done.stdout.find("{")
    if done.returncode != 0 or beginning < 0:
        raise ClientError(
            f"{asked.mode}: exit status {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-2000:]}"
        )
    result: dict[str, Any] = json.loads(done.stdout[beginning:])
    if not result["messages_per_s"]:
        raise ClientError(
            f"{asked.mode}: no message in {asked.seconds:g} s; the backlog was over, or: {done.stderr}"
        )
    return result
