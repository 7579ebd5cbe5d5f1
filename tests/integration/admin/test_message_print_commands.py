"""Commands that print the messages of queues, whole command lines against a cluster in this process."""

from __future__ import annotations

import json
from pathlib import Path

from kourou import Message, MessageQueue
from tests.integration.admin.dead_broker import DEAD, register_dead_broker
from tests.integration.admin.group_kit import GROUP, TOPIC, Traffic, traffic

A_MINUTE_MS = 60_000


async def _fill(found: Traffic, count: int, queue_id: int = 0, tags: str = "TagB") -> list[int]:
    """More messages in one queue; their offsets."""
    queue = MessageQueue(TOPIC, "broker-a", queue_id)
    return [
        (await found.producer.send(Message(TOPIC, b"more", tags=tags), queue=queue)).queue_offset
        for _ in range(count)
    ]


def _bodies(stdout: str) -> list[str]:
    return [line.rpartition(" BODY: ")[2] for line in stdout.splitlines() if line.startswith("MSGID: ")]


# -- printMsg ----------------------------------------------------------------------------------------


async def test_all_messages_of_a_topic(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        await _fill(found, 40)
        result = await found.line("printMsg", "-t", TOPIC)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.lines[0] == (
            f"minOffset=0, maxOffset=42, MessageQueue [topic={TOPIC}, brokerName=broker-a, queueId=0]"
        )
        bodies = _bodies(result.stdout)
        assert sorted(bodies) == sorted([*map(str, range(8)), *["more"] * 40])
        assert result.lines.count("-" * 56) == 4
        lines = (await found.line("printMsg", "-t", TOPIC, "--json")).lines
        assert len(lines) == 4 + 48 + 4
        assert {"topic", "queue_offset", "body"} <= json.loads(lines[1]).keys()


async def test_messages_with_certain_tags_and_without_bodies(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        await _fill(found, 2)
        await _fill(found, 1, tags="TagC")
        result = await found.line("printMsg", "-t", TOPIC, "-s", "TagB || TagC", "-d", "false")
        assert _bodies(result.stdout) == ["NOT PRINT BODY"] * 3
        queue = f"MessageQueue [topic={TOPIC}, brokerName=broker-a, queueId=1]"
        assert f"{queue} no matched msg. status=NO_MATCHED_MSG, offset=2" in result.lines


async def test_messages_of_a_span_of_time(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        first = await found.line(
            "queryMsgByOffset", "-t", TOPIC, "-b", "broker-a", "-i", "0", "-o", "1", "--json"
        )
        time_ms = first.json["message"]["store_timestamp"]
        late = await found.line("printMsg", "-t", TOPIC, "-b", str(time_ms + A_MINUTE_MS))
        assert late.exit_code == 0 and not _bodies(late.stdout)
        early = await found.line("printMsg", "-t", TOPIC, "-e", str(time_ms - A_MINUTE_MS))
        assert early.exit_code == 0 and not _bodies(early.stdout)
        both = await found.line(
            "printMsg", "-t", TOPIC, "-b", str(time_ms - A_MINUTE_MS), "-e", str(time_ms + A_MINUTE_MS)
        )
        assert len(_bodies(both.stdout)) == 8


async def test_a_body_in_another_charset(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        await found.producer.send(Message("Poems", "床前明月光".encode("gbk")))
        result = await found.line("printMsg", "-t", "Poems", "-c", "GBK")
        assert _bodies(result.stdout) == ["床前明月光"]
        assert "�" in (await found.line("printMsg", "-t", "Poems")).stdout


async def test_what_cannot_be_printed(tmp_path: Path) -> None:
    cases = [
        (
            ("-t", "NoSuchTopic"),
            "CODE: 17  DESC: No topic route info in name server for the topic: NoSuchTopic",
        ),
        (("-t", TOPIC, "-c", "UTF-99"), "UTF-99: unknown charset"),
        (("-t", TOPIC, "-s", "||"), "||"),
        (("-t", TOPIC, "-b", "soon"), "soon: not a time"),
    ]
    async with traffic(tmp_path) as found:
        for words, problem in cases:
            assert problem in (await found.line("printMsg", *words)).problem


async def test_what_is_on_a_broker_that_is_down_is_left_out_and_named(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        await register_dead_broker(found.running, TOPIC)
        result = await found.line("printMsg", "-t", TOPIC)
        assert len(_bodies(result.stdout)) == 8
        assert DEAD in result.problem


# -- printMsgByQueue ---------------------------------------------------------------------------------


async def test_messages_of_one_queue(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        await _fill(found, 3, queue_id=1)
        words = ("printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", "1")
        assert (await found.line(*words)).stdout == ""
        printed = await found.line(*words, "-p", "true")
        assert _bodies(printed.stdout) == ["NOT PRINT BODY"] * 5
        with_bodies = await found.line(*words, "--print", "true", "-d", "true")
        assert _bodies(with_bodies.stdout)[2:] == ["more"] * 3
        counted = await found.line(*words, "-f", "true")
        assert counted.lines == [f"Tag: {'TagB':<30} Count: 3", f"Tag: {'TagA':<30} Count: 2"]
        only = await found.line(*words, "-f", "true", "-s", "TagA")
        assert only.lines == [f"Tag: {'TagA':<30} Count: 2"]
        wrong = await found.line("printMsgByQueue", "-t", TOPIC, "-a", "broker-x", "-i", "1", "-p", "true")
        assert "it is on broker-a" in wrong.problem


# -- consumeMessage ----------------------------------------------------------------------------------


async def test_messages_of_all_queues_are_consumed_and_no_offset_changes(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        result = await found.line("consumeMessage", "-t", TOPIC, "-g", GROUP)
        assert sorted(_bodies(result.stdout)) == [*map(str, range(8))]
        assert result.lines[0] == "Consume ok"
        queue = f"MessageQueue [topic={TOPIC}, brokerName=broker-a, queueId=0]"
        assert f"{queue} print msg finished. status=NO_NEW_MSG, offset=2" in result.lines
        assert await found.offset_of(GROUP) == 0


async def test_a_certain_number_of_messages_is_consumed(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        await _fill(found, 40)
        some = await found.line("consumeMessage", "-t", TOPIC, "-c", "35")
        assert some.lines[0] == "The older 35 message of the 0 queue will be provided"
        assert len(_bodies(some.stdout)) == 35
        words = ("consumeMessage", "-t", TOPIC, "-b", "broker-a", "-i", "0")
        queue = await found.line(*words, "-o", "40", "-c", "1")
        assert queue.lines[:2] == ["The oldler 1 message will be provided", "Consume ok"]
        assert _bodies(queue.stdout) == ["more"]
        beyond = await found.line(*words, "-o", "99")
        name = f"MessageQueue [topic={TOPIC}, brokerName=broker-a, queueId=0]"
        assert beyond.lines == [f"{name} no matched msg, offset=99"]
        for letter in ("-e", "-d"):
            old = await found.line(*words, letter, "2020-01-01#00:00:00:000")
            assert not _bodies(old.stdout) and old.exit_code == 0


async def test_what_cannot_be_consumed(tmp_path: Path) -> None:
    cases = [
        (("-c", "0"), "Please input a positive messageNumber!"),
        (("-i", "0"), "Please set the brokerName before queueId!"),
        (("-b", "broker-a", "-o", "0"), "Please set queueId before offset!"),
        (("-s", "99999999999999"), "Please set the beginTimestamp before now!"),
        (("-e", "99999999999999"), "Please set the endTimestamp before now!"),
        (("-s", "2000", "-e", "1000"), "Please make sure that the beginTimestamp is not after"),
        (("-b", "broker-x", "-i", "0"), "it is on broker-a"),
    ]
    async with traffic(tmp_path) as found:
        for words, problem in cases:
            assert problem in (await found.line("consumeMessage", "-t", TOPIC, *words)).problem
