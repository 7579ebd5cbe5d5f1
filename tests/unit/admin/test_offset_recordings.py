"""Commands that move consumer groups print what Apache's print for the same answers.

Apache prints the queues in the order of a hash table, we sort them: the lines are compared sorted.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from kourou.errors import ResponseError
from tests.golden.mqadmin import VERSIONS, recordings, run_replayed


def _sorted_queues(text: str) -> list[str]:
    """The lines of an output, those of queues sorted, the moment of `-s now` masked: it is another one."""
    lines = [
        re.sub(r"\[now\], timestamp\(long\)\[\d+\]", "[now], timestamp(long)[*]", line)
        for line in text.split("\n")
    ]
    return [line for line in lines if not line.startswith("broker-")] + sorted(
        line for line in lines if line.startswith("broker-")
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["resetOffsetByTime", "resetOffsetByTime-offline", "skipAccumulatedMessage"])
async def test_reset(version: str, name: str) -> None:
    recording = recordings(version)[name]
    assert _sorted_queues(await run_replayed(recording)) == _sorted_queues(recording.stdout)


async def test_now_means_the_end_in_4() -> None:
    """`-s now` of 4.9 is -1, so nothing is masked."""
    assert "timestamp(string)[now], timestamp(long)[-1]" in await run_replayed(
        recordings("4.9.7")["resetOffsetByTime"]
    )


@pytest.mark.parametrize("version", VERSIONS)
async def test_clone(version: str) -> None:
    """5.5.0 was recorded twice: first the target did not exist. What was printed is of the second run."""
    recording = recordings(version)["cloneGroupOffset"]
    refused = [place for place, exchange in enumerate(recording.exchanges) if exchange.answer.code == 26]
    exchanges = recording.exchanges[refused[-1] + 1 :] if refused else recording.exchanges
    assert await run_replayed(replace(recording, exchanges=exchanges)) == recording.stdout


async def test_clone_to_a_group_that_does_not_exist() -> None:
    with pytest.raises(ResponseError, match="CODE: 26  DESC: Group CG_cloned not exist!"):
        await run_replayed(recordings("5.5.0")["cloneGroupOffset"])
