"""The doctor finds the process that listens on a port."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from kourou.admin.doctor.checks_machine import listening_pid


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux has /proc/net/tcp")
def test_the_process_that_listens_is_this_one() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert listening_pid(listener.getsockname()[1]) == os.getpid()
