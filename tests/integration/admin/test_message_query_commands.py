"""Commands that find messages, whole command lines against a cluster in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou import AsyncLitePullConsumer, Message, SendResult
from tests.integration.admin.dead_broker import DEAD, register_dead_broker
from tests.integration.admin.group_kit import GROUP, TOPIC, Traffic, consumed, traffic, until
from tests.unit.admin.command_line import run_line


async def _sent(found: Traffic, body: bytes = b"body", **parts: str) -> SendResult:
    """A message that the index knows."""
    result = await found.producer.send(Message(TOPIC, body, **{"keys": "order-1", "tags": "TagA", **parts}))  # type: ignore[arg-type]

    async def is_indexed() -> bool | None:
        line = await found.line("queryMsgByUniqueKey", "-t", TOPIC, "-i", result.msg_id, "--json")
        return True if line.exit_code == 0 else None

    await until(is_indexed)
    return result


# -- queryMsgById ------------------------------------------------------------------------------------


async def test_a_message_is_shown_by_either_id(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        sent = await _sent(found, "dürfen".encode())
        await found.until_consumed()
        folder = tmp_path / "bodies"
        for msg_id in (sent.offset_msg_id, sent.msg_id):
            result = await found.line(
                "queryMsgById", "-t", TOPIC, "-i", msg_id, "--body-path", str(folder), "-f", "UTF-8"
            )
            assert (result.exit_code, result.stderr) == (0, "")
            lines = dict(line.split(": ", 1) for line in result.lines if ": " in line and "[" not in line[:8])
            assert lines["OffsetID"].strip() == sent.offset_msg_id
            assert lines["Tags"].strip() == "[TagA]" and lines["Keys"].strip() == "[order-1]"
            assert lines["Queue Offset"].strip() == str(sent.queue_offset)
            assert lines["Store Host"].strip() == found.broker_addr
            assert lines["Message Body"].strip() == "dürfen"
            assert lines["Message Body Path"].strip() == str(folder / sent.msg_id)
            assert (folder / sent.msg_id).read_bytes().decode() == "dürfen"
            assert result.lines[-1] == (
                f"MessageTrack [consumerGroup={GROUP}, trackType=CONSUMED, exceptionDesc=null]"
            )


async def test_a_message_that_is_not_consumed(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        sent = await found.producer.send(Message(TOPIC, b"x"))
        result = await found.line("queryMsgById", "-i", sent.offset_msg_id, "--body-path", str(tmp_path))
        assert result.stdout.endswith("\n\n\nWARN: No Consumer")
        assert "Tags:                [null]\n" in result.stdout
        (in_json,) = (await found.line("queryMsgById", "-i", sent.offset_msg_id, "--json")).json
        assert in_json["message"]["body"] == "eA==" and in_json["body_path"] is None


async def test_several_ids_of_which_one_leads_nowhere(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        sent = await found.producer.send(Message(TOPIC, b"x"))
        gone = sent.offset_msg_id[:-8] + "7FFFFFFF"
        both = f"{gone}, {sent.offset_msg_id}"
        result = await found.line("queryMsgById", "-i", both, "--body-path", str(tmp_path / "b"))
        assert result.exit_code == 1
        assert result.stdout.startswith(f"\nMessage not found!\nOffsetID:            {sent.offset_msg_id}\n")
        assert f"msgId={gone}" in result.stderr


async def test_ids_that_lead_nowhere(tmp_path: Path) -> None:
    cases = [
        (("-i", "7F00000100002A9F7FFFFFFFFFFFFFFF"), "127.0.0.1:10911"),
        (("-i", "nonsense"), "CODE: 208  DESC: Message not found! msgId=nonsense; give the topic with -t"),
        (("-i", "nonsense", "-t", TOPIC), "CODE: 208  DESC: Message not found! msgId=nonsense"),
        (("-i", "nonsense", "-t", "NoSuchTopic"), "CODE: 17  DESC: No topic route info in name server"),
        (("-i", " , "), "Missing argument for option: i"),
        (("-i", "nonsense", "-f", "UTF-99"), "UTF-99: unknown charset"),
        (("-i", "nonsense", "-s", "true"), "Message not found!"),
    ]
    async with traffic(tmp_path) as found:
        for words, problem in cases:
            result = await found.line("queryMsgById", *words, "--timeout", "1000")
            assert problem in result.problem
            assert not result.stdout or result.stdout == "\nMessage not found!\n"


async def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    async with traffic(tmp_path) as found:
        sent = await found.producer.send(Message(TOPIC, b"x"))
        result = await found.line(
            "queryMsgById", "-i", sent.offset_msg_id, "--body-path", str(tmp_path / "file" / "b")
        )
        assert f"{tmp_path}/file/b/{sent.msg_id}: the body cannot be written: " in result.problem
        assert "--body-path" in result.problem


async def test_an_id_that_is_a_path_and_a_link_in_the_folder_lead_the_body_nowhere_else(
    tmp_path: Path,
) -> None:
    async with traffic(tmp_path) as found:
        message = Message(TOPIC, b"x")
        message.put_property("UNIQ_KEY", "../evil")
        sent = await found.producer.send(message)
        folder = tmp_path / "bodies"
        line = ("queryMsgById", "-i", sent.offset_msg_id, "--body-path", str(folder))
        assert (await found.line(*line)).exit_code == 0
        assert [path.name for path in folder.iterdir()] == [sent.offset_msg_id]
        assert not (tmp_path / "evil").exists()

        (folder / sent.offset_msg_id).unlink()
        (folder / sent.offset_msg_id).symlink_to(tmp_path / "evil")
        assert "the body cannot be written" in (await found.line(*line)).problem
        assert not (tmp_path / "evil").exists()


async def test_a_message_is_handed_to_a_consumer(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found, found.consumer() as consumer:
        await found.until_consumed()
        sent = await _sent(found, b"once more")
        await found.until_consumed()
        found.seen.clear()
        for command, msg_id in (
            ("queryMsgById", sent.offset_msg_id),
            ("queryMsgByUniqueKey", sent.msg_id),
        ):
            result = await found.line(
                command, "-t", TOPIC, "-i", msg_id, "-g", GROUP, "-d", consumer.client_id
            )
            assert result.stdout.startswith(
                "ConsumeMessageDirectlyResult [order=false, autoCommit=true, consumeResult=CR_SUCCESS, "
                "remark=null, spentTimeMills="
            )
        assert found.seen == [b"once more", b"once more"]
        unknown = await found.line(
            "queryMsgById", "-i", sent.offset_msg_id, "-g", GROUP, "-d", "no-such-client"
        )
        assert "no-such-client" in unknown.problem and "not online" in unknown.problem


async def test_a_consumer_without_handler_is_handed_nothing(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        sent = await found.producer.send(Message(TOPIC, b"x"))
        consumer = AsyncLitePullConsumer("pullers", namesrv=found.namesrv)
        await consumer.subscribe(TOPIC)
        async with consumer:
            client_id = consumer.client_id
            words = ("-i", sent.offset_msg_id, "-g", "pullers", "-d", client_id)

            async def refused() -> str | None:
                problem = (await found.line("queryMsgById", *words)).problem
                return problem if "CODE: 17" not in problem else None  # its retry topic is not known yet

            assert f"this {client_id} client is not push consumer ,not support direct push" in (
                await until(refused)
            )


async def test_a_message_is_sent_again(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        sent = await _sent(found, b"again")
        result = await found.line("queryMsgById", "-i", sent.offset_msg_id, "-s", "true")
        start = f"prepare resend msg. originalMsgId={sent.offset_msg_id}SendResult [sendStatus=SEND_OK, "
        assert result.stdout.startswith(f"{start}msgId={sent.msg_id}, offsetMsgId=")

        async def both() -> list[dict[str, object]] | None:
            line = await found.line("queryMsgByUniqueKey", "-t", TOPIC, "-i", sent.msg_id, "-a", "--json")
            messages = [one["message"] for one in line.json]
            return messages if len(messages) == 2 else None

        first, second = await until(both)
        assert first["body"] == second["body"] and first["keys"] == second["keys"] == "order-1"
        assert first["offset_msg_id"] == sent.offset_msg_id

        folder = tmp_path / "bodies"
        words = ("-t", TOPIC, "-i", sent.msg_id, "--body-path", str(folder))
        shown = await found.line("queryMsgByUniqueKey", *words, "-a")
        assert shown.stdout.count("CommitLog Offset:") == 2 and "OffsetID:" not in shown.stdout
        assert sorted(path.name for path in folder.iterdir()) == [sent.msg_id, f"{sent.msg_id}_1"]
        assert (await found.line("queryMsgByUniqueKey", *words)).stdout.count("CommitLog Offset:") == 1


# -- queryMsgByKey, queryMsgByUniqueKey --------------------------------------------------------------


async def test_messages_by_key(tmp_path: Path) -> None:
    async with traffic(tmp_path, brokers=2) as found:
        sent = await _sent(found)
        result = await found.line("queryMsgByKey", "-t", TOPIC, "-k", "order-1")
        assert result.lines[0].split() == ["#Message", "ID", "#QID", "#Offset", "#IndexKey"]
        words = result.lines[1].split()
        assert words[:3] == [sent.msg_id, str(sent.queue.queue_id), str(sent.queue_offset)]
        assert f"@{TOPIC}@K@order-1@{sent.msg_id}@" in words[3]
        old = await found.line("queryMsgByKey", "-t", TOPIC, "-k", "order-1", "--format", "4.9")
        assert old.lines[0] == f"{'#Message ID':<50} {'#QID':>4} {'#Offset':>40}"
        (row,) = (await found.line("queryMsgByKey", "-t", TOPIC, "-k", "order-1", "--json")).json
        assert row["msg_id"] == sent.msg_id and row["broker_name"] == sent.queue.broker_name


async def test_keys_that_nothing_has(tmp_path: Path) -> None:
    cases = [
        (("-t", TOPIC, "-k", "none"), "CODE: 208  DESC: query message by key finished, but no message."),
        (("-t", TOPIC, "-k", "order-1", "-e", "1000"), "CODE: 208"),
        (("-t", "NoSuchTopic", "-k", "x"), "CODE: 17  DESC: No topic route info in name server"),
        (("-t", TOPIC, "-k", "x", "-b", "tomorrow"), "tomorrow: not a time"),
        (("-t", TOPIC, "-k", "x", "-m", "many"), "-m many: must be a whole number"),
    ]
    async with traffic(tmp_path) as found:
        for words, problem in cases:
            assert problem in (await found.line("queryMsgByKey", *words)).problem


async def test_a_broker_that_is_down_hides_what_others_have_only_if_they_have_nothing(
    tmp_path: Path,
) -> None:
    async with traffic(tmp_path) as found:
        sent = await _sent(found)
        await register_dead_broker(found.running, TOPIC)
        result = await found.line("queryMsgByKey", "-t", TOPIC, "-k", "order-1")
        assert result.exit_code == 0 and sent.msg_id in result.stdout
        missing = await found.line("queryMsgByKey", "-t", TOPIC, "-k", "none")
        assert DEAD in missing.problem


async def test_a_unique_id_that_nothing_has(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        result = await found.line("queryMsgByUniqueKey", "-t", TOPIC, "-i", "7F0000015980")
        assert "CODE: 208" in result.problem and not result.stdout


# -- queryMsgByOffset --------------------------------------------------------------------------------


async def test_a_message_by_its_place(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        sent = await found.producer.send(Message(TOPIC, b"here"))
        words = ("-t", TOPIC, "-i", str(sent.queue.queue_id), "-o", str(sent.queue_offset))
        for broker in ("broker-a", found.broker_addr):
            line = ("queryMsgByOffset", *words, "-b", broker, "--body-path", str(tmp_path), "-f", "UTF-8")
            result = await found.line(*line)
            assert f"OffsetID:            {sent.offset_msg_id}\n" in result.stdout
            assert "Message Body:        here\n" in result.stdout
            assert f"MAX_OFFSET={sent.queue_offset + 1}, MIN_OFFSET=0" in result.stdout


async def test_places_that_are_none(tmp_path: Path) -> None:
    cases = [
        (("-b", "broker-a", "-i", "0", "-o", "99"), "CODE: 208  DESC: no message at offset 99 of queue 0"),
        (("-b", "broker-a", "-i", "99", "-o", "0"), "queueId[99] is illegal"),
        (("-b", "broker-x", "-i", "0", "-o", "0"), "it is on broker-a"),
        (("-b", "broker-a", "-i", "zero", "-o", "0"), "-i zero: must be a whole number"),
    ]
    async with traffic(tmp_path) as found:
        for words, problem in cases:
            assert problem in (await found.line("queryMsgByOffset", "-t", TOPIC, *words)).problem


# -- messageTrack, decodeMessageId, queryCq ----------------------------------------------------------


async def test_who_consumed_a_message_and_who_holds_its_queue(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found, found.consumer() as consumer:
        sent = await _sent(found)
        await found.until_consumed()
        result = await found.line("messageTrack", "-t", TOPIC, "-i", sent.msg_id)
        assert result.lines[0].startswith(
            f"{sent.msg_id}: {TOPIC}, queue {sent.queue.queue_id} of broker-a, offset {sent.queue_offset}, "
        )
        assert result.lines[1].split("  ")[0] == "#Consumer Group"
        group, state, offset, client = result.lines[2].split()
        assert (group, state, client) == (GROUP, "CONSUMED", consumer.client_id)
        assert int(offset) > sent.queue_offset


@pytest.mark.slow
async def test_a_message_that_the_filter_of_a_group_leaves_out(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found, found.consumer():
        other = await _sent(found, tags="TagZ", keys="order-2")
        await found.until_consumed()
        filtered = (await found.line("messageTrack", "-t", TOPIC, "-i", other.offset_msg_id, "--json")).json
        assert [one["track_type"] for one in filtered["tracks"]] == ["CONSUMED_BUT_FILTERED"]


async def test_a_message_of_a_group_that_is_offline(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        async with found.consumer():
            await found.until_consumed()
        sent = await _sent(found)

        async def row() -> list[str] | None:
            result = await found.line("messageTrack", "-t", TOPIC, "-i", sent.msg_id)
            words = result.lines[2].split()
            return words if words[1] == "NOT_ONLINE" else None

        assert (await until(row))[:4] == [GROUP, "NOT_ONLINE", "N/A", "N/A"]
        gone = await found.line("messageTrack", "-t", TOPIC, "-i", "nonsense")
        assert "CODE: 208" in gone.problem


async def test_what_an_id_contains(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        sent = await found.producer.send(Message(TOPIC, b"x"))
    for name in ("decodeMessageId", "DecodeMessageId"):
        unique = await run_line(None, name, "-i", sent.msg_id)
        assert unique.exit_code == 0 and unique.lines[0].startswith("ip=")
        assert unique.lines[1].startswith("date=20") and "#" in unique.lines[1]
    offset = await run_line(None, "decodeMessageId", "-i", sent.offset_msg_id)
    assert offset.lines[0] == "ip=127.0.0.1"
    assert offset.lines[1] == f"port={found.broker_addr.rpartition(':')[2]}"
    wrong = await run_line(None, "decodeMessageId", "-i", "nonsense")
    assert "has 8 characters instead of 32 or 56" in wrong.problem


async def test_units_of_a_consume_queue(tmp_path: Path) -> None:
    async with consumed(tmp_path) as found:
        result = await found.line("queryCq", "-t", TOPIC, "-q", "0", "-i", "1", "-c", "1", "-g", GROUP)
        lines = result.lines
        assert lines[0] == "Subscription data: " and '"subString":"TagA || TagB"' in lines[1]
        place = lines.index("Queue data: ")
        assert lines[place + 1 : place + 4] == ["max: 2, min: 0", "=" * 38, "idx: 1"]
        assert lines[place + 4].startswith("ConsumeQueueData{physicOffset=")
        named = await found.line("queryCq", "-t", TOPIC, "-q", "0", "-i", "1", "-c", "1", "-b", "broker-a")
        assert named.lines[0] == "Queue data: "
        gone = await found.line("queryCq", "-t", "NoSuchTopic", "-q", "0", "-i", "0")
        assert "CODE: 17" in gone.problem
        wrong = await found.line("queryCq", "-t", TOPIC, "-q", "77", "-i", "0")
        assert wrong.problem


async def test_a_name_server_that_is_not_there(tmp_path: Path) -> None:
    for name, *words in (
        ("queryMsgByKey", "-t", TOPIC, "-k", "k"),
        ("printMsg", "-t", TOPIC),
        ("sendMessage", "-t", TOPIC, "-p", "x"),
        ("exportMetadata", "-c", "DefaultCluster", "-f", str(tmp_path)),
        ("queryMsgTraceById", "-i", "7F0000015980"),
    ):
        result = await run_line(DEAD, name, *words)
        assert DEAD in result.problem
