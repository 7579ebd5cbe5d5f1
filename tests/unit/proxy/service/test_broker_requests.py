"""Requests of brokers: which command the client gets, and what the broker gets back."""

from __future__ import annotations

from typing import Any

import pytest

from kourou.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    MessageQueue,
    decode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import CommandHead, RemotingCommand, decode_command
from kourou.protocol.frame import FrameDecoder
from kourou.protocol.headers.transactions import CheckTransactionStateRequestHeader
from kourou.protocol.properties import encode_properties, properties_to_bytes
from kourou.protocol.record import encode_record
from kourou.proxy.clients.proxy_client import ProxyClient
from kourou.proxy.clients.telemetry_stream import TelemetryStream
from kourou.proxy.messages.statuses import make_status
from kourou.proxy.service.broker_requests import BrokerRequests
from kourou.proxy.wire.rocketmq_v2 import (
    Code,
    TelemetryCommand,
    ThreadStackTrace,
    VerifyMessageResult,
)
from kourou.transport.dispatcher import answer_failure
from kourou.transport.request import Request
from tests.unit.protocol.test_message import stored
from tests.unit.proxy.recorded import ProxyKit, RecordedCall, consumer_settings, producer_settings, settle

RECORD = encode_record(stored(b"half", properties_to_bytes(encode_properties({"UNIQ_KEY": "id"})), topic="T"))


class FakeConnection:
    """A connection that keeps what is sent."""

    remote_address = "10.0.0.1:10911"

    def __init__(self) -> None:
        self.sent = b""

    def send(self, data: bytes) -> None:
        self.sent += data


class Broker:
    """A broker that sends requests to client c1, which has a stream."""

    def __init__(self, kit: ProxyKit) -> None:
        self.kit = kit
        self.checks: list[tuple[str, str, int, int]] = []
        self.handler = BrokerRequests(kit.brokers, self, kit.tasks)
        self.client = kit.client(consumer_settings())
        self.call = RecordedCall("Telemetry")
        self.stream = TelemetryStream(self.call, self.client)
        self.client.streams.append(self.stream)
        self._connection = FakeConnection()

    def checked(
        self, client: ProxyClient, topic: str, broker_name: str, check: CheckTransactionStateRequestHeader
    ) -> None:
        assert client is self.client
        self.checks.append((topic, broker_name, check.tran_state_table_offset, check.commit_log_offset))

    async def send(self, code: int, body: bytes = b"", *, flag: int = 0, **fields: str) -> None:
        head = CommandHead(code=code, flag=flag, ext_fields=fields)
        connection: Any = self._connection
        request = Request(connection, 0, head, body)
        try:
            self.handler.handle(self.client, request)
        except Exception as error:
            answer_failure(request, error)
        await settle()

    @property
    def commands(self) -> list[TelemetryCommand]:
        """What the client has got."""
        return self.call.responses

    @property
    def answers(self) -> list[RemotingCommand]:
        """What the broker has got."""

        return [decode_command(frame) for frame in FrameDecoder().feed(self._connection.sent)]


@pytest.fixture
async def broker(kit: ProxyKit) -> Broker:
    return Broker(kit)


async def test_an_orphaned_transaction_is_shown_to_its_producer(broker: Broker) -> None:
    broker.kit.client(producer_settings("T"))
    await broker.send(
        RequestCode.CHECK_TRANSACTION_STATE,
        RECORD,
        flag=2,
        tranStateTableOffset="4",
        commitLogOffset="5",
        transactionId="id",
        bname="broker-a",
    )
    (command,) = broker.commands
    recover = command.recover_orphaned_transaction_command
    assert (recover.transaction_id, recover.message.body, recover.message.topic.name) == ("id", b"half", "T")
    assert recover.message.system_properties.message_id == "id"
    assert (broker.checks, broker.answers) == ([("T", "broker-a", 4, 5)], [])


async def test_a_check_for_a_producer_without_a_stream_is_dropped(broker: Broker) -> None:
    broker.stream.ended()
    fields = {"tranStateTableOffset": "4", "commitLogOffset": "5"}
    await broker.send(RequestCode.CHECK_TRANSACTION_STATE, RECORD, flag=2, **fields)
    assert (broker.commands, broker.answers) == ([], [])


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (make_status(Code.OK), CMResult.CR_SUCCESS),
        (make_status(Code.FAILED_TO_CONSUME_MESSAGE, "boom"), CMResult.CR_LATER),
    ],
)
async def test_a_message_that_is_verified_has_a_result(broker: Broker, status: Any, result: CMResult) -> None:
    await broker.send(RequestCode.CONSUME_MESSAGE_DIRECTLY, RECORD, consumerGroup="g", clientId="c1")
    verify = broker.commands[0].verify_message_command
    assert (verify.message.body, broker.answers) == (b"half", [])
    broker.stream.answered(
        verify.nonce,
        TelemetryCommand(status=status, verify_message_result=VerifyMessageResult(nonce=verify.nonce)),
    )
    await settle()
    (answer,) = broker.answers
    found = decode_body(answer.body, ConsumeMessageDirectlyResult)
    assert (found.consume_result, found.remark) == (result, status.message)


async def test_a_message_in_order_is_not_verified(broker: Broker) -> None:
    await broker.send(RequestCode.CONSUME_MESSAGE_DIRECTLY, RECORD, consumerGroup="g")
    nonce = broker.commands[0].verify_message_command.nonce
    status = make_status(Code.VERIFY_FIFO_MESSAGE_UNSUPPORTED, "in order")
    broker.stream.answered(nonce, TelemetryCommand(status=status))
    await settle()
    (answer,) = broker.answers
    assert answer.code == ResponseCode.SYSTEM_ERROR and "50502: in order" in (answer.remark or "")


async def test_running_info_is_what_the_proxy_knows(broker: Broker) -> None:
    await broker.send(RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="c1")
    (answer,) = broker.answers
    info = decode_body(answer.body, ConsumerRunningInfo)
    assert (info.jstack, [each.topic for each in info.subscription_set]) == (None, ["T"])
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert set(info.mq_pop_table) == {MessageQueue("T", name, -1) for name in broker.kit.brokers.routes["T"]}
    assert broker.commands == []


async def test_stacks_come_from_the_client(broker: Broker) -> None:
    await broker.send(
        RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="g", clientId="c1", jstackEnable="true"
    )
    nonce = broker.commands[0].print_thread_stack_trace_command.nonce
    trace = ThreadStackTrace(nonce=nonce, thread_stack_trace="main\n  at work")
    broker.stream.answered(nonce, TelemetryCommand(thread_stack_trace=trace))
    await settle()
    assert decode_body(broker.answers[0].body, ConsumerRunningInfo).jstack == "main\n  at work"


async def test_a_client_that_does_not_answer_is_an_error(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kourou.proxy.service.broker_requests.ANSWER_S", 0.0)
    await broker.send(RequestCode.CONSUME_MESSAGE_DIRECTLY, RECORD, consumerGroup="g")
    await settle()
    assert "has not answered" in (broker.answers[0].remark or "")


@pytest.mark.parametrize(
    ("code", "flag", "expected"),
    [
        (RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 2, []),
        (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, 0, [ResponseCode.SUCCESS]),
        (RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, 0, [ResponseCode.REQUEST_CODE_NOT_SUPPORTED]),
        (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, 0, [ResponseCode.REQUEST_CODE_NOT_SUPPORTED]),
    ],
)
async def test_other_requests_do_not_reach_the_client(
    broker: Broker, code: int, flag: int, expected: list[int]
) -> None:
    await broker.send(code, flag=flag)
    assert ([answer.code for answer in broker.answers], broker.commands) == (expected, [])
