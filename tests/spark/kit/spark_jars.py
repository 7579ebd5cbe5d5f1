"""Jars that pipelines are tested with: a database and Spark's Avro; by Maven, kept in the cache."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.interop.kit.artifacts import cache_dir
from tests.needed import need

H2: Final = "com.h2database:h2:2.3.232"
AVRO: Final = "org.apache.spark:spark-avro_2.13:4.1.1"
_GOAL: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_TIMEOUT_S: Final = 300
_ATTEMPTS: Final = 3


def jar(artifact: str) -> Path:
    """The jar of `group:name:version`; the test is skipped where it cannot be had."""
    _, name, version = artifact.split(":")
    folder = cache_dir() / "spark-jars"
    path = folder / f"{name}-{version}.jar"
    for _ in range(_ATTEMPTS if shutil.which("mvn") else 0):
        if path.exists():
            break
        _bring(artifact, path)
    need(f"{artifact} (Maven)", path.exists())
    return path


def _bring(artifact: str, path: Path) -> None:
    """Maven copies into a folder of its own first: a jar under its final name is complete."""
    partial = path.parent / f"partial-{path.stem}"
    command = ["mvn", "-B", "-q", _GOAL, f"-Dartifact={artifact}", f"-DoutputDirectory={partial}"]
    subprocess.run(command, timeout=_TIMEOUT_S, capture_output=True)
    if (partial / path.name).exists():
        (partial / path.name).replace(path)
    shutil.rmtree(partial, ignore_errors=True)
