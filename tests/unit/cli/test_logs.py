"""Logging of a server process: what reaches the file and the console, and that nothing waits."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from kourou.logs import FILE_ONLY, LogConfig, LogLevel, can_write, logging_to

log = logging.getLogger("kourou.test")


@pytest.fixture(autouse=True)
def _root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    yield
    assert (list(root.handlers), root.level) == before


def test_lines_are_in_the_file_on_leaving(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "namesrv.log"
    with logging_to(LogConfig(path)):
        for number in range(1000):
            log.info("line %d", number)
        log.debug("not this one")
    lines = path.read_text().splitlines()
    assert len(lines) == 1000
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO    kourou\.test - line 999", lines[-1])


def test_the_console_gets_only_what_matters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to(LogConfig(tmp_path / "a.log")):
        log.info("quiet")
        log.warning("loud")
    assert capsys.readouterr().err == "WARNING: loud\n"


def test_without_a_file_the_console_gets_everything(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to(LogConfig(None, LogLevel.DEBUG)):
        log.debug("all")
    assert capsys.readouterr().err.endswith(" DEBUG   kourou.test - all\n")


@pytest.mark.parametrize("name", ["a.log", None])
def test_what_is_reported_elsewhere_is_not_on_the_console(
    name: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = None if name is None else tmp_path / name
    with logging_to(LogConfig(path)):
        log.error("told", extra=FILE_ONLY)
    assert capsys.readouterr().err == ""
    assert path is None or path.read_text().endswith(" ERROR   kourou.test - told\n")


def test_an_exception_is_in_the_file_with_its_traceback(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with logging_to(LogConfig(path)):
        try:
            raise ValueError("why")
        except ValueError:
            log.exception("failed")
    assert "Traceback" in path.read_text() and "ValueError: why" in path.read_text()


def test_a_full_file_is_set_aside_and_only_so_many_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    with logging_to(LogConfig(path, max_bytes=500, backups=2)):
        for number in range(50):
            log.info("a line of some length, number %d", number)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.log", "a.log.1", "a.log.2"]
    assert all(entry.stat().st_size <= 500 for entry in tmp_path.iterdir())
    assert path.read_text().endswith("number 49\n")


def test_a_log_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "a.log"
    assert not can_write(path)
    with (
        pytest.raises(ConfigError, match=rf"log file {path}: cannot be written: "),
        logging_to(LogConfig(path)),
    ):
        raise AssertionError("not reached")


def test_when_the_disk_cannot_keep_up_lines_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.logs._WaitingListener.start", lambda self: None)
    started: list[object] = []
    monkeypatch.setattr("kourou.logs._WaitingListener.stop", lambda self: started.append(self.queue))
    with logging_to(LogConfig(tmp_path / "a.log", queue_records=3)):
        for number in range(5):
            log.info("line %d", number)
        records = logging.getLogger().handlers[-1].queue  # type: ignore[attr-defined]
        assert [records.get().message for _ in range(3)] == ["line 0", "line 1", "line 2"]
        log.info("again")
        assert records.get().getMessage().startswith("2 log lines dropped")
        assert records.get().message == "again"
    assert started
