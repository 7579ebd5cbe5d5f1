"""`python -m benchmarks`: the first word names the measurement, the rest are its own."""

from __future__ import annotations

import sys

import pytest
from benchmarks import __main__ as main


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """What would have been run: the module and its command line."""
    found: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(sys, "argv", ["benchmarks"])
    monkeypatch.setattr("runpy.run_module", lambda name, run_name: found.append((name, sys.argv[1:])))
    return found


def test_words_after_the_name_are_passed_on(started: list[tuple[str, list[str]]]) -> None:
    assert main.main(["compare", "--full", "--rows", "pull"]) == 0
    assert started == [("benchmarks.compare", ["--full", "--rows", "pull"])]


def test_without_words_it_is_the_quick_comparison(started: list[tuple[str, list[str]]]) -> None:
    assert main.main([]) == 0
    assert started == [("benchmarks.compare", ["--quick"])]


def test_an_unknown_name_lists_those_there_are(
    started: list[tuple[str, list[str]]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["nothing"]) == 2
    assert started == []
    said = capsys.readouterr().err
    assert "compare" in said and "soak" in said and "_official" not in said
