"""Commands that move consumer groups, against a running cluster."""

from __future__ import annotations

import time
from pathlib import Path

from kourou.admin.consume_stats import consume_stats
from kourou.cli.admin.offset_commands import OFFSET_COMMANDS
from kourou.cli.admin.options import ParsedArgs
from kourou.testing.cluster import cluster
from tests.integration.admin.group_kit import (
    GROUP,
    TOPIC,
    Traffic,
    add_ghost_broker,
    consumed,
    traffic,
    until,
)
from tests.unit.admin.command_line import run_line

_QUEUES = [0, 1, 2, 3]


async def _offsets(found: Traffic, group: str = GROUP) -> list[int]:
    progress = await consume_stats(found.admin, group)
    return [queue.consumer_offset for queue in progress.queues if queue.topic == TOPIC]


def _rows(lines: list[str]) -> list[tuple[str, ...]]:
    return [tuple(line.split()) for line in lines if line.startswith("broker-")]


async def test_a_running_group_consumes_again_from_a_time(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        result = await found.line("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")
        assert result.lines[0] == (
            f"start reset consumer offset by specified, group[{GROUP}], topic[{TOPIC}], force[true], "
            "timestamp(string)[0], timestamp(long)[0]"
        )
        assert result.lines[1] == f"{'#brokerName':<40}  {'#queueId':<40}  {'#offset':<40}"
        assert _rows(result.lines) == [("broker-a", str(queue_id), "0") for queue_id in _QUEUES]

        async def is_consumed_again() -> bool | None:
            return len(found.seen) == 16 or None

        await until(is_consumed_again)


async def test_now_is_the_present_time_in_5_and_the_end_in_4(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        before_ms = time.time_ns() // 1_000_000
        result = await found.line("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "now")
        moment = int(result.lines[0].rpartition("[")[2].rstrip("]"))
        assert before_ms <= moment <= time.time_ns() // 1_000_000
        assert _rows(result.lines) == [("broker-a", str(queue_id), "2") for queue_id in _QUEUES]
        as_4 = await found.line(
            "resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "now", "-c", "--format", "4.9"
        )
        assert as_4.lines[0] == (
            f"rollback consumer offset by specified group[{GROUP}], topic[{TOPIC}], force[true], "
            "timestamp(string)[now], timestamp(long)[-1]"
        )


async def test_one_queue_is_moved(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        line = ("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-b", found.broker_addr, "-q", "1")
        result = await found.line(*line, "-s", "0", "-o", "1")
        assert result.lines == [
            f"start reset consumer offset by specified, group[{GROUP}], topic[{TOPIC}], queueId[1], "
            f"broker[{found.broker_addr}], timestamp(string)[0], timestamp(long)[0]",
            "reset consumer offset to 1",
        ]

        async def is_consumed_again() -> bool | None:
            return len(found.seen) == 9 or None

        await until(is_consumed_again)
        assert (await found.line(*line, "-s", "0")).lines[1] == "reset consumer offset to 0"
        assert (await found.line(*line, "-s", "-1")).lines[1] == "reset consumer offset to 2"
        beyond = await found.line(*line, "-s", "0", "-o", "99")
        assert "CODE: 1  DESC: Target offset 99 not in consume queue range" in beyond.problem
        half = await found.line("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0", "-q", "1")
        assert "-b and -q are both needed" in half.problem


async def test_a_group_that_is_offline_is_moved_the_old_way_by_brokers_of_4(tmp_path: Path) -> None:
    """They refuse with CODE 206; then offsets are written."""
    async with traffic(tmp_path, use_server_side_reset_offset=False) as found:
        async with found.consumer():
            await found.until_consumed()
        await found.send(4)
        result = await found.line("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")
        assert result.lines[0] == (
            f"reset consumer offset by specified consumerGroup[{GROUP}], topic[{TOPIC}], force[true], "
            "timestamp(string)[0], timestamp(long)[0]"
        )
        assert result.lines[1].split()[-1] == "#resetOffset"
        assert _rows(result.lines) == [
            ("broker-a", str(queue_id), "3", "2", "0", "0") for queue_id in _QUEUES
        ]
        assert await _offsets(found) == [0, 0, 0, 0]

        kept = await found.line("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "-1", "-f", "false")
        assert _rows(kept.lines) == [("broker-a", str(queue_id), "3", "0", "3", "0") for queue_id in _QUEUES]
        assert await _offsets(found) == [0, 0, 0, 0]

        skipped = await found.line("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC)
        assert skipped.lines[0].split()[-1] == "#rollbackOffset"
        assert await _offsets(found) == [3, 3, 3, 3]


async def test_the_old_way_for_a_group_that_never_consumed(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        await found.line("updateSubGroup", "-b", "broker-a", "-g", "fresh")
        result = await found.line("resetOffsetByTimeOld", "-g", "fresh", "-t", TOPIC, "-s", "-1")
        assert result.lines[0].startswith(
            "reset consumer offset by specified consumerGroup[fresh], topic[Orders]"
        )
        assert _rows(result.lines) == [
            ("broker-a", str(queue_id), "2", "0", "2", "2") for queue_id in _QUEUES
        ]


async def test_waiting_messages_are_skipped(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        async with found.consumer():
            await found.until_consumed()
        await found.send(4)
        result = await found.line("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC)
        assert result.lines[0] == f"{'#brokerName':<40}  {'#queueId':<40}  {'#offset':<40}"
        assert _rows(result.lines) == [("broker-a", str(queue_id), "3") for queue_id in _QUEUES]
        async with found.consumer():
            await found.until_consumed()
        assert len(found.seen) == 8


async def test_a_group_is_moved_to_where_another_is(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        await found.line("updateSubGroup", "-b", "broker-a", "-g", "copy")
        result = await found.line("cloneGroupOffset", "-s", GROUP, "-d", "copy", "-t", TOPIC)
        assert result.stdout == (
            f"clone group offset success. srcGroup[{GROUP}], destGroup=[copy], topic[{TOPIC}]"
        )
        assert [await found.offset_of("copy", TOPIC, queue_id) for queue_id in _QUEUES] == [2, 2, 2, 2]

        no_target = await found.line("cloneGroupOffset", "-s", GROUP, "-d", "nobody", "-t", TOPIC)
        assert "CODE: 26  DESC: " in no_target.problem
        no_source = await found.line("cloneGroupOffset", "-s", "nobody", "-d", "copy", "-t", TOPIC)
        assert "CODE: 17  DESC: No topic route info in name server for the topic: %RETRY%nobody" in (
            no_source.problem
        )
        not_consumed = await found.line("cloneGroupOffset", "-s", GROUP, "-d", "copy", "-t", "TBW102")
        assert f"CODE: 206  DESC: {GROUP} has no offset in TBW102" in not_consumed.problem


async def test_bad_input_gives_one_line(tmp_path: Path) -> None:
    cases = [
        (("-g", "CG", "-t", "Nope", "-s", "0"), "CODE: 17  DESC: No topic route info in name server"),
        (("-g", "CG", "-t", "TBW102", "-s", "0"), "CODE: 26  DESC: Group CG does not exist"),
        (
            ("-g", "CG", "-t", "TBW102", "-s", "yesterday"),
            "yesterday: not a time; give milliseconds or yyyy-MM-dd#HH:mm:ss:SSS",
        ),
        (
            ("-g", "CG", "-t", "TBW102", "-s", "0", "-b", "127.0.0.1:1", "-q", "0"),
            "cannot connect to 127.0.0.1:1",
        ),
        (("-g", "CG", "-t", "TBW102"), "Missing required option: s"),
    ]
    async with cluster(tmp_path) as running:
        for words, problem in cases:
            assert problem in (await run_line(running.namesrv_addr, "resetOffsetByTime", *words)).problem


async def test_a_broker_of_two_is_down(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        ghost = await add_ghost_broker(found.running, TOPIC, f"%RETRY%{GROUP}")
        for words in (
            ("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0"),
            ("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC),
            ("cloneGroupOffset", "-s", GROUP, "-d", "copy", "-t", TOPIC),
        ):
            assert f"cannot connect to {ghost}" in (await found.line(*words)).problem


def test_every_command_that_moves_a_group_asks_before() -> None:
    given = ParsedArgs(
        {"group": "billing", "topic": "Orders", "timestamp": "0", "srcGroup": "A", "destGroup": "B"}
    )
    questions = [command.question(given) for command in OFFSET_COMMANDS if command.question is not None]
    assert questions == [
        "Reset billing on Orders to the earliest message?",
        "Reset billing on Orders to the earliest message?",
        "Skip all messages of Orders that billing has not consumed?",
        "Set the offsets of B on Orders to those of A?",
    ]
