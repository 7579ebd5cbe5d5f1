"""kill -9 of a program that reads, processes and writes, at each of its points: each result is there once."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kourou.client.sync.producer import Producer
from kourou.protocol.message import Message
from kourou.testing import LocalCluster
from tests.child_process import dies_with_parent
from tests.crash.killed_broker import environment
from tests.crash.processing_program import POINTS, SOURCE, STEP, TARGET

_MESSAGES = 100
_LIFE_S = 60
_NTHS = (1, 2, STEP + 1)


def life(namesrv: str, point: str, nth: int, home: Path) -> int:
    """The exit code of one life of the program."""
    arguments = [namesrv, str(_MESSAGES), point, str(nth)]
    command = [*dies_with_parent(), sys.executable, "-m", "tests.crash.processing_program", *arguments]
    return subprocess.run(command, env=environment(home), timeout=_LIFE_S, check=False).returncode


@pytest.mark.slow
def test_each_result_is_written_once_and_in_order_whenever_the_program_is_killed(tmp_path: Path) -> None:
    with LocalCluster() as mq:
        for queue in (SOURCE, TARGET):
            mq.create_topic(queue.topic, queues=1)
        with Producer("sources", namesrv=mq.namesrv) as producer:
            producer.send_many([Message(SOURCE.topic, b"%d" % number) for number in range(_MESSAGES)])
        wanted = [b"<%d>" % number for number in range(_MESSAGES) if number % 5 != 4]
        for point in POINTS:
            # A program opens its name once in its life.
            for nth in _NTHS if point != "opened" else (1,):
                assert life(mq.namesrv, point, nth, tmp_path) == -signal.SIGKILL, (point, nth)
                written = [message.body for message in mq.messages(TARGET.topic)]
                assert written == wanted[: len(written)], (point, nth)
        assert len(written) < len(wanted), "there was nothing left to do"
        assert life(mq.namesrv, "never", 1, tmp_path) == 0
        assert [message.body for message in mq.messages(TARGET.topic)] == wanted
        # It has nothing to do, and does nothing.
        assert life(mq.namesrv, "never", 1, tmp_path) == 0
        assert [message.body for message in mq.messages(TARGET.topic)] == wanted
