"""What a POP consumer makes of answers that a sound broker gives seldom: each on a scripted one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from kourou import AsyncPopConsumer, PopConsumer
from kourou.errors import (
    ClientStateError,
    LeaseExpiredError,
    NoRouteError,
    PopNotSupportedError,
    ResponseError,
)
from kourou.protocol.bodies import decode_body
from kourou.protocol.bodies.batch_ack import BatchAckMessageRequestBody
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PopMessageRequestHeader,
)
from kourou.protocol.pop.receipt_handle import ReceiptHandle
from kourou.protocol.record import encode_record
from kourou.transport.request import Processor, Request
from tests.e2e.client.kit.scripted_broker import ScriptedBroker, refused, scripted, stored
from tests.unit.protocol.test_message import stored as record_of

TOPIC = "TopicTest"


class Pops:
    """A broker's side of POP: `records` messages lie in queue 0, and each pop gets the next of them."""

    def __init__(self, records: int) -> None:
        self.left = list(range(records))
        self.pops: list[PopMessageRequestHeader] = []
        self.acked: list[int] = []
        self.requests: list[int] = []
        self.refusals: dict[int, list[Callable[[Request], None]]] = {}

    @property
    def processors(self) -> dict[int, Processor]:
        """For the scripted broker."""
        served: dict[int, Callable[[Request], None]] = {
            RequestCode.POP_MESSAGE: self._pop,
            RequestCode.ACK_MESSAGE: self._ack,
            RequestCode.BATCH_ACK_MESSAGE: self._ack_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change,
        }
        return {code: self._maybe(code, serve) for code, serve in served.items()}

    def _maybe(self, code: int, serve: Callable[[Request], None]) -> Processor:
        def processor(request: Request) -> None:
            self.requests.append(code)
            refusals = self.refusals.get(code)
            (refusals.pop(0) if refusals else serve)(request)

        return processor

    def _pop(self, request: Request) -> None:
        header = request.header(PopMessageRequestHeader)
        self.pops.append(header)
        offsets, self.left = self.left[: header.max_msg_nums], self.left[header.max_msg_nums :]
        fields: dict[str, Any] = {"popTime": 1_700_000_000_000 + len(self.pops), "invisibleTime": 60_000}
        fields |= {"reviveQid": 0, "restNum": len(self.left)}
        if not offsets:
            asyncio.get_running_loop().call_later(
                max(0, header.poll_time - 50) / 1000, lambda: request.reply(fields, code=210)
            )
            return
        fields["startOffsetInfo"] = f"0 0 {offsets[0]}"
        fields["msgOffsetInfo"] = f"0 0 {','.join(map(str, offsets))}"
        body = b"".join(
            encode_record(record_of(b"%d" % offset, queue_id=0, queue_offset=offset)) for offset in offsets
        )
        request.reply({name: str(value) for name, value in fields.items()}, body)

    def _ack(self, request: Request) -> None:
        self.acked.append(request.header(AckMessageRequestHeader).queue_offset)
        request.reply()

    def _ack_batch(self, request: Request) -> None:
        for entry in decode_body(request.body, BatchAckMessageRequestBody).acks:
            self.acked += entry.queue_offsets()
        request.reply()

    def _change(self, request: Request) -> None:
        header = request.header(ChangeInvisibleTimeRequestHeader)
        request.reply(
            {"popTime": "1700000009999", "invisibleTime": str(header.invisible_time), "reviveQid": "0"}
        )


def consumer(broker: ScriptedBroker) -> AsyncPopConsumer:
    return AsyncPopConsumer("g", namesrv=broker.address, wait_ms=300)


async def test_a_broker_without_pop_is_named_in_the_error() -> None:
    async with scripted(stored()) as broker, consumer(broker) as popper:
        await popper.subscribe(TOPIC)
        with pytest.raises(PopNotSupportedError, match=r"'scripted' at .* needs RocketMQ 5 or Kourou"):
            await popper.receive()


async def test_lasting_refusals_are_raised_and_passing_ones_waited_for() -> None:
    pops = Pops(1)
    pops.refusals[RequestCode.POP_MESSAGE] = [refused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "bad filter")]
    async with scripted(stored(), others=pops.processors) as broker, consumer(broker) as popper:
        await popper.subscribe(TOPIC)
        with pytest.raises(ResponseError, match="bad filter"):
            await popper.receive()
        pops.refusals[RequestCode.POP_MESSAGE] = [refused(ResponseCode.SYSTEM_BUSY), refused(209)]
        (message,) = await popper.receive(wait_ms=20_000)
        assert message.body == b"0"


async def test_a_topic_that_was_never_there_is_an_error() -> None:
    async with scripted(stored()) as broker, consumer(broker) as popper:
        await popper.subscribe("NoTopic")
        with pytest.raises(NoRouteError):
            await popper.receive()


async def test_an_empty_wait_is_an_empty_batch() -> None:
    pops = Pops(0)
    async with scripted(stored(), others=pops.processors) as broker, consumer(broker) as popper:
        with pytest.raises(ClientStateError, match="subscribe to a topic first"):
            await popper.receive()
        await popper.subscribe(TOPIC)
        assert len(await popper.receive()) == 0
    # The broker's clock may differ from this one.
    assert {(header.queue_id, header.born_time) for header in pops.pops} == {(-1, 0)}


async def test_acks_of_one_batch_are_one_request() -> None:
    pops = Pops(40)
    async with scripted(stored(), others=pops.processors) as broker, consumer(broker) as popper:
        await popper.subscribe(TOPIC)
        async with await popper.receive(max_messages=40) as batch:
            assert [header.max_msg_nums for header in pops.pops] == [32, 8]
            assert len(batch) == 40 and pops.acked == []
    assert sorted(pops.acked) == list(range(40))
    assert pops.requests.count(RequestCode.BATCH_ACK_MESSAGE) == 1
    assert pops.requests.count(RequestCode.ACK_MESSAGE) == 0


async def test_a_broker_without_batches_gets_single_acks() -> None:
    pops = Pops(5)
    pops.refusals[RequestCode.BATCH_ACK_MESSAGE] = [refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)]
    async with scripted(stored(), others=pops.processors) as broker, consumer(broker) as popper:
        await popper.subscribe(TOPIC)
        first = await popper.receive(max_messages=3)
        await first.ack()
        await (await popper.receive(max_messages=2)).ack()
    assert sorted(pops.acked) == [0, 1, 2, 3, 4]
    assert pops.requests.count(RequestCode.BATCH_ACK_MESSAGE) == 1  # it is remembered


async def test_one_refused_ack_fails_alone() -> None:
    pops = Pops(3)
    pops.refusals[RequestCode.BATCH_ACK_MESSAGE] = [refused(ResponseCode.NO_MESSAGE)]
    pops.refusals[RequestCode.ACK_MESSAGE] = [refused(ResponseCode.NO_MESSAGE, "offset is illegal")]
    async with scripted(stored(), others=pops.processors) as broker, consumer(broker) as popper:
        await popper.subscribe(TOPIC)
        batch = await popper.receive()
        outcomes = await asyncio.gather(*(message.ack() for message in batch), return_exceptions=True)
    assert isinstance(outcomes[0], ResponseError) and outcomes[1:] == [None, None]
    assert pops.acked == [1, 2]


async def test_an_ack_whose_connection_is_lost_is_repeated() -> None:
    pops = Pops(2)
    pops.refusals[RequestCode.BATCH_ACK_MESSAGE] = [lambda request: request.connection.close("test")]
    async with scripted(stored(), others=pops.processors) as broker, consumer(broker) as popper:
        await popper.subscribe(TOPIC)
        await (await popper.receive()).ack()
    assert pops.acked == [0, 1]


async def test_what_comes_too_late_sends_nothing() -> None:
    pops = Pops(1)
    async with scripted(stored(), others=pops.processors) as broker, consumer(broker) as popper:
        await popper.subscribe(TOPIC)
        (message,) = await popper.receive(invisible_ms=1_000)
        message.lease.ends_at = time.monotonic()
        for late in (message.ack(), message.nack(), message.extend(5_000)):
            with pytest.raises(LeaseExpiredError, match="so it is delivered again"):
                await late
    assert set(pops.requests) == {RequestCode.POP_MESSAGE}


async def test_an_extended_message_is_acknowledged_by_its_new_handle() -> None:
    pops = Pops(2)
    async with scripted(stored(), others=pops.processors) as broker, consumer(broker) as popper:
        await popper.subscribe(TOPIC)
        _, second = await popper.receive()
        await second.extend(120_000)
        assert second.lease.handle == ReceiptHandle.decode("1 1700000009999 120000 0 0 scripted 0 1")
        await second.ack()
        await second.ack()  # the same ack
        with pytest.raises(ClientStateError, match="was acknowledged before"):
            await second.nack()
    assert pops.acked == [1] and pops.requests.count(RequestCode.ACK_MESSAGE) == 1


async def test_an_extend_that_is_cancelled_is_followed_by_an_ack_of_its_new_handle() -> None:
    pops = Pops(1)
    held: list[Request] = []
    handles: list[str] = []
    pops.refusals[RequestCode.CHANGE_MESSAGE_INVISIBLETIME] = [held.append]

    def ack(request: Request) -> None:
        handles.append(request.header(AckMessageRequestHeader).extra_info)
        request.reply()

    pops.refusals[RequestCode.ACK_MESSAGE] = [ack]
    async with scripted(stored(), others=pops.processors) as broker, consumer(broker) as popper:
        await popper.subscribe(TOPIC)
        (message,) = await popper.receive()
        extending = asyncio.create_task(message.extend(120_000))
        while not held:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        extending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await extending
        acked = asyncio.create_task(message.ack())
        await asyncio.sleep(0.05)
        pops._change(held[0])
        await acked
    assert handles == ["0 1700000009999 120000 0 0 scripted 0 0"]


async def test_a_block_that_fails_returns_what_it_still_holds() -> None:
    pops = Pops(3)
    async with scripted(stored(), others=pops.processors) as broker, consumer(broker) as popper:
        await popper.subscribe(TOPIC)
        batch = await popper.receive()
        with pytest.raises(KeyError):
            async with batch:
                await batch[0].ack()
                raise KeyError("price")
        with pytest.raises(ClientStateError, match="was returned"):
            await batch[1].ack()
    assert pops.acked == [0]
    assert pops.requests.count(RequestCode.CHANGE_MESSAGE_INVISIBLETIME) == 2


@pytest.mark.parametrize("is_answered_before", [True, False])
async def test_messages_of_a_receive_that_was_cancelled_are_those_of_the_next(
    is_answered_before: bool,
) -> None:
    pops = Pops(1)
    held: list[Request] = []
    pops.refusals[RequestCode.POP_MESSAGE] = [held.append]
    async with scripted(stored(), others=pops.processors) as broker, consumer(broker) as popper:
        await popper.subscribe(TOPIC)
        waiting = asyncio.create_task(popper.receive(wait_ms=20_000))
        while not held:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        if is_answered_before:
            pops._pop(held[0])
            await asyncio.sleep(0.05)
        following = asyncio.create_task(popper.receive(wait_ms=20_000))
        await asyncio.sleep(0.05)
        if not is_answered_before:
            pops._pop(held[0])
        (message,) = await following
        await message.ack()
    assert pops.requests == [RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE]


async def test_messages_that_nothing_receives_are_visible_at_once() -> None:
    pops = Pops(1)
    held: list[Request] = []
    pops.refusals[RequestCode.POP_MESSAGE] = [held.append]
    async with scripted(stored(), others=pops.processors) as broker, consumer(broker) as popper:
        await popper.subscribe(TOPIC)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(popper.receive(wait_ms=20_000), 0.1)
        pops._pop(held[0])
        await asyncio.sleep(0.1)
    assert pops.requests == [RequestCode.POP_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME]


async def test_the_sync_consumer_does_the_same() -> None:
    pops = Pops(4)

    def program(address: str) -> None:
        with PopConsumer("g", namesrv=address, wait_ms=300) as popper:
            popper.subscribe(TOPIC)
            first, second, *rest = popper.receive(max_messages=3)
            with first:
                assert first.body == b"0"
            second.extend(90_000)
            second.ack()
            with pytest.raises(KeyError), rest[0]:
                raise KeyError("price")
            for message in popper.messages():
                with message:
                    break

    async with scripted(stored(), others=pops.processors) as broker:
        await asyncio.to_thread(program, broker.address)
    assert pops.acked == [0, 1, 3]
