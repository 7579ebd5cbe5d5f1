"""Ctrl-C at any moment of a program: it ends soon, and tells of nothing but the KeyboardInterrupt."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.client.pull_kit import cluster_thread
from tests.e2e.client.push_kit import make_topic

pytestmark = pytest.mark.e2e

LIMIT_S = 20.0
LIVES = {
    "producer": 'Producer("x")',
    "transaction producer": 'TransactionProducer("t", check=lambda message: TransactionState.COMMIT)',
    "push consumer": 'PushConsumer("p")',
    "lite pull consumer": 'LitePullConsumer("l")',
    "pull consumer": 'PullConsumer("r")',
}
PROGRAM = """
import sys
from kourou import *
clients = [{client}]
print("go", flush=True)
while True:
    for made in clients:
        with made():
            pass
"""


def interrupted(program: str, namesrv: str, after_s: float) -> tuple[int, str]:
    """Run a program, interrupt it; its status and what it complained of."""
    environ = {**os.environ, "NAMESRV_ADDR": namesrv}
    command = [sys.executable, "-W", "error", "-X", "dev", "-c", program]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"go\n"
            time.sleep(after_s)  # anywhere in the program is what is tested
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    # On a busy machine asyncio's debug mode tells of steps that took long.
    told = [line for line in errors.decode().splitlines() if not line.startswith("Executing <")]
    return process.returncode, "\n".join(told)


# Inside Python's own making of a socket nobody else has it yet, to close it.
_IN_THE_MAKING = re.compile(r'(socket\.py", line \d+, in __init__\n.*\nKeyboardInterrupt)\n.*', re.DOTALL)


def check_quiet(status: int, errors: str) -> None:
    errors = _IN_THE_MAKING.sub(r"\1", errors)
    assert status == -signal.SIGINT, errors
    assert errors.startswith("Traceback") and errors.count("Traceback") == 1, errors
    assert errors.splitlines()[-1].startswith("KeyboardInterrupt"), errors


@pytest.mark.slow
@pytest.mark.parametrize("client", LIVES.values(), ids=LIVES)
def test_ctrl_c_in_the_middle_of_starts_and_stops(tmp_path: Path, client: str) -> None:
    seed = random.randrange(1 << 30)
    print("seed", seed)
    chance = random.Random(seed)
    with cluster_thread(tmp_path) as running:
        running.run(make_topic)
        for _ in range(4):
            program = PROGRAM.format(client=f"lambda: {client}")
            check_quiet(*interrupted(program, running.namesrv_addr, chance.uniform(0.0, 0.3)))
