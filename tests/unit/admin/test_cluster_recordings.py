"""Commands about clusters print what Apache's print for the same answers.

clusterRT and sendMsgStatus send real messages; they are compared in test_cluster_commands.py and
test_broker_commands.py, with times and ids masked.
"""

from __future__ import annotations

import pytest

from kourou.cli.admin import cluster_commands
from kourou.protocol.bodies import KVTable, decode_body
from kourou.protocol.codes import RequestCode
from tests.golden.mqadmin import VERSIONS, Recording, recordings, run_replayed


def _recorded_now_ms(recording: Recording) -> int:
    """When it was recorded: Apache prints how many hours the first message was old then."""
    (table,) = (
        decode_body(exchange.answer.body, KVTable).table
        for exchange in recording.exchanges
        if exchange.request.code == RequestCode.GET_BROKER_RUNTIME_INFO
    )
    hours = {"4.9.7": "498531.49", "5.5.0": "0.42"}[recording.version]
    assert f" {hours} " in recording.stdout
    return int(table["earliestMessageTimeStamp"]) + round(float(hours) * 3_600_000)


@pytest.mark.parametrize("version", VERSIONS)
async def test_cluster_list(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = recordings(version)["clusterList"]
    moment = _recorded_now_ms(recording)
    monkeypatch.setattr(cluster_commands, "wall_ms", lambda: moment)
    assert await run_replayed(recording) == recording.stdout


@pytest.mark.parametrize("version", VERSIONS)
async def test_cluster_list_with_totals(version: str) -> None:
    recording = recordings(version)["clusterList-m"]
    assert await run_replayed(recording) == recording.stdout
