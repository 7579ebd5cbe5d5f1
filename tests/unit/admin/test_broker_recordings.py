"""Commands about brokers print what Apache's print for the same answers."""

from __future__ import annotations

import pytest

from tests.golden.mqadmin import VERSIONS, recordings, run_replayed


@pytest.mark.parametrize(
    "name",
    [
        "brokerStatus",
        "brokerStatus-binary",
        "brokerConsumeStats",
        "brokerConsumeStats-o",
        "updateBrokerConfig",
        "wipeWritePerm",
        "addWritePerm",
        "cleanExpiredCQ",
        "cleanUnusedTopic",
        "deleteExpiredCommitLog",
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
async def test_the_same_text(version: str, name: str) -> None:
    recording = recordings(version)[name]
    assert await run_replayed(recording) == recording.stdout


@pytest.mark.parametrize("name", ["haStatus", "getColdDataFlowCtrInfo"])
async def test_the_same_text_of_5x_only(name: str) -> None:
    recording = recordings("5.5.0")[name]
    assert await run_replayed(recording) == recording.stdout


@pytest.mark.parametrize("version", VERSIONS)
async def test_get_broker_config(version: str) -> None:
    # Apache prints the keys in the order of a hash table.
    recording = recordings(version)["getBrokerConfig"]
    ours = (await run_replayed(recording)).split("\n")
    theirs = recording.stdout.split("\n")
    assert ours[0] == theirs[0] and ours[-2:] == theirs[-2:] == ["", ""]
    assert ours[1:-2] == sorted(theirs[1:-2])
