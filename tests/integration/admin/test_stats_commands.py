"""Commands about progress, against a running cluster."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import re
import time
from pathlib import Path

import pytest

from kourou.admin.consume_stats import consume_stats
from kourou.admin.monitoring import (
    DeletedMessages,
    MonitorEvent,
    RoundEnd,
    UndoneMessages,
    member_events,
    monitor,
    monitor_round,
)
from kourou.admin.running_info import ClientStatus, GroupStatus, RunningInfo
from kourou.broker.storage.inner_message import InnerMessage
from kourou.cli.admin.command import AdminCommand
from kourou.cli.admin.registry import find
from kourou.cli.admin.screen import Screen
from kourou.cli.admin.stats_commands import event_text
from kourou.errors import ResponseError
from kourou.protocol.bodies import ConsumeStatus, MessageQueue, OffsetMovedEvent, encode_body
from kourou.protocol.names import RMQ_SYS_OFFSET_MOVED_EVENT
from kourou.testing.cluster import cluster
from tests.golden.mqadmin import VERSIONS, recordings
from tests.integration.admin.group_kit import (
    GROUP,
    TOPIC,
    WAIT_S,
    Traffic,
    add_ghost_broker,
    consumed,
    traffic,
    until,
)
from tests.unit.admin.command_line import run_line


async def test_progress_of_a_group(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        async with found.consumer():
            await found.until_consumed()
        await found.send(4)
        result = await found.line("consumerProgress", "-g", GROUP)
        rows = [line.split() for line in result.lines if line.startswith(TOPIC)]
        assert [row[1:7] for row in rows] == [
            ["broker-a", str(queue_id), "3", "2", "1", "0"] for queue_id in range(4)
        ]
        assert result.lines[-4:] == [
            "",
            "Consume TPS: 0.00",
            "Consume Diff Total: 4",
            "Consume Inflight Total: 0",
        ]
        as_4 = await found.line("consumerProgress", "-g", GROUP, "--format", "4.9")
        assert as_4.lines[-1] == "Diff Total: 4" and "#Inflight" not in as_4.stdout
        of_topic = await found.line("consumerProgress", "-g", GROUP, "-t", TOPIC)
        assert [line.split()[0] for line in of_topic.lines[1:5]] == [TOPIC] * 4
        offline = await found.line("consumerProgress", "-g", GROUP, "-s", "true")
        assert [line.split()[5] for line in offline.lines if line.startswith(TOPIC)] == ["N/A"] * 4
        all_groups = await found.line("consumerProgress")
        assert all_groups.lines[1] == f"{GROUP:<64}  {0:<6}  {'OFFLINE':<24} {'':<5}  {'':<14}  {0:<7}  4"


async def test_who_holds_a_queue(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        client_ids = await found.admin.api.consumer_ids(found.broker_addr, GROUP)
        result = await found.line("consumerProgress", "-g", GROUP, "-s", "true")
        ips = {line.split()[5] for line in result.lines if line.startswith(TOPIC)}
        assert ips == {client_ids[0].partition("@")[0]}
        all_groups = await found.line("consumerProgress")
        assert all_groups.lines[1] == (
            f"{GROUP:<64}  {1:<6}  {'V5_3_3':<24} {'PUSH':<5}  {'CLUSTERING':<14}  {0:<7}  0"
        )


async def test_a_group_that_is_broadcast_to_has_no_progress(tmp_path: Path) -> None:
    async with (
        traffic(tmp_path) as found,
        found.consumer("screens", model="broadcasting", offset_store_dir=tmp_path / "offsets"),
    ):

        async def is_known() -> bool | None:
            with_error = await found.line("consumerProgress", "-g", "screens")
            return "CODE: 213  DESC: screens consumes in broadcasting mode" in with_error.stderr or None

        await until(is_known)
        all_groups = await found.line("consumerProgress")
        assert all_groups.exit_code == 0 and not all_groups.stderr
        assert "BROADCASTING" in all_groups.lines[1]


async def test_a_group_without_offsets_is_not_online(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found, found.consumer("idle") as idle:
        await idle.unsubscribe(TOPIC)
        with pytest.raises(ResponseError, match="CODE: 206"):
            await consume_stats(found.admin, "idle", "TBW102")


async def test_bad_input_gives_one_line(tmp_path: Path) -> None:
    cases = [
        (("consumerProgress", "-g", "CG"), "CODE: 17  DESC: No topic route info .*%RETRY%CG"),
        (("consumerProgress", "-g", "CG", "-t", "Nope"), "CODE: 17  DESC: No topic route info .*: Nope"),
        (
            ("consumerProgress", "-g", "CG", "-c", "Nowhere"),
            "CODE: 17  DESC: No topic route info .*: Nowhere",
        ),
        (("statsAll", "-t", "Nope"), "CODE: 17  DESC: No topic route info .*: Nope"),
    ]
    async with cluster(tmp_path) as running:
        for words, problem in cases:
            assert re.search(problem, (await run_line(running.namesrv_addr, *words)).problem)


async def test_a_broker_of_two_is_down(tmp_path: Path) -> None:
    """Progress that is not whole would be wrong; the list of groups goes on."""
    async with consumed(tmp_path) as found:
        ghost = await add_ghost_broker(found.running, TOPIC, f"%RETRY%{GROUP}")
        of_group = await found.line("consumerProgress", "-g", GROUP)
        assert f"cannot connect to {ghost}" in of_group.problem
        all_groups = await found.line("consumerProgress")
        assert all_groups.lines[1].startswith(f"{GROUP:<64}  1 ")
        assert all_groups.stderr.startswith(f"{GROUP}: cannot connect to {ghost}")
        assert len(all_groups.stderr.splitlines()) == 1
        traffic_of_all = await found.line("statsAll")
        assert f"{TOPIC}: cannot connect to {ghost}" in traffic_of_all.stderr
        assert any(line.startswith("BenchmarkTest ") for line in traffic_of_all.lines)


async def test_traffic_of_topics(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        async with found.consumer():
            await found.until_consumed()
        await found.send(4)
        result = await found.line("statsAll", "-t", TOPIC)
        head, row = result.lines
        assert head == (
            f"{'#Topic':<64}  {'#Consumer Group':<64} {'#Accumulation':>12} {'#InTPS':>11} {'#OutTPS':>11} "
            f"{'#InMsg24Hour':>14} {'#OutMsg24Hour':>14}"
        )
        assert row.startswith(f"{TOPIC:<64}  {GROUP:<64} {4:>12} ")
        unread = await found.line("statsAll", "-t", "BenchmarkTest")
        assert unread.lines[1] == (
            f"{'BenchmarkTest':<64}  {'':<64} {0:>12} {'0.00':>11} {'':>11} {0:>14} {'NO_CONSUMER':>14}"
        )
        everything = await found.line("statsAll", "--json")
        topics = [json.loads(line)["topic"] for line in everything.lines]
        assert topics == sorted(topics) and TOPIC in topics and f"%RETRY%{GROUP}" not in topics


# -- startMonitoring ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_monitoring_prints_nothing_to_stdout(version: str) -> None:
    """As recorded; events go to stderr, or with --json to stdout."""
    assert recordings(version)["startMonitoring"].stdout == ""
    out, errors = io.StringIO(), io.StringIO()
    command = find("startMonitoring")
    assert isinstance(command, AdminCommand)
    command.show(RoundEnd(groups=1, spent_ms=2), Screen(out=out, errors=errors))
    assert out.getvalue() == ""
    assert errors.getvalue() == f"[MONITOR] {'=' * 41}endRound, 1 groups in 2ms\n"


async def test_monitoring_goes_on_until_interrupted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        result = await run_line(
            running.namesrv_addr, "startMonitoring", "--json", is_enough=lambda text: "endRound" in text
        )
        assert [json.loads(line)["kind"] for line in result.lines] == ["beginRound", "endRound"]
    assert "127.0.0.1:1" in (await run_line("127.0.0.1:1", "startMonitoring")).problem


async def test_monitoring_reports_lag_and_deletions(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        async with found.consumer():
            await found.until_consumed()
        await found.send(4)
        events = await _watched(found)
    assert [event.kind for event in events[:2]] == ["beginRound", "undoneMsgs"]
    undone = [event for event in events if isinstance(event, UndoneMessages) and event.topic == TOPIC]
    assert (undone[0].group, undone[0].total, undone[0].single_queue) == (GROUP, 4, 1)
    assert undone[0].delay_ms >= 0
    assert event_text(undone[0]) == (
        f"[MONITOR] reportUndoneMsgs: UndoneMsgs [consumerGroup={GROUP}, topic={TOPIC}, undoneMsgsTotal=4, "
        f"undoneMsgsSingleMQ=1, undoneMsgsDelayTimeMills={undone[0].delay_ms}]"
    )
    assert event_text(events[-1]) == (
        "[MONITOR] reportDeleteMsgsEvent: DeleteMsgsEvent [offsetMovedEvent=OffsetMovedEvent "
        "[consumerGroup=late, messageQueue=MessageQueue [topic=T, brokerName=broker-a, queueId=0], "
        "offsetRequest=3, offsetNew=9]]"
    )


async def _watched(found: Traffic) -> list[MonitorEvent]:
    """All events until that of a broker that moved a group on."""
    events: list[MonitorEvent] = []
    async with asyncio.timeout(WAIT_S), contextlib.aclosing(monitor(found.admin, interval_s=0.5)) as watching:
        async for event in watching:
            if not events:
                _move_a_group_on(found)
            events.append(event)
            if isinstance(event, DeletedMessages):
                break
    return events


def _move_a_group_on(found: Traffic) -> None:
    """What Apache's brokers store when a group asks for messages that are deleted."""
    event = OffsetMovedEvent("late", MessageQueue("T", "broker-a", 0), 3, 9)
    message = InnerMessage(
        RMQ_SYS_OFFSET_MOVED_EVENT, 0, encode_body(event), "", time.time_ns() // 1_000_000, bytes(8)
    )
    found.running.broker.services.writer.put_now(message, None)


async def test_monitoring_lives_through_an_outage_of_a_broker(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        ghost = await add_ghost_broker(found.running, TOPIC, f"%RETRY%{GROUP}")
        events = [event async for event in monitor_round(found.admin)]
        assert [event.kind for event in events] == ["beginRound", "finding", "endRound"]
        assert event_text(events[1]).startswith(
            "[MONITOR]  [NOTIFY] reportConsumerRunningInfo: "
            f"ConsumerGroup: {GROUP}, cannot connect to {ghost}"
        )


def test_monitoring_reports_what_members_report() -> None:
    info = RunningInfo({}, [], [], [], {TOPIC: ConsumeStatus(consume_failed_msgs=2)}, {}, None)
    status = GroupStatus(
        GROUP,
        0,
        [
            ClientStatus("a", "", info, ""),
            ClientStatus("b", "", info, ""),
            ClientStatus("c", "", None, "gone"),
        ],
        is_subscription_same=False,
        is_rebalance_ok=True,
        findings=["a is stuck"],
    )
    assert [event_text(event) for event in member_events(status)] == [
        f"[MONITOR]  [NOTIFY] reportConsumerRunningInfo: ConsumerGroup: {GROUP}, c: gone",
        f"[MONITOR] reportFailedMsgs: FailedMsgs [consumerGroup={GROUP}, topic={TOPIC}, "
        "failedMsgsTotalRecently=4]",
        f"[MONITOR]  [NOTIFY] reportConsumerRunningInfo: ConsumerGroup: {GROUP}, "
        "Different subscription in the same group of consumer",
        f"[MONITOR]  [NOTIFY] reportConsumerRunningInfo: ConsumerGroup: {GROUP}, a is stuck",
    ]
