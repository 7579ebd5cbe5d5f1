"""Ctrl-C at every call inside the start and the stop of a sync client: it is raised, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.client.kit.pull_kit import cluster_thread
from tests.e2e.client.kit.push_kit import make_topic

pytestmark = pytest.mark.e2e

LIMIT_S = 300.0
LIVES = {
    "producer": 'Producer("x")',
    "transaction producer": 'TransactionProducer("t", check=lambda message: TransactionState.COMMIT)',
    "push consumer": 'PushConsumer("p")',
    "lite pull consumer": 'LitePullConsumer("l")',
    "pull consumer": 'PullConsumer("r")',
}
# A signal is delivered where a function begins. Only in our functions: Python's own lose one now and then.
PROGRAM = """
import sys
from itertools import count
from pathlib import Path
import kourou
from kourou import *

PACKAGE = str(Path(kourou.__file__).parent)

def interrupt_at(number):
    calls = count()
    def trace(frame, event, argument):
        if frame.f_code.co_filename.startswith(PACKAGE) and next(calls) == number:
            sys.settrace(None)
            raise KeyboardInterrupt
    sys.settrace(trace)

def life():
    with {client}:
        pass

life()
for number in count():
    try:
        interrupt_at(number)
        life()
    except KeyboardInterrupt:
        continue
    finally:
        sys.settrace(None)
    break
life()
print(number)
"""


@pytest.mark.slow
@pytest.mark.parametrize("client", LIVES.values(), ids=LIVES)
def test_ctrl_c_in_the_middle_of_starts_and_stops(tmp_path: Path, client: str) -> None:
    with cluster_thread(tmp_path) as running:
        running.run(make_topic)
        environ = {**os.environ, "NAMESRV_ADDR": running.namesrv_addr}
        command = [sys.executable, "-X", "dev", "-c", PROGRAM.format(client=client)]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=LIMIT_S)
    # On a busy machine asyncio's debug mode tells of steps that took long.
    reported = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]
    assert (done.returncode, reported) == (0, [])
    assert int(done.stdout) > 30  # moments, all of them
