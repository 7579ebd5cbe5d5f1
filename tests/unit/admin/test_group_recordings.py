"""Commands about consumer groups print what Apache's print for the same answers."""

from __future__ import annotations

import pytest

from tests.golden.mqadmin import VERSIONS, recordings, run_replayed


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["updateSubGroup", "deleteSubGroup", "getConsumerConfig"])
async def test_group_command(version: str, name: str) -> None:
    recording = recordings(version)[name]
    assert await run_replayed(recording) == recording.stdout


@pytest.mark.parametrize("name", ["updateSubGroup-clone", "setConsumeMode"])
async def test_group_command_of_5(name: str) -> None:
    recording = recordings("5.5.0")[name]
    assert await run_replayed(recording) == recording.stdout
