"""Pid files and processes other than this one."""

from __future__ import annotations

import os
import subprocess
import sys

from kourou import pidfile
from kourou.pidfile import process_started


def test_a_process_that_ended_is_gone_even_before_its_parent_looked() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        # Waits for the end and leaves the child as a zombie.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process_started(child.pid) is None


def test_ps_tells_start_times_where_there_is_no_proc() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        started = pidfile._started_by_ps(child.pid)
        assert started is not None and started == pidfile._started_by_ps(child.pid)
    assert pidfile._started_by_ps(child.pid) is None
