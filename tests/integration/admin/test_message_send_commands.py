"""Commands that send, against a cluster in this process: they print what Apache's printed.

Names of queues and results are those of the recordings; ids and times are others each time.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kourou import AsyncPushConsumer, MessageExt
from kourou.testing.cluster import cluster
from tests.golden.mqadmin import VERSIONS, recordings
from tests.integration.admin.dead_broker import DEAD, register_dead_broker
from tests.integration.admin.group_kit import TOPIC, Traffic, traffic, until
from tests.unit.admin.command_line import Result, run_line

_ID = re.compile(r"\b[0-9A-F]{32}\b")


def _plain(text: str) -> str:
    """With any id, and any time of a send."""
    text = _ID.sub("ID", text)
    return re.sub(r"(?<=true {20})\d+|(?<=Avg RT: )[\d.]+", "MS", text)


async def _as_recorded(found: Traffic, version: str, name: str) -> tuple[Result, str]:
    """Run the line of a recording; what we printed, and what Apache's printed."""
    recording = recordings(version)[name]
    line = [TOPIC if word == "OnlineTopic" else word for word in recording.arguments]
    line[line.index("-n") + 1] = found.namesrv
    return await run_line(None, *line, "--format", version), recording.stdout


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_message_is_sent(version: str, tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        result, apaches = await _as_recorded(found, version, "sendMessage")
        # Which queue comes first is left to chance.
        ours = re.sub(r"(?<=broker-a {26})\d", "3", result.stdout)
        assert _plain(ours) == _plain(apaches)
        msg_id = result.lines[1].split()[3]

        async def shown() -> dict[str, object] | None:
            line = await found.line("queryMsgByKey", "-t", TOPIC, "-k", "admin-key", "--json")
            return line.json[0] if line.exit_code == 0 else None

        assert (await until(shown))["msg_id"] == msg_id


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_message_is_sent_to_a_queue(version: str, tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        result, apaches = await _as_recorded(found, version, "sendMessage-queue")
        assert _plain(result.stdout) == _plain(apaches)
        by_address = await found.line(
            "sendMessage", "-t", TOPIC, "-p", "x", "-b", found.broker_addr, "-i", "2"
        )
        assert by_address.lines[1].split()[:3] == ["broker-a", "2", "SEND_OK"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_how_long_sends_take(version: str, tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        result, apaches = await _as_recorded(found, version, "checkMsgSendRT")
        assert _plain(result.stdout) == _plain(apaches)
        lines = (await found.line("checkMsgSendRT", "-t", TOPIC, "-a", "2", "--json")).lines
        assert '"amount": 2, "failed": 0' in lines[-1]


async def test_what_cannot_be_sent(tmp_path: Path) -> None:
    cases = [
        (("sendMessage", "-t", "NoSuchTopic", "-p", "x"), "CODE: 17  DESC: No topic route info"),
        (
            ("sendMessage", "-t", TOPIC, "-p", "x", "-i", "1"),
            "Broker name must be set if the queue is chosen!",
        ),
        (("sendMessage", "-t", TOPIC, "-p", "x", "-b", "broker-x", "-i", "1"), "broker-x"),
        (("sendMessage", "-t", TOPIC, "-p", "x", "-b", "broker-a", "-i", "one"), "must be a whole number"),
        (("sendMessage", "-t", "no topic", "-p", "x"), "no topic"),
        (("sendMessage", "-t", TOPIC), "Missing required option: p"),
        (("checkMsgSendRT", "-t", "NoSuchTopic"), "CODE: 17"),
        (("checkMsgSendRT", "-t", TOPIC, "-a", "0"), "-a 0: must be at least 1"),
        (("checkMsgSendRT", "-t", TOPIC, "-s", "99999999"), "-s 99999999: must be from 1 to"),
    ]
    async with traffic(tmp_path) as found:
        for words, problem in cases:
            assert problem in (await found.line(*words)).problem


async def test_sends_to_a_broker_that_is_down(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await register_dead_broker(running, "Lost")
        result = await run_line(running.namesrv_addr, "checkMsgSendRT", "-t", "Lost", "-a", "2")
        assert result.exit_code == 1
        assert [line.split()[2] for line in result.lines[1:3]] == ["false", "false"]
        assert DEAD in result.stderr.splitlines()[-1]
        sent = await run_line(running.namesrv_addr, "sendMessage", "-t", "Lost", "-p", "x")
        assert DEAD in sent.problem


# -- queryMsgTraceById -------------------------------------------------------------------------------


async def test_a_traced_message(tmp_path: Path) -> None:
    async with traffic(tmp_path, trace_topic_enable=True) as found:

        async def consume(message: MessageExt) -> None:
            pass

        consumer = AsyncPushConsumer("tracers", namesrv=found.namesrv, consume_from="first", trace=True)
        await consumer.subscribe(TOPIC, "*", consume)
        async with consumer:
            sent = await found.line("sendMessage", "-t", TOPIC, "-p", "traced", "-m", "true", "--json")
            msg_id = sent.json["msg_id"]
            assert sent.json["status"] == "SEND_OK"

            async def traced() -> Result | None:
                line = await found.line("QueryMsgTraceById", "-i", msg_id)
                return line if "Sub " in line.stdout and "Pub " in line.stdout else None

            result = await until(traced)
        head, pub, empty, sub_head, sub, last = result.lines
        assert head.split()[:3] == ["#Type", "#ProducerGroup", "#ClientHost"] and empty == last == ""
        assert pub.split()[0] == "Pub" and pub.split()[2] == "127.0.0.1" and pub.split()[-1] == "success"
        assert sub_head.split()[1] == "#ConsumerGroup"
        assert sub.split()[:2] == ["Sub", "tracers"] and sub.split()[-1] == "success"


async def test_a_message_without_trace(tmp_path: Path) -> None:
    async with traffic(tmp_path, trace_topic_enable=True) as found:
        missing = await found.line("queryMsgTraceById", "-i", "7F0000015980")
        assert "CODE: 208" in missing.problem
        no_topic = await found.line("queryMsgTraceById", "-i", "7F0000015980", "-t", "NoSuchTopic")
        assert "CODE: 17" in no_topic.problem
