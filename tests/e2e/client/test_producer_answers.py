"""What a producer makes of answers that sound brokers give seldom, or never; and what it writes."""

from __future__ import annotations

import asyncio
import time

import pytest

from kourou.client.core.credentials import Credentials
from kourou.client.producer.send_result import SendStatus
from kourou.errors import HeaderFieldError, SendFailedError
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.message import Message
from tests.e2e.client.kit.producer_kit import TOPIC, producing
from tests.e2e.client.kit.scripted_broker import refused, scripted, silent, stored

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (0, SendStatus.SEND_OK),
        (10, SendStatus.FLUSH_DISK_TIMEOUT),
        (11, SendStatus.SLAVE_NOT_AVAILABLE),
        (12, SendStatus.FLUSH_SLAVE_TIMEOUT),
    ],
)
async def test_stored_messages_have_a_status(code: int, status: SendStatus) -> None:
    fields = {"MSG_REGION": "eu", "TRACE_ON": "false"}
    async with scripted(stored(code, **fields)) as broker, producing(broker.address) as producer:
        result = await producer.send(Message(TOPIC, b"x"))
        assert (result.status, result.queue_offset, result.queue.queue_id) == (status, 5, 0)
        assert (result.region_id, result.trace_on, result.transaction_id) == ("eu", False, None)
        assert producer.stats().sent == 1 and len(broker.sends) == 1


async def test_less_than_ok_is_a_reason_to_try_another_if_asked_for() -> None:
    options = {"retry_another_broker_when_not_store_ok": True}
    async with scripted(stored(11), stored()) as broker, producing(broker.address, **options) as producer:
        assert (await producer.send(Message(TOPIC, b"x"))).is_ok
        assert len(broker.sends) == 2
    # The best there was is the result, whatever happened after it.
    async with scripted(stored(11), refused(1)) as broker, producing(broker.address, **options) as producer:
        assert (await producer.send(Message(TOPIC, b"x"))).status is SendStatus.SLAVE_NOT_AVAILABLE
        assert len(broker.sends) == 3


async def test_an_answer_without_its_fields_is_an_error_of_the_broker() -> None:
    async with scripted(lambda request: request.reply()) as broker, producing(broker.address) as producer:
        with pytest.raises(
            HeaderFieldError, match="SendMessageResponseHeader: required field msgId is missing"
        ):
            await producer.send(Message(TOPIC, b"x"))
        assert producer.stats().in_flight == 0
        broker.answers = [stored()]
        await producer.send(Message(TOPIC, b"x"))


async def test_no_answer_ends_all_sends_at_their_own_time() -> None:
    async with scripted(silent) as broker, producing(broker.address) as producer:
        times_ms = (100, 200, 300)
        sends = [producer.send(Message(TOPIC, b"x"), timeout_ms=ms) for ms in times_ms]
        for ms, outcome in zip(times_ms, await asyncio.gather(*sends, return_exceptions=True), strict=True):
            assert isinstance(outcome, SendFailedError)
            assert f"within {ms} ms" in str(outcome)


async def test_a_request_carries_what_a_java_client_sends() -> None:
    async with scripted(stored()) as broker, producing(broker.address) as producer:
        message = Message(TOPIC, b"body", tags='T"ag', flag=3)
        before_ms = int(time.time() * 1000)
        await producer.send(message)
        (request,) = broker.sends
        header = request.header(SendMessageRequestHeaderV2)
        assert (header.producer_group, header.topic) == ("ProducerGroup", TOPIC)
        assert (header.default_topic, header.default_topic_queue_nums) == ("TBW102", 4)
        assert (header.queue_id in (0, 1), header.sys_flag, header.flag) == (True, 0, 3)
        assert before_ms <= header.born_timestamp <= int(time.time() * 1000)
        assert header.properties == f'TAGS\x01T"ag\x02UNIQ_KEY\x01{message.get_property("UNIQ_KEY")}\x02'
        assert (header.reconsume_times, header.unit_mode, header.batch) == (0, False, False)
        assert (header.broker_name, request.body) == ("scripted", b"body")
        await producer.send_many([Message(TOPIC, b"1"), Message(TOPIC, b"2")])
        assert broker.sends[1].header(SendMessageRequestHeaderV2).batch and broker.sends[1].code == 320


async def test_signed_requests_are_the_same_with_a_signature() -> None:
    credentials = Credentials("ak", "sk")
    async with (
        scripted(stored()) as broker,
        producing(broker.address, credentials=credentials) as producer,
    ):
        message = Message(TOPIC, b"body", tags="Tag")
        await producer.send(message)
        await producer.send_many([message, message])
        for request in broker.sends:
            fields = dict(request.ext_fields)
            signature = fields.pop("Signature")
            credentials.sign(fields, request.body)
            assert fields["Signature"] == signature
        header = broker.sends[0].header(SendMessageRequestHeaderV2)
        assert (header.topic, broker.sends[0].body, header.broker_name) == (TOPIC, b"body", "scripted")
