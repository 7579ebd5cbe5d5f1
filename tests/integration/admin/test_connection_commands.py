"""Commands about connected clients, against a running cluster."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kourou.admin.connections import consumer_connection, consumers_of_topic
from kourou.admin.running_info import (
    RunningInfo,
    RunningQueue,
    has_same_subscriptions,
    queues_held_twice,
    stuck_queues,
)
from kourou.errors import ResponseError
from kourou.protocol.bodies import MessageQueue, ProcessQueueInfo, SubscriptionData
from kourou.testing.cluster import cluster
from tests.integration.admin.group_kit import GROUP, PRODUCERS, TOPIC, Traffic, add_ghost_broker, consumed
from tests.unit.admin.command_line import run_line

_NOW_MS = 1_800_000_000_000


async def _client_id(found: Traffic) -> str:
    (member,) = (await consumer_connection(found.admin, GROUP)).connection_set
    return member.client_id


async def test_members_of_a_group(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        client_id = await _client_id(found)
        result = await found.line("consumerConnection", "-g", GROUP)
        assert result.lines[0] == f"{'#ClientId':<36} {'#ClientAddr':<22} {'#Language':<10} #Version"
        (member,) = (await consumer_connection(found.admin, GROUP)).connection_set
        assert result.lines[1] == f"{client_id:<36} {member.client_addr:<22} {'PYTHON':<10} V5_3_3"
        assert result.lines[2:] == [
            "",
            "Below is subscription:",
            f"{'#Topic':<20} #SubExpression",
            f"{'%RETRY%' + GROUP:<20} *",
            f"{TOPIC:<20} TagA || TagB",
            "",
            "ConsumeType: CONSUME_PASSIVELY",
            "MessageModel: CLUSTERING",
            "ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET",
        ]
        by_name = await found.line("consumerConnection", "-g", GROUP, "-b", "broker-a", "--json")
        assert by_name.json["connectionSet"][0]["clientId"] == client_id


async def test_producers(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        result = await found.line("producerConnection", "-g", PRODUCERS, "-t", TOPIC)
        assert re.fullmatch(r"0001  \S+ +127\.0\.0\.1:\d+ +PYTHON   V5_3_3\n", result.stdout)
        of_broker = await found.line("producer", "-b", found.broker_addr)
        assert re.search(
            rf"^producer group \({PRODUCERS}\) instance : clientId=\S+,remoteIP=/127\.0\.0\.1:\d+, "
            r"language=PYTHON, version=479, lastUpdateTimestamp=\d{13}$",
            of_broker.stdout,
            re.MULTILINE,
        )
        missing = await found.line("producerConnection", "-g", "nobody", "-t", TOPIC)
        assert "CODE: 1  DESC: the producer group[nobody] not exist" in missing.problem


async def test_what_members_say_goes_to_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "working"
    folder.mkdir()
    monkeypatch.chdir(folder)
    async with consumed(tmp_path) as found:
        client_id = await _client_id(found)
        result = await found.line("consumerStatus", "-g", GROUP)
        assert (
            result.lines[0] == f"{'#Index':<10} {'#ClientId':<40} {'#Version':<20} #ConsumerRunningInfoFile"
        )
        index, shown_id, version, path = result.lines[1].split()
        assert (index, shown_id, version) == ("1", client_id, "V5_3_3")
        assert result.lines[2:] == [
            "",
            "",
            "Same subscription in the same group of consumer",
            "",
            "Rebalance OK",
        ]
        printed = await found.line("consumerStatus", "-g", GROUP, "-i", client_id)
        sections = [line for line in printed.lines if re.fullmatch("#.*#", line)]
        assert sections == [
            "#Consumer Properties#",
            "#Consumer Subscription#",
            "#Consumer Offset#",
            "#Consumer MQ Detail#",
            "#Consumer Pop Detail#",
            "#Consumer RT&TPS#",
            "#User Consume Info#",
        ]
        assert (folder / path).read_text().splitlines()[0] == "#Consumer Properties#"
        stacks = await found.line("consumerStatus", "-g", GROUP, "-i", client_id, "--jstack")
        assert "#Consumer jstack#" in stacks.lines
        queues = (await found.line("consumerStatus", "-g", GROUP, "--json")).json["clients"][0]["info"][
            "queues"
        ]
        assert [row["queue"]["queueId"] for row in queues if row["queue"]["topic"] == TOPIC] == [0, 1, 2, 3]


async def test_a_working_folder_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even root cannot write where a folder was deleted."""
    folder = tmp_path / "gone"
    folder.mkdir()
    async with consumed(tmp_path) as found:
        monkeypatch.chdir(folder)
        folder.rmdir()
        result = await found.line("consumerStatus", "-g", GROUP)
        assert "cannot be written" in result.problem


async def test_offsets_that_members_have_in_memory(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        client_id = await _client_id(found)
        result = await found.line("getConsumerStatus", "-g", GROUP, "-t", TOPIC)
        assert result.lines == [
            f"get consumer status from client. group={GROUP}, topic={TOPIC}, originClientId=",
            f"{'#clientId':<50}  {'#brokerName':<15}  {'#queueId':<15}  {'#offset':<20}",
            *(f"{client_id:<50}  {'broker-a':<15}  {queue_id:<15}  {2:<20}" for queue_id in range(4)),
        ]
        of_one = await found.line("getConsumerStatus", "-g", GROUP, "-t", TOPIC, "-i", client_id)
        assert len(of_one.lines) == 6
        missing = await found.line("getConsumerStatus", "-g", "nobody", "-t", TOPIC)
        assert missing.exit_code == 1 and len(missing.stderr.splitlines()) == 1


async def test_bad_input_gives_one_line(tmp_path: Path) -> None:
    cases = [
        (("consumerConnection", "-g", "CG"), "CODE: 17  DESC: No topic route info"),
        (("consumerConnection", "-g", "CG", "-b", "127.0.0.1:1"), "cannot connect to 127.0.0.1:1"),
        (
            ("consumerConnection", "-g", "CG", "-b", "broker-a"),
            "CODE: 206  DESC: the consumer group[CG] not online",
        ),
        (("consumerStatus", "-g", "CG"), "CODE: 17  DESC: No topic route info"),
        (("producerConnection", "-g", "PG", "-t", "Nope"), "CODE: 17  DESC: No topic route info"),
        (("producer", "-b", "127.0.0.1:1"), "cannot connect to 127.0.0.1:1"),
        (("getConsumerStatus", "-g", "CG", "-t", "Nope"), "CODE: 17  DESC: No topic route info"),
    ]
    async with cluster(tmp_path) as running:
        for words, problem in cases:
            assert problem in (await run_line(running.namesrv_addr, *words)).problem


async def test_a_group_that_went_offline(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        client_id = await _client_id(found)
        async with found.consumer("other"):
            await found.until_consumed("other")
        for words in (("consumerConnection", "-g", "other"), ("consumerStatus", "-g", "other")):
            assert (
                "CODE: 206  DESC: the consumer group[other] not online" in (await found.line(*words)).problem
            )
        stranger = await found.line("consumerStatus", "-g", GROUP, "-i", f"not-{client_id}")
        assert f"not-{client_id}> not online" in stranger.problem


async def test_a_broker_that_is_down_is_asked_in_vain(tmp_path: Path) -> None:
    """Others know the members as well."""
    async with consumed(tmp_path) as found:
        client_id = await _client_id(found)
        await add_ghost_broker(found.running, TOPIC, f"%RETRY%{GROUP}")
        assert client_id in (await found.line("consumerConnection", "-g", GROUP)).stdout
        assert "PYTHON" in (await found.line("producerConnection", "-g", PRODUCERS, "-t", TOPIC)).stdout
        status = await found.line("consumerStatus", "-g", GROUP, "-i", client_id)
        assert status.lines[0] == "#Consumer Properties#"
        assert (await found.line("getConsumerStatus", "-g", GROUP, "-t", TOPIC)).exit_code == 0
        assert await consumers_of_topic(found.admin, TOPIC) == [GROUP]


async def test_consumers_of_a_topic_that_only_a_dead_broker_has(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        ghost = await add_ghost_broker(found.running, "Elsewhere")
        with pytest.raises(Exception, match=f"cannot connect to {ghost}"):
            await consumers_of_topic(found.admin, "Elsewhere")
        with pytest.raises(ResponseError, match="CODE: 17"):
            await consumers_of_topic(found.admin, "Nope")


# -- what running info tells -------------------------------------------------------------------------


def _info(
    *queues: RunningQueue,
    expression: str = "*",
    started_ms: int = 0,
    orderly: bool = False,
    push: bool = True,
) -> RunningInfo:
    properties = {
        "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY" if push else "CONSUME_ACTIVELY",
        "PROP_CONSUMEORDERLY": str(orderly).lower(),
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
    }
    subscription = SubscriptionData(topic="T", sub_string=expression)
    return RunningInfo(properties, [subscription], list(queues), [], {}, {}, None)


def test_subscriptions_of_members_that_just_started_are_not_compared() -> None:
    old, different = _info(), _info(expression="TagA")
    assert has_same_subscriptions([old, old], _NOW_MS)
    assert not has_same_subscriptions([old, different], _NOW_MS)
    assert has_same_subscriptions([old, _info(expression="TagA", started_ms=_NOW_MS - 1000)], _NOW_MS)
    assert has_same_subscriptions([old, _info(expression="TagA", push=False)], _NOW_MS)


def test_a_queue_that_two_members_hold() -> None:
    queue = MessageQueue("T", "broker-a", 0)
    held, let_go = (
        RunningQueue(queue, ProcessQueueInfo()),
        RunningQueue(queue, ProcessQueueInfo(dropped=True)),
    )
    assert queues_held_twice([_info(held), _info(held)]) == [queue]
    assert queues_held_twice([_info(held), _info(let_go)]) == []


@pytest.mark.parametrize(
    ("orderly", "info", "why"),
    [
        (
            False,
            ProcessQueueInfo(cached_msg_count=1, last_consume_timestamp=_NOW_MS - 61_000),
            "can't consume for a while, maybe blocked, 61000ms",
        ),
        (False, ProcessQueueInfo(cached_msg_count=1, last_consume_timestamp=_NOW_MS - 59_000), None),
        (False, ProcessQueueInfo(cached_msg_count=0, last_consume_timestamp=0), None),
        (True, ProcessQueueInfo(last_lock_timestamp=_NOW_MS - 5), "can't lock for a while, 5ms"),
        (
            True,
            ProcessQueueInfo(locked=True, dropped=True, try_unlock_times=3),
            "unlock 3 times, still failed",
        ),
        (True, ProcessQueueInfo(locked=True), None),
    ],
)
def test_queues_that_do_not_move(orderly: bool, info: ProcessQueueInfo, why: str | None) -> None:
    running = RunningQueue(MessageQueue("T", "broker-a", 0), info)
    found = stuck_queues("me", _info(running, orderly=orderly), _NOW_MS)
    expected = f"me MessageQueue [topic=T, brokerName=broker-a, queueId=0] {why}"
    assert found == ([expected] if why is not None else [])
