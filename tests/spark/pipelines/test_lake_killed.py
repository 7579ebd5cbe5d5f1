"""Writers of lake tables killed at any moment, and readers beside them: all rows of whole batches, once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.crash.rounds import NIGHTLY
from tests.needed import need_module
from tests.unit.pipelines.lake_kit import FORMATS, numbers_in, pq, table_of

need_module("deltalake")

from kourou.spark.pipelines.lake.lake import LakeTable, open_backend  # noqa: E402
from tests.spark.kit.lake_child import ROWS  # noqa: E402

pytestmark = [pytest.mark.crash, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
KILLS = 20 if NIGHTLY else 2
NO_END = 1_000_000  # batches that no writer gets to before it is killed
TIMEOUT_S = 300


def start(table: LakeTable, batches: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.kit.lake_child", table.format, str(table.folder), str(batches)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def look(table: LakeTable) -> int:
    """Read the table as it is: whole batches, each once. Gives how many."""
    snapshot = open_backend(table).snapshot()
    if snapshot is None:
        return 0
    time.sleep(0.02)  # the writer goes on between the look at the table and the look into its files
    numbers = numbers_in(table, snapshot)
    assert numbers == list(range(len(numbers)))
    assert len(numbers) % ROWS == 0
    return len(numbers) // ROWS


@pytest.mark.parametrize("format", FORMATS)
def test_killed_at_any_moment_with_a_reader_beside_it(tmp_path: Path, format: str) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    table = table_of(format, tmp_path / "table")
    seen = 0
    for kill in range(KILLS):
        with start(table, NO_END) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randrange(1, 5)):
                assert writer.stdout.readline(), "it ended by itself"
                now = look(table)
                assert now >= seen, "batches were there and are not any more"
                seen = now
            time.sleep(chance.random() * 0.15)
            writer.kill()
            writer.wait(TIMEOUT_S)
            assert writer.returncode == -signal.SIGKILL, f"kill {kill} came too late"
        seen = max(seen, look(table))
    batches = seen + 10
    with start(table, batches) as writer:
        writer.communicate(timeout=TIMEOUT_S)
    assert writer.returncode == 0
    assert look(table) == batches
    if format == "parquet":
        shown: list[int] = pq.read_table(table.folder)["number"].to_pylist()
        assert sorted(shown) == list(range(batches * ROWS))
