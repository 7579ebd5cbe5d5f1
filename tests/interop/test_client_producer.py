"""Our producers at Apache's name server and broker, of both versions: what is sent is there, as it was.

Not here: what does not depend on the name server (test_client_conformance.py).
"""

from __future__ import annotations

import asyncio
import base64
import logging
from dataclasses import dataclass
from typing import Any, Final

import pytest

from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.send_result import SendResult
from kourou.errors import ClientError, MessageRefusedError, ResponseError
from kourou.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.producer_sequence import SEQUENCE_PROPERTY
from kourou.protocol.record import decode_records
from kourou.transport.client import RemotingClient
from tests.interop.kit import apache
from tests.interop.kit.lanes import Lanes

pytestmark = pytest.mark.interop

QUEUES: Final = 4


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


@pytest.fixture(params=apache.VERSIONS)
def servers(request: pytest.FixtureRequest, shared_lanes: Lanes) -> Servers:
    cluster = shared_lanes.cluster(request.param)
    _, namesrv = cluster.namesrvs
    return Servers(request.param, namesrv.address, cluster.broker.address)


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


async def test_rejections_are_reported(servers: Servers) -> None:
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


@pytest.mark.parametrize("options", [{"idempotent": True}, {"name": "loader-7"}], ids=["idempotent", "named"])
async def test_sends_of_idempotent_producers_are_at_least_once(
    servers: Servers, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    topic = "at-least-once-" + "-".join(options)
    with caplog.at_level(logging.WARNING):
        async with AsyncProducer("loaders", namesrv=servers.namesrv, **options) as producer:
            results = [
                await producer.send(Message(topic, b"row-%d" % n), timeout_ms=10_000) for n in range(3)
            ]
            results += await producer.send_many([Message(topic, b"batch-%d" % n) for n in range(2)])
            with pytest.raises(ClientError, match="does not support idempotent producers"):
                await producer.last_sequence(results[0].queue)
            with pytest.raises(ClientError, match="no broker of the cluster supports atomic publishes"):
                async with producer.atomic():
                    pytest.fail("the block was entered")
            found = await servers.until_stored(topic, len(results))
    assert sorted(message.msg_id for message in found) == sorted(result.msg_id for result in results)
    assert all(message.get_property(SEQUENCE_PROPERTY) is None for message in found)
    assert len([record for record in caplog.records if "at least once" in record.message]) == 1
