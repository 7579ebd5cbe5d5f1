"""Commands about connected clients print what Apache's print for the same answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kourou.errors import ResponseError
from tests.golden.mqadmin import VERSIONS, recordings, run_replayed


@pytest.mark.parametrize("version", VERSIONS)
async def test_consumer_connection(version: str) -> None:
    """Apache prints subscriptions in the order of a hash table, we sort them."""
    recording = recordings(version)["consumerConnection"]
    ours, theirs = (await run_replayed(recording)).split("\n"), recording.stdout.split("\n")
    assert sorted(ours) == sorted(theirs)
    first, last = theirs.index("#Topic               #SubExpression") + 1, theirs.index("", 3)
    assert ours[:first] + ours[last:] == theirs[:first] + theirs[last:]
    assert ours[first:last] == sorted(theirs[first:last])


@pytest.mark.parametrize("version", VERSIONS)
async def test_consumer_connection_of_a_group_that_is_not_there(version: str) -> None:
    """Nothing on stdout, as Apache's; the error has the same code."""
    recording = recordings(version)["consumerConnection-offline"]
    assert recording.stdout == ""
    with pytest.raises(ResponseError, match="CODE: 17  DESC: No topic route info .*: %RETRY%CG_nobody"):
        await run_replayed(recording)


@pytest.mark.parametrize("version", VERSIONS)
async def test_producer_connection(version: str) -> None:
    recording = recordings(version)["producerConnection"]
    assert await run_replayed(recording) == recording.stdout


@pytest.mark.parametrize("version", VERSIONS)
async def test_producer(version: str) -> None:
    """Apache prints them in the order of hash tables, we sort them."""
    recording = recordings(version)["producer"]
    assert (await run_replayed(recording)).splitlines() == sorted(recording.stdout.splitlines())


def _masked(text: str) -> str:
    """The folder of the files is named after the moment: another one."""
    return re.sub(r"\d{13}/", "*/", text)


@pytest.mark.parametrize("version", VERSIONS)
async def test_consumer_status(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the file is what `-i` prints."""
    monkeypatch.chdir(tmp_path)
    recording = recordings(version)["consumerStatus"]
    assert _masked(await run_replayed(recording)) == _masked(recording.stdout)
    _check_files(tmp_path)


def _check_files(folder: Path) -> None:
    (written,) = folder.glob("*/127.0.0.1@CG_online")
    assert written.read_text().startswith("#Consumer Properties#\n")
    assert "#Consumer RT&TPS#" in written.read_text()


@pytest.mark.parametrize("version", VERSIONS)
async def test_consumer_status_of_a_client(version: str) -> None:
    """Apache prints properties in the order of a hash table, we sort them; all else is the same."""
    recording = recordings(version)["consumerStatus-client"]
    ours, theirs = (await run_replayed(recording)).split("\n"), recording.stdout.split("\n")
    end = theirs.index("")
    assert ours[0] == theirs[0]
    assert ours[1:end] == sorted(theirs[1:end])
    assert ours[end:] == theirs[end:]
