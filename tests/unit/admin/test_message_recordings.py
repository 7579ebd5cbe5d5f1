"""Commands about messages print what Apache's print for the same answers.

Properties are compared as a set: Java prints them in the order of a hash table, we sort them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kourou.admin.messages import message_reading
from kourou.admin.messages.message_reading import QueuePlace
from kourou.admin.session import Admin
from kourou.cli.admin.message import message_report
from kourou.cli.admin.message import print_commands as message_print_commands
from kourou.errors import ResponseError
from kourou.protocol.codes import RequestCode
from tests.golden.mqadmin import VERSIONS, Recording, recordings, run_replayed

_PROPERTIES = re.compile(r"(?<=\{)(?:[\w-]+=[^,{}]*, )+[\w-]+=[^,{}]*(?=\})")
_JAVA_ERROR = re.compile(r"org\.apache\.[\w.]+Exception: (CODE: \d+  DESC: [^\n\]]*)\nSee [^\]]*(?=\])")
_APACHES_FOLDER = "/tmp/rocketmq/msgbodys"


def _plain(text: str) -> str:
    """With properties sorted, and without the Java class and place of an error."""
    text = _JAVA_ERROR.sub(r"\1", text)
    return _PROPERTIES.sub(lambda found: ", ".join(sorted(found[0].split(", "))), text)


def _last_run(recording: Recording) -> Recording:
    """Some commands were recorded several times under one name; what was printed is of the last."""
    is_end = [exchange.request.code == RequestCode.UNREGISTER_CLIENT for exchange in recording.exchanges]
    begins = [place for place in range(1, len(is_end)) if is_end[place - 1] and not is_end[place]]
    begin = begins[-1] if begins else 0
    return replace(recording, exchanges=recording.exchanges[begin:])


def _only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


@pytest.fixture(autouse=True)
def body_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Bodies are not written to the place that is common to the machine."""
    monkeypatch.setattr(message_report, "DEFAULT_BODY_FOLDER", str(tmp_path / "msgbodys"))
    return tmp_path / "msgbodys"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["queryMsgById", "queryMsgByUniqueKey", "queryMsgByOffset"])
async def test_one_message(version: str, name: str, body_folder: Path) -> None:
    recording = _last_run(recordings(version)[name])
    printed = await run_replayed(recording)
    assert _plain(printed).replace(str(body_folder), _APACHES_FOLDER) == _plain(recording.stdout)
    path = _only_file(body_folder)
    assert path.read_bytes().startswith(b"key")
    assert f"{path}\n" in printed


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_message_is_handed_to_a_consumer(version: str) -> None:
    recording = _last_run(recordings(version)["queryMsgById-consume"])
    assert await run_replayed(recording) == recording.stdout


@pytest.mark.parametrize("version", VERSIONS)
async def test_messages_by_key(version: str) -> None:
    recording = _last_run(recordings(version)["queryMsgByKey"])
    assert await run_replayed(recording) == recording.stdout


async def test_messages_by_tag() -> None:
    recording = recordings("5.5.0")["queryMsgByKey-tag"]
    assert await run_replayed(recording) == recording.stdout


@pytest.mark.parametrize("version", VERSIONS)
async def test_no_message_by_key(version: str) -> None:
    recording = recordings(version)["queryMsgByKey-missing"]
    assert recording.stdout == ""
    with pytest.raises(ResponseError, match="CODE: 208  DESC: query message by key finished, but no message"):
        await run_replayed(recording)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["printMsg", "printMsg-tag"])
async def test_all_messages_of_a_topic(version: str, name: str) -> None:
    """Queue by queue, which Apache takes in the order of a hash table, and we in their own."""
    recording = recordings(version)[name]

    def blocks(text: str) -> list[str]:
        return _plain(text).split("minOffset=")

    printed = blocks(await run_replayed(recording))
    assert sorted(printed) == sorted(blocks(recording.stdout))
    assert [block.partition("queueId=")[2][0] for block in printed[1:]] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_messages_of_one_queue(version: str) -> None:
    recording = recordings(version)["printMsgByQueue-p"]
    assert _plain(await run_replayed(recording)) == _plain(recording.stdout)


@pytest.mark.parametrize("version", VERSIONS)
async def test_messages_of_one_queue_are_counted(version: str) -> None:
    """By falling count; equal ones stand in the order of a hash table in Apache's list."""
    recording = recordings(version)["printMsgByQueue"]
    lines = (await run_replayed(recording)).splitlines()
    assert sorted(lines) == sorted(recording.stdout.splitlines())
    counts = [int(line.rpartition(" ")[2]) for line in lines]
    assert counts == sorted(counts, reverse=True)


@pytest.mark.parametrize("version", VERSIONS)
async def test_messages_are_consumed(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count is spent queue by queue: here in the order of the hash table that Apache's had."""

    async def in_apaches_order(admin: Admin, topic: str) -> list[QueuePlace]:
        zero, one, *rest = await message_reading.readable_queues(admin, topic)
        return [one, zero, *rest]

    monkeypatch.setattr(message_print_commands, "readable_queues", in_apaches_order)
    recording = recordings(version)["consumeMessage"]
    assert _plain(await run_replayed(recording)) == _plain(recording.stdout)


@pytest.mark.parametrize("version", VERSIONS)
async def test_messages_are_consumed_from_an_offset_on(version: str) -> None:
    recording = recordings(version)["consumeMessage-queue"]
    assert _plain(await run_replayed(recording)) == _plain(recording.stdout)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["queryCq", "queryCq-group"])
async def test_units_of_a_consume_queue(version: str, name: str) -> None:
    recording = recordings(version)[name]
    assert await run_replayed(recording) == recording.stdout
