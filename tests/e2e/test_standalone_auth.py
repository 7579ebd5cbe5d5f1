"""`kourou standalone --auth`: access control without a configuration, from one broker to a fail-over set."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kourou.access.auth.model import User, UserType
from kourou.client import Credentials, Producer, PullConsumer
from kourou.cli.admin.connecting import read_tools_file
from kourou.errors import KourouError
from tests.e2e.server_process import ServerProcess
from tests.e2e.test_standalone_command import FREE, brokers_of, processes_of, ready
from tests.needed import need

pytestmark = pytest.mark.e2e

Spawn = Callable[..., ServerProcess]
SHOWN = re.compile(r"administrator: accessKey=(\S+) secretKey=(\S+); shown this once, kept for (.+)")


@pytest.fixture
def spawn(tmp_path: Path) -> Iterator[Spawn]:
    """Starts standalone with a store of the test's own; what still runs at the end is killed."""
    home = tmp_path / "home"
    home.mkdir()
    left_out = ("XDG_", "ROCKETMQ_", "NAMESRV_")
    environ = {name: text for name, text in os.environ.items() if not name.startswith(left_out)}
    started: list[ServerProcess] = []

    def start(*arguments: str) -> ServerProcess:
        folder = tmp_path / f"process-{len(started)}"
        command = ["standalone", "--store", str(tmp_path / "store"), *FREE, "--auth", *arguments]
        started.append(ServerProcess("kourou.cli.main", command, {**environ, "HOME": str(home)}, folder))
        return started[-1]

    yield start
    for server in started:
        server.kill()
