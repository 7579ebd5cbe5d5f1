"""Commands about name servers print what Apache's print for the same answers."""

from __future__ import annotations

import pytest

from tests.golden.mqadmin import VERSIONS, recordings, run_replayed


@pytest.mark.parametrize("name", ["updateKvConfig", "deleteKvConfig", "updateNamesrvConfig"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_the_same_text(version: str, name: str) -> None:
    recording = recordings(version)[name]
    assert await run_replayed(recording) == recording.stdout


@pytest.mark.parametrize("version", VERSIONS)
async def test_get_namesrv_config(version: str) -> None:
    # Apache prints the keys in the order of a hash table.
    recording = recordings(version)["getNamesrvConfig"]
    ours = (await run_replayed(recording)).splitlines()
    theirs = recording.stdout.splitlines()
    assert ours == [theirs[0], *sorted(theirs[1:])]
