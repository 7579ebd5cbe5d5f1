"""What brokers and `mqadmin` ask of a push consumer; hooks around its handlers; namespaces."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kourou.client.core.api import ClientApi
from kourou.client.push.consume_result import ConsumeResult
from kourou.client.push.handlers import ConsumeHookContext, ConsumerHook
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.client.trace.trace_data import SubAfterTrace, SubBeforeTrace, TraceContextCode, decode_trace
from kourou.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    MessageQueue,
    decode_body,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.clients import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
)
from kourou.protocol.headers.offsets import GetConsumerStatusRequestHeader, ResetOffsetRequestHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.record import decode_records
from kourou.testing.cluster import Cluster, cluster
from tests.e2e.broker.broker_kit import pull_header
from tests.e2e.client.kit.push_kit import (
    GROUP,
    TOPIC,
    Notes,
    call,
    consumer_of,
    consuming,
    make_topic,
    queues_of,
    send,
    spread,
    stored_offset,
    until,
)

pytestmark = pytest.mark.e2e

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


async def asked(running: Cluster, code: int, header: msgspec.Struct) -> bytes:
    answer = await call(running, code, header)
    assert answer.code == 0, answer.remark
    return answer.body


@pytest.mark.parametrize("by_server", [True, False], ids=["by the server", "by the clients"])
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_offsets_are_reset_while_it_runs(tmp_path: Path, by_server: bool, orderly: bool) -> None:
    notes = Notes()
    async with cluster(tmp_path, use_server_side_reset_offset=by_server) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a", b"b"])
        async with consuming(running, notes, orderly=orderly, suspend_timeout_ms=200) as consumer:
            await until(lambda: notes.bodies == [b"a", b"b"])
            # The broker moves only groups that it knows an offset of.
            await until(lambda: running.broker.services.offsets.query(GROUP, TOPIC, 0) == 2)
            header = ResetOffsetRequestHeader(topic=TOPIC, group=GROUP, timestamp=0, is_force=True)
            await asked(running, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            await until(lambda: notes.bodies == [b"a", b"b", b"a", b"b"])
            await until(lambda: consumer.stats().in_hand == 0)
            await send(running, [b"c"])
            await until(lambda: notes.bodies[4:] == [b"c"])
        assert await stored_offset(running) == 3


async def test_no_queue_is_taken_before_the_broker_knows_where_it_was_moved_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Apache's broker works on requests side by side: a question may overtake what was said before it."""
    notes = Notes()
    update = ClientApi.update_consumer_offset

    async def update_late(api: ClientApi, *arguments: Any) -> None:
        await asyncio.sleep(0.2)
        await update(api, *arguments)

    async with cluster(tmp_path, use_server_side_reset_offset=False) as running:
        await make_topic(running, queues=4)
        bodies = await spread(running, 40)
        async with consuming(running, notes):
            await until(lambda: sorted(notes.bodies) == sorted(bodies))
            for queue_id in range(4):
                await until(partial(_is_stored, running, queue_id, 10))
            monkeypatch.setattr(ClientApi, "update_consumer_offset", update_late)
            header = ResetOffsetRequestHeader(topic=TOPIC, group=GROUP, timestamp=0, is_force=True)
            await asked(running, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            await until(lambda: sorted(notes.bodies) == sorted([*bodies, *bodies]))


def _is_stored(running: Cluster, queue_id: int, consumer_offset: int) -> bool:
    return running.broker.services.offsets.query(GROUP, TOPIC, queue_id) == consumer_offset


async def test_the_broker_asks_where_it_is(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a", b"b"])
        async with consuming(running, Notes()) as consumer:
            await until(lambda: consumer.stats().consumed == 2)
            header = GetConsumerStatusRequestHeader(topic=TOPIC, group=GROUP)
            body = await asked(running, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)
            table = decode_body(body, GetConsumerStatusBody).consumer_table
            assert table == {consumer.client_id: {QUEUE: 2}}


async def test_running_info_has_what_mqadmin_reads(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a", b"b"])
        async with consuming(running, Notes(), expression="*", orderly=True) as consumer:
            await until(lambda: consumer.stats().consumed == 2)
            header = GetConsumerRunningInfoRequestHeader(
                consumer_group=GROUP, client_id=consumer.client_id, jstack_enable=True
            )
            body = await asked(running, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            info = decode_body(body, ConsumerRunningInfo)
        texts = info.properties
        assert texts["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert texts["PROP_CONSUMEORDERLY"] == "true"
        assert texts["PROP_NAMESERVER_ADDR"] == f"{running.namesrv_addr};"
        assert int(texts["PROP_CONSUMER_START_TIMESTAMP"]) > 0
        assert (texts["messageModel"], texts["consumeThreadMax"]) == ("CLUSTERING", "20")
        assert {data.topic for data in info.subscription_set} == {TOPIC, f"%RETRY%{GROUP}"}
        assert info.mq_table[QUEUE].commit_offset == 2
        assert info.mq_table[QUEUE].locked
        assert info.status_table[TOPIC].consume_ok_tps > 0
        assert "MainThread" in (info.jstack or "")
        assert json.loads(json.dumps(texts)) == texts


@pytest.mark.parametrize(
    ("said", "result", "remark"),
    [
        (None, CMResult.CR_SUCCESS, None),
        (ConsumeResult.LATER, CMResult.CR_LATER, None),
        (ValueError("no"), CMResult.CR_THROW_EXCEPTION, "ValueError: no"),
    ],
)
async def test_a_tool_has_one_message_consumed_now(
    tmp_path: Path, said: ConsumeResult | Exception | None, result: CMResult, remark: str | None
) -> None:
    notes = Notes(None, said)
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a"])
        async with consuming(running, notes) as consumer:
            await until(lambda: notes.messages)
            header = ConsumeMessageDirectlyResultRequestHeader(
                consumer_group=GROUP,
                client_id=consumer.client_id,
                msg_id=notes.messages[0].offset_msg_id,
            )
            body = await asked(running, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        answer = decode_body(body, ConsumeMessageDirectlyResult)
        assert (answer.consume_result, answer.remark, answer.order) == (result, remark, False)
        assert notes.bodies == [b"a", b"a"]
        assert notes.messages[1].broker_name == "broker-a"


async def test_hooks_see_every_call_and_may_fail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[tuple[str, list[bytes], ConsumeResult | None]] = []

    class Hook(ConsumerHook):
        def before_consume(self, context: ConsumeHookContext) -> None:
            calls.append(("before", [m.body for m in context.messages], context.result))
            context.notes["seen"] = True

        def after_consume(self, context: ConsumeHookContext) -> None:
            assert context.notes["seen"] and context.elapsed_ms >= 0
            calls.append(("after", [m.body for m in context.messages], context.result))
            raise RuntimeError("a hook's own trouble")

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a"])
        async with consuming(running, Notes(), hooks=[Hook()]) as consumer:
            await until(lambda: consumer.stats().consumed == 1)
        assert calls == [("before", [b"a"], None), ("after", [b"a"], ConsumeResult.SUCCESS)]
        assert "a hook's own trouble" in caplog.text


async def test_traces_are_written_in_apaches_form(tmp_path: Path) -> None:
    notes = Notes(None, ConsumeResult.LATER)
    async with cluster(tmp_path, trace_topic_enable=True) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a"], UNIQ_KEY="ID1", KEYS="order-1")
        await send(running, [b"b"], UNIQ_KEY="ID2")
        async with consuming(running, notes, trace=True) as consumer:
            await until(lambda: len(notes.messages) == 2)
            await until(lambda: consumer.stats().in_hand == 0)
        answer = await call(running, RequestCode.PULL_MESSAGE, pull_header("RMQ_SYS_TRACE_TOPIC", 0))
        traces = list(decode_records(answer.body))
        records = [record for trace in traces for record in decode_trace(trace.body.decode())]
        before = {record.msg_id: record for record in records if isinstance(record, SubBeforeTrace)}
        after = {record.msg_id: record for record in records if isinstance(record, SubAfterTrace)}
        assert {*before} == {*after} == {"ID1", "ID2"}
        assert (before["ID1"].group, before["ID1"].keys) == (GROUP, "order-1")
        assert before["ID1"].request_id == after["ID1"].request_id
        assert [after[each].is_success for each in ("ID1", "ID2")] == [True, False]
        assert after["ID2"].context_code is TraceContextCode.FAILED
        assert {"ID1", "ID2", "order-1"} == {key for trace in traces for key in trace.keys}


async def test_in_a_namespace_users_see_their_own_names(tmp_path: Path) -> None:
    notes = Notes(ConsumeResult.LATER)
    async with cluster(tmp_path, message_delay_level=" ".join(["1s"] * 18)) as running:
        await make_topic(running, "shop%Orders", queues=1)
        await send(running, [b"a"], topic="shop%Orders")
        async with consuming(running, notes, topic="Orders", namespace="shop") as consumer:
            await until(lambda: len(notes.messages) == 2)
            assert queues_of(consumer, "%RETRY%shop%billing") == [0]
        assert [message.topic for message in notes.messages] == ["Orders", "Orders"]
        assert await stored_offset(running, group="shop%billing", topic="shop%Orders") == 1


async def test_run_goes_on_until_stop(tmp_path: Path) -> None:
    consumed: list[bytes] = []

    async def handler(message: MessageExt) -> None:
        consumed.append(message.body)
        if message.body == b"last":
            stops.append(consumer)

    stops: list[AsyncPushConsumer] = []
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a", b"last"])
        consumer = consumer_of(running)
        await consumer.subscribe(TOPIC, handler)
        run = asyncio.ensure_future(consumer.run())
        await until(lambda: stops)
        await consumer.stop()
        await run
        assert consumed == [b"a", b"last"]
        assert await stored_offset(running) == 2


PROGRAM = f"""
import asyncio, signal, sys
from kourou.client.push.push_consumer import AsyncPushConsumer

async def handler(message):
    print("begun", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print("done", flush=True)

async def main():
    consumer = AsyncPushConsumer("{GROUP}", namesrv=sys.argv[1], consume_from="first")
    await consumer.subscribe("{TOPIC}", handler)
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    await consumer.run()
    after = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    print("after-run", before == after, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_in_the_middle_of_a_message_ends_in_order(tmp_path: Path, end: signal.Signals) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a"])
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", PROGRAM, running.namesrv_addr),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"begun\n"
            process.send_signal(end)
            out, err = await process.communicate(b"\n")  # lets the handler end
        assert (process.returncode, err, out.split()) == (0, b"", [b"done", b"after-run", b"True"])
        assert await stored_offset(running) == 1
