"""Pid files and processes other than this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kourou import pidfile
from kourou.cli.mqshutdown import shut_down
from kourou.pidfile import process_started


def test_a_process_that_ended_is_gone_even_before_its_parent_looked() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        # Waits for the end and leaves the child as a zombie.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process_started(child.pid) is None


def test_ps_reports_start_times_where_there_is_no_proc() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        started = pidfile._started_by_ps(child.pid)
        assert started is not None and started == pidfile._started_by_ps(child.pid)
    assert pidfile._started_by_ps(child.pid) is None


def test_mqshutdown_stops_a_server_that_still_recovers_its_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = (
        "import sys; from pathlib import Path; from kourou.pidfile import STARTING, pid_file\n"
        "with pid_file(Path(sys.argv[1]), 'standalone', STARTING): print(flush=True); input()\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline()
        assert shut_down("standalone", tmp_path)
        assert capsys.readouterr().out == (
            f"The standalone({child.pid}), still starting, is stopping...\n"
            f"The standalone({child.pid}) has stopped.\n"
        )
        assert child.wait(30) == -signal.SIGTERM
    assert not shut_down("standalone", tmp_path)
    assert capsys.readouterr().out == "No standalone running.\n"
