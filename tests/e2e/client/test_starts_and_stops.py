"""A hundred starts and stops of every client, a thousand in a nightly run: nothing of them is left open."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.client.kit.pull_kit import cluster_thread
from tests.e2e.client.kit.push_kit import make_topic

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
COUNT = 1_000 if os.environ.get("KOUROU_NIGHTLY") == "1" else 100


@pytest.mark.parametrize(("kind", "count"), [("asyncio", COUNT), ("uvloop", COUNT // 10), ("plain", COUNT)])
def test_starts_and_stops_of_every_client_leave_nothing_open(tmp_path: Path, kind: str, count: int) -> None:
    with cluster_thread(tmp_path) as running:
        running.run(lambda cluster: make_topic(cluster, queues=1))
        running.put([b"first"])
        arguments = (kind, running.namesrv_addr, str(count), str(tmp_path / "offsets"))
        command = [sys.executable, "-W", "error", "-m", "tests.e2e.client.kit.lives", *arguments]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10 + 3 * count)
    assert (ran.returncode, ran.stderr) == (0, "")
