"""Request and reply with our producer on both sides: the requester gets the reply, or a reason."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.request_reply import reply_to
from kourou.embed import Broker
from kourou.errors import ClientStateError, MessageRefusedError, NoReplyError, NoRouteError, SendFailedError
from kourou.protocol.message import Message, MessageExt
from kourou.testing.cluster import cluster
from tests.e2e.broker.transaction_kit import until
from tests.e2e.client.kit.producer_kit import TOPIC, all_stored, linked_broker, pair, producing

pytestmark = pytest.mark.e2e

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"


@asynccontextmanager
async def answering(
    namesrv_addr: str, brokers: list[Broker], answer: Callable[[AsyncProducer, MessageExt], Awaitable[object]]
) -> AsyncIterator[None]:
    """A consumer that answers each request once: it looks into the stores."""
    seen: set[str] = set()

    async def work(producer: AsyncProducer) -> None:
        while True:
            for record in [record for broker in brokers for record in all_stored(broker)]:
                if record.msg_id not in seen:
                    seen.add(record.msg_id)
                    await answer(producer, record)
            await asyncio.sleep(0.005)

    async with AsyncProducer("Repliers", namesrv=namesrv_addr) as producer:
        task = asyncio.ensure_future(work(producer))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()


async def echo(producer: AsyncProducer, request: MessageExt) -> object:
    return await producer.send(producer.reply_to(request, b"re: " + request.body))


async def test_a_request_gets_its_reply(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        async with answering(running.namesrv_addr, running.brokers, echo):
            message = Message(TOPIC, b"ping", tags="T")
            reply = await producer.request(message)
            assert (reply.body, reply.topic) == (b"re: ping", REPLY_TOPIC)
            assert reply.get_property("MSG_TYPE") == "reply" and reply.get_property("ARRIVE_TIME")
            assert reply.store_host == running.broker.address
            # The request itself is left as it was, so it can be asked again.
            assert set(message.properties) == {"TAGS", "UNIQ_KEY"}
            replies = await asyncio.gather(
                *(producer.request(Message(TOPIC, b"%d" % number)) for number in range(20))
            )
            assert [reply.body for reply in replies] == [b"re: %d" % number for number in range(20)]
        (record, *_) = all_stored(running.broker)
        assert record.get_property("TTL") == "3000"
        assert record.get_property("REPLY_TO_CLIENT") == producer.client_id


async def test_a_large_reply_travels_compressed(tmp_path: Path) -> None:
    async def answer(producer: AsyncProducer, request: MessageExt) -> object:
        return await producer.send(reply_to(request, b"r" * 100_000))

    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        async with answering(running.namesrv_addr, running.brokers, answer):
            reply = await producer.request(Message(TOPIC, b"q" * 10_000))
            assert reply.body == b"r" * 100_000 and len(reply.stored_body) < 1000


async def test_the_reply_may_come_through_any_broker(tmp_path: Path) -> None:
    async with pair(tmp_path) as running:
        brokers = list(running.brokers.values())
        # The topic is at one broker; replies are spread over both.
        async with producing(running.namesrv_addr, default_topic_queue_nums=1) as producer:
            first = (await producer.send(Message(TOPIC, b"made"))).queue.broker_name
            async with AsyncProducer("Askers", namesrv=running.namesrv_addr) as asker:
                async with answering(running.namesrv_addr, brokers, _echo_requests):
                    for number in range(8):
                        assert (
                            await asker.request(Message(TOPIC, b"%d" % number))
                        ).body == b"re: %d" % number
        assert first in running.brokers
        counts = [len(all_stored(broker, REPLY_TOPIC)) for broker in brokers]
        assert all(counts), counts


async def _echo_requests(producer: AsyncProducer, request: MessageExt) -> object:
    return await echo(producer, request) if request.get_property("CORRELATION_ID") else None


async def test_no_consumer_replies(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        with pytest.raises(NoReplyError, match="no reply to request .* within 200 ms; is a consumer running"):
            await producer.request(Message(TOPIC, b"ping"), timeout_ms=200)
        # A late reply is accepted and has no effect.
        (request,) = all_stored(running.broker)
        assert (await producer.send(reply_to(request, b"late"))).is_ok


async def test_a_request_that_cannot_be_sent_is_no_timeout(tmp_path: Path) -> None:
    async with pair(tmp_path) as running, producing(running.namesrv_addr) as producer:
        running.codes = dict.fromkeys(("broker-a", "broker-b"), 2)
        with pytest.raises(SendFailedError, match="answered code 2"):
            await producer.request(Message(TOPIC, b"ping"))
    async with cluster(tmp_path / "2", auto_create_topic_enable=False) as alone:
        async with producing(alone.namesrv_addr) as producer:
            with pytest.raises(NoRouteError):
                await producer.request(Message(TOPIC, b"ping"))
            with pytest.raises(MessageRefusedError):
                await producer.request(Message(TOPIC, b""))


async def test_a_reply_to_a_client_that_is_gone_is_an_error(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as replier:
        async with AsyncProducer("Askers", namesrv=running.namesrv_addr) as asker:
            await asker.send(Message(TOPIC, b"connected"))
            with pytest.raises(NoReplyError):
                await asker.request(Message(TOPIC, b"ping"), timeout_ms=500)
        (request,) = [each for each in all_stored(running.broker) if each.body == b"ping"]
        with pytest.raises(SendFailedError, match="channel of <.*> not found"):
            await replier.send(reply_to(request, b"pong"))


async def test_stop_ends_a_request_that_waits(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        async with AsyncProducer("Askers", namesrv=running.namesrv_addr) as asker:
            asking = asyncio.ensure_future(asker.request(Message(TOPIC, b"ping"), timeout_ms=60_000))
            await until(lambda: len(all_stored(running.broker)) == 1, "the request")
        with pytest.raises(ClientStateError, match="stopped before a reply came"):
            await asking


async def test_a_broker_that_hangs_ends_a_request_in_time(tmp_path: Path) -> None:
    async with linked_broker(tmp_path) as (namesrv, broker, link), producing(namesrv) as producer:
        link.freeze()
        with pytest.raises(SendFailedError):
            await producer.request(Message(TOPIC, b"ping"), timeout_ms=300)
        link.thaw()


async def test_what_is_no_request_cannot_be_replied_to(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        await producer.send(Message(TOPIC, b"plain"))
        (record,) = all_stored(running.broker)
        with pytest.raises(MessageRefusedError, match="is not a request: it has no CORRELATION_ID"):
            producer.reply_to(record, b"pong")
