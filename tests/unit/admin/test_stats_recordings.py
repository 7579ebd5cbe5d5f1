"""Commands about progress print what Apache's print for the same answers."""

from __future__ import annotations

import pytest

from kourou.errors import ResponseError
from tests.golden.mqadmin import VERSIONS, recordings, run_replayed


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "name", ["consumerProgress-g", "consumerProgress-offline", "consumerProgress-binary"]
)
async def test_progress_of_a_group(version: str, name: str) -> None:
    recording = recordings(version)[name]
    assert await run_replayed(recording) == recording.stdout


@pytest.mark.parametrize("version", VERSIONS)
async def test_progress_of_a_group_without_retry_topic(version: str) -> None:
    """Nothing on stdout, as Apache's; the error has the same code."""
    recording = recordings(version)["consumerProgress-cloned"]
    assert recording.stdout == ""
    with pytest.raises(ResponseError, match="CODE: 17  DESC: No topic route info .*: %RETRY%CG_cloned"):
        await run_replayed(recording)


@pytest.mark.parametrize("version", VERSIONS)
async def test_progress_of_all_groups(version: str) -> None:
    """Apache prints them in the order of a hash table, we sort them."""
    recording = recordings(version)["consumerProgress"]
    ours, theirs = (await run_replayed(recording)).splitlines(), recording.stdout.splitlines()
    assert ours[0] == theirs[0]
    assert ours[1:] == sorted(theirs[1:])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["statsAll", "statsAll-a"])
async def test_stats_all(version: str, name: str) -> None:
    """Apache prints topics in the order of a hash table, we sort them."""
    recording = recordings(version)[name]
    ours, theirs = (await run_replayed(recording)).splitlines(), recording.stdout.splitlines()
    assert ours[0] == theirs[0]
    assert ours[1:] == sorted(theirs[1:])
