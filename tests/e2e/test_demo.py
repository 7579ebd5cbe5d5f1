"""`kourou demo`: shows a broker at work, leaves nothing behind, ends by itself."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

COMMAND = [sys.executable, "-m", "kourou.cli.main", "demo", "--seconds", "1"]
LINE = re.compile(r" *[\d.]+ s  (\w+) +(\d+) messages, in +(\d+)/s, (\w+) out +(\d+)/s, lag (\d+)")


def environ(home: Path) -> dict[str, str]:
    (home / "tmp").mkdir()
    return {**os.environ, "HOME": str(home), "TMPDIR": str(home / "tmp"), "TERM": "xterm", "COLUMNS": "120"}


def test_into_a_file_it_prints_lines(tmp_path: Path) -> None:
    done = subprocess.run(
        COMMAND, env=environ(tmp_path), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = [found.groups() for found in map(LINE.match, done.stdout.splitlines()) if found]
    assert [(topic, group) for topic, _, _, group, _, _ in rows[:3]] == [
        ("orders", "billing"),
        ("payments", "ledger"),
        ("audit", "archive"),
    ]
    for topic, messages, rate_in, _, rate_out, lag in rows[-3:]:
        assert int(messages) > 0 and int(rate_in) > 0 and int(rate_out) > 0
        assert (int(lag) > 0) or topic != "audit"
    assert re.search(r"\d messages stored and [\d,]+ consumed", done.stdout)
    assert "kourou standalone" in done.stdout
    assert list(tmp_path.rglob("*")) == [tmp_path / "tmp"]


def test_on_a_terminal_it_is_a_table_that_changes(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(COMMAND, env=environ(tmp_path), stdout=theirs, stderr=subprocess.PIPE) as process:
        os.close(theirs)
        shown = _read_all(ours)
        assert process.wait(60) == 0
        assert process.stderr is not None and process.stderr.read() == b""
    assert shown.count("orders") > 1 and shown.count("archive") > 1
    for title in ("Topic", "In/s", "Out/s", "Lag"):
        assert title in shown


def _read_all(terminal: int) -> str:
    parts = []
    try:
        while part := os.read(terminal, 65_536):
            parts.append(part)
    except OSError:
        pass  # Linux says EIO when the other side has gone
    finally:
        os.close(terminal)
    return b"".join(parts).decode(errors="replace")
