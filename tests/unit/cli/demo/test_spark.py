"""The Spark part of the demo where there is no Spark, and where it found something else."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from rich.console import Console

from kourou.cli.demo import spark as demo_spark
from kourou.errors import ConfigError, KourouError


def shown(folder: Path) -> str:
    """What is printed; no server is there, so nothing can be sent."""
    console = Console(file=io.StringIO(), width=60)
    asyncio.run(demo_spark.show_spark(console, "127.0.0.1:1", folder))
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_without_pyspark_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert shown(tmp_path) == (
        "Spark: skipped: pyspark and pyarrow not installed; pip install 'kourou[spark]' (about 460 MB)\n"
    )


def test_without_java_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def find_nothing(environ: object) -> None:
        raise ConfigError("Spark needs Java 17 or newer, and none was found: set JAVA_HOME", "PATH: none")

    monkeypatch.setattr("importlib.util.find_spec", lambda name: name)
    monkeypatch.setattr(demo_spark, "find_java", find_nothing)
    words = "Spark needs Java 17 or newer, and none was found: set JAVA_HOME"
    assert shown(tmp_path) == f"Spark: skipped: {words}\n"


def test_sums_that_are_wrong_end_the_demo() -> None:
    orders = [{"amount": "1.25"}, {"amount": "2.50"}]
    demo_spark._check([["10:00", 1, "1.25", "tea"], ["10:10", 1, "2.50", "tea"]], orders)
    with pytest.raises(KourouError, match="found 1 orders over 1.25; 2 over 3.75 were sent"):
        demo_spark._check([["10:00", 1, "1.25", "tea"]], orders)


@pytest.mark.parametrize(
    ("errors", "story"),
    [
        ("", "it ended without output"),
        ("java: not found\n", "java: not found"),
        ('WARN x\nTraceback:\n  File "a", line 1\n    x()\nE: no\n good\n\n', "E: no  good"),
    ],
)
def test_the_end_of_a_job_that_failed(errors: str, story: str) -> None:
    assert demo_spark._story(errors) == story
