"""Our producers at Apache's name server and broker, of both versions: what is sent is there, as it was."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from kourou.client.producer import AsyncProducer
from kourou.client.send_result import SendResult
from kourou.client.transaction_producer import AsyncTransactionProducer
from kourou.client.transaction_state import TransactionState
from kourou.errors import MessageRefusedError, NoReplyError, ResponseError
from kourou.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.record import decode_records
from kourou.transport.client import RemotingClient

from . import apache, wire

pytestmark = pytest.mark.interop

QUEUES: Final = 4
# Halves are asked about soon, in 5.x sooner than their end is noted down there (transactionOpBatchInterval).
_PROPERTIES: Final = {
    "transactionTimeOut": "500",
    "transactionCheckInterval": "500",
    "recallMessageEnable": "true",
}


@dataclass(frozen=True, slots=True)
class Servers:
    """Apache's name server and broker."""

    version: str
    namesrv: str
    broker: str

    async def stored(self, topic: str) -> list[MessageExt]:
        """All messages of a topic, queue by queue."""
        client = RemotingClient()
        try:
            found: list[MessageExt] = []
            for queue_id in range(QUEUES):
                found += await self._pull(client, topic, queue_id)
            return found
        finally:
            await client.stop()

    async def _pull(self, client: RemotingClient, topic: str, queue_id: int) -> list[MessageExt]:
        header = PullMessageRequestHeader(
            consumer_group="readers",
            topic=topic,
            queue_id=queue_id,
            queue_offset=0,
            max_msg_nums=32,
            sys_flag=PullSysFlag.SUBSCRIPTION.value,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
        )
        command = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        answer = await client.call(self.broker, command, 5_000)
        return list(decode_records(answer.body)) if answer.code == ResponseCode.SUCCESS else []

    async def until_stored(self, topic: str, count: int) -> list[MessageExt]:
        """Wait until so many messages are there."""
        async with asyncio.timeout(30):
            while len(found := await self.stored(topic)) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return found


@pytest.fixture(scope="module", params=apache.VERSIONS)
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    version: str = request.param
    work_dir: Path = tmp_path_factory.mktemp(f"apache-{version}")
    with ExitStack() as stack:
        namesrv = stack.enter_context(apache.start_namesrv(version, work_dir))
        broker = stack.enter_context(
            apache.start_broker(version, work_dir, [namesrv.address], properties=_PROPERTIES)
        )
        # Apache's 5.5.0 may find no name server in its first round; a change of its permission makes it
        # register now.
        wire.set_config(broker.address, brokerPermission=6)
        wire.wait_route(namesrv.address, "TBW102", broker.address)
        yield Servers(version, namesrv.address, broker.address)


async def test_every_way_to_send(servers: Servers) -> None:
    topic = "ways-to-send"
    async with AsyncProducer("senders", namesrv=servers.namesrv) as producer:
        plain = Message(topic, b"plain", tags="TagA", keys=["k1"], flag=3, properties={"colour": "grün"})
        first = await producer.send(plain, timeout_ms=10_000)
        results: list[SendResult] = [
            first,
            await producer.send(Message(topic, b"large" * 2_000)),
            await producer.send(Message(topic, b"sharded"), sharding_key="order-1"),
            await producer.send(Message(topic, b"chosen"), queue=(await producer.queues(topic))[2]),
            *await producer.send_many([Message(topic, b"batch-%d" % n, tags="B") for n in range(5)]),
            *await asyncio.gather(
                *(producer.send_nowait(Message(topic, b"piped-%d" % n)) for n in range(20))
            ),
        ]
        await producer.send_oneway(Message(topic, b"one-way"))
        found = {message.msg_id: message for message in await servers.until_stored(topic, len(results) + 1)}
        assert len(found) == len(results) + 1
        for result in results:
            record = found[result.msg_id]
            assert (record.queue_id, record.queue_offset) == (result.queue.queue_id, result.queue_offset)
            assert record.offset_msg_id == result.offset_msg_id
        record = found[first.msg_id]
        assert (record.body, record.tags, record.keys, record.flag) == (b"plain", "TagA", ("k1",), 3)
        assert record.get_property("colour") == "grün"
        large = found[results[1].msg_id]
        assert large.body == b"large" * 2_000 and len(large.stored_body) < 1_000
        assert results[3].queue.queue_id == 2
        assert [found[result.msg_id].body for result in results[4:9]] == [b"batch-%d" % n for n in range(5)]
        assert {found[result.msg_id].tags for result in results[4:9]} == {"B"}
        assert producer.stats().failed == producer.stats().retried == 0


async def test_delays(servers: Servers) -> None:
    async with AsyncProducer("senders", namesrv=servers.namesrv) as producer:
        await producer.send(Message("delays", b"level", delay_time_level=1))
        if servers.version.startswith("5"):
            timer = await producer.send(Message("delays", b"timer", delay_time_ms=60_000))
            assert timer.recall_handle is not None
            assert await producer.recall("delays", timer.recall_handle) == timer.msg_id
        (late,) = await servers.until_stored("delays", 1)
        assert late.body == b"level"


async def test_refusals_are_told(servers: Servers) -> None:
    async with AsyncProducer(
        "senders", namesrv=servers.namesrv, max_message_bytes=8 * 1024 * 1024
    ) as producer:
        noise = bytes((n * n * 2654435761 >> 13) & 0xFF for n in range(64 * 1024)) * 80
        with pytest.raises(ResponseError) as caught:
            await producer.send(
                Message("refused", noise), queue=(await producer.queues("refused"))[0], timeout_ms=20_000
            )
        assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
        with pytest.raises(MessageRefusedError):
            await producer.send(Message("SCHEDULE_TOPIC_XXXX", b"x"))
        if servers.version.startswith("5"):
            handle = base64.urlsafe_b64encode(b"v1 refused broker-a 1700000000000 NONE").decode()
            with pytest.raises(ResponseError):
                await producer.recall("refused", handle)


async def test_transactions(servers: Servers) -> None:
    asked: list[MessageExt] = []

    def check(message: MessageExt) -> TransactionState:
        asked.append(message)
        return TransactionState.COMMIT if message.body == b"checked" else TransactionState.ROLLBACK

    topic = "transactions"
    async with AsyncTransactionProducer("tx-senders", namesrv=servers.namesrv, check=check) as producer:
        async with producer.transaction(Message(topic, b"committed"), timeout_ms=10_000) as committed:
            assert await servers.stored(topic) == []
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(Message(topic, b"rolled back")):
                _ = 1 // 0
        async with producer.transaction(Message(topic, b"checked", tags="T")) as unknown:
            unknown.unknown()
        async with producer.transaction(Message(topic, b"dropped")) as dropped:
            dropped.unknown()
        found = {message.msg_id: message for message in await servers.until_stored(topic, 2)}
        assert {message.body for message in found.values()} == {b"committed", b"checked"}
        assert set(found) == {committed.msg_id, unknown.msg_id}
        assert found[unknown.msg_id].tags == "T"
        async with asyncio.timeout(30):
            while dropped.msg_id not in {message.msg_id for message in asked}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert {message.topic for message in asked} == {topic}
        assert {message.msg_id for message in asked} == {unknown.msg_id, dropped.msg_id}
        assert len(await servers.stored(topic)) == 2


async def test_request_and_reply(servers: Servers) -> None:
    topic = "requests"
    async with (
        AsyncProducer("askers", namesrv=servers.namesrv) as asker,
        AsyncProducer("repliers", namesrv=servers.namesrv) as replier,
    ):
        asking = asyncio.ensure_future(asker.request(Message(topic, b"ping"), timeout_ms=20_000))
        (request,) = await servers.until_stored(topic, 1)
        await replier.send(replier.reply_to(request, b"pong" * 2_000), timeout_ms=10_000)
        reply = await asking
        assert reply.body == b"pong" * 2_000
        with pytest.raises(NoReplyError):
            await asker.request(Message(topic, b"anybody?"), timeout_ms=500)
