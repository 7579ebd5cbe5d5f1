"""Telemetry: the exchange of settings, commands with answers, and streams that misbehave."""

from __future__ import annotations

import pytest

from kourou.access.model import Account
from kourou.errors import ConnectionLostError
from kourou.protocol.bodies import HeartbeatData, SubscriptionGroupConfig, decode_body
from kourou.protocol.codes import RequestCode
from kourou.proxy.clients.client_settings import ClientPolicy
from kourou.proxy.clients.telemetry_stream import MAX_UNSENT_BYTES
from kourou.proxy.http2.call import GrpcCode
from kourou.proxy.messages.statuses import StatusError
from kourou.proxy.service.heartbeats import Registrations
from kourou.proxy.service.telemetry import Telemetry, current_stream
from kourou.proxy.wire.rocketmq_v2 import (
    Code,
    PrintThreadStackTraceCommand,
    Settings,
    TelemetryCommand,
    ThreadStackTrace,
)
from tests.unit.proxy.recorded import (
    ProxyKit,
    RecordedCall,
    consumer_settings,
    producer_settings,
    settle,
)


class Streams:
    """The service, and streams to it."""

    def __init__(self, kit: ProxyKit) -> None:
        self.kit = kit
        self.registrations = Registrations(kit.brokers, kit.tasks)
        self.telemetry = Telemetry(
            kit.clients, kit.brokers, kit.access, self.registrations, kit.tasks, ClientPolicy()
        )

    async def open(self, settings: Settings | None = None, **call: str) -> RecordedCall:
        stream = RecordedCall("Telemetry", **call)
        self.telemetry.telemetry(stream)
        if settings is not None:
            await self.send(stream, TelemetryCommand(settings=settings))
        return stream

    async def send(self, stream: RecordedCall, command: TelemetryCommand | bytes) -> None:
        assert stream.on_message is not None
        stream.on_message(command if isinstance(command, bytes) else command.SerializeToString())
        await settle()


@pytest.fixture
def streams(kit: ProxyKit) -> Streams:
    return Streams(kit)


async def test_settings_are_answered_with_status_ok(streams: Streams) -> None:
    for sent, branch in (producer_settings("T"), "publishing"), (consumer_settings(), "subscription"):
        stream = await streams.open(sent)
        answer = stream.response
        assert answer.status.code == Code.OK
        assert answer.settings.WhichOneof("pub_sub") == branch
        assert not stream.is_over


async def test_settings_register_the_client_at_every_broker_of_its_topics(streams: Streams) -> None:
    streams.kit.brokers.routes = {"T": ["broker-a", "broker-b"], "U": ["broker-b"]}
    await streams.open(consumer_settings("T", "U", "unknown"))
    sent = streams.kit.brokers.requests(RequestCode.HEART_BEAT)
    assert [each.broker_name for each in sent] == ["broker-a", "broker-b"]
    assert decode_body(sent[0].command.body, HeartbeatData).consumer_data_set[0].group_name == "g"


@pytest.mark.parametrize("data", [b"\xff\xff", b"\x12\x01"])
async def test_what_is_no_command_ends_the_stream(streams: Streams, data: bytes) -> None:
    stream = await streams.open()
    await streams.send(stream, data)
    assert stream.status is GrpcCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (Settings(), GrpcCode.INVALID_ARGUMENT),
        (consumer_settings("a b"), GrpcCode.INVALID_ARGUMENT),
        (consumer_settings(client_type=5), GrpcCode.UNIMPLEMENTED),
    ],
)
async def test_settings_that_are_refused_end_the_stream(
    streams: Streams, sent: Settings, code: GrpcCode
) -> None:
    stream = await streams.open(sent)
    assert (stream.status, stream.sent) == (code, [])
    assert streams.kit.client().streams == []


async def test_settings_beyond_the_limit_end_the_stream(streams: Streams) -> None:
    stream = await streams.open(producer_settings(*(f"{number:0100d}" for number in range(3_000))))
    assert stream.status is GrpcCode.INVALID_ARGUMENT and "262144" in stream.text


async def test_a_stream_without_a_client_id_is_refused(streams: Streams) -> None:
    assert (await streams.open(client_id="")).status is GrpcCode.INVALID_ARGUMENT


async def test_a_consumer_hears_when_its_group_has_changed(streams: Streams) -> None:
    stream = await streams.open(consumer_settings())
    await streams.telemetry.refresh()
    assert len(stream.sent) == 1
    streams.kit.brokers.groups["g"] = SubscriptionGroupConfig(consume_message_orderly=True)
    await streams.telemetry.refresh()
    assert [each.settings.subscription.fifo for each in stream.responses] == [False, True]
    rules = streams.kit.client().rules
    assert rules is not None and rules.is_fifo


async def test_a_consumer_comes_back_while_brokers_are_away(streams: Streams) -> None:
    brokers = streams.kit.brokers
    brokers.groups["g"] = SubscriptionGroupConfig(consume_message_orderly=True)
    (await streams.open(consumer_settings())).cancel()
    brokers.groups["g"] = ConnectionLostError("broker-a", "killed")
    stream = await streams.open(consumer_settings())
    assert stream.response.settings.subscription.fifo


async def test_a_new_consumer_waits_for_brokers(streams: Streams) -> None:
    streams.kit.brokers.groups["g"] = ConnectionLostError("broker-a", "killed")
    assert (await streams.open(consumer_settings())).status is GrpcCode.INTERNAL


async def test_an_answer_finds_its_command_by_the_nonce(streams: Streams) -> None:
    await streams.open(producer_settings())
    call = await streams.open(consumer_settings())
    stream = current_stream(streams.kit.client())
    assert stream.call is call
    waiting = stream.ask(
        "n1", TelemetryCommand(print_thread_stack_trace_command=PrintThreadStackTraceCommand(nonce="n1")), 5
    )
    assert call.responses[-1].print_thread_stack_trace_command.nonce == "n1"
    for nonce in "n0", "n1", "n1":
        trace = ThreadStackTrace(nonce=nonce, thread_stack_trace=f"stack {nonce}")
        await streams.send(call, TelemetryCommand(thread_stack_trace=trace))
    assert waiting.result().thread_stack_trace.thread_stack_trace == "stack n1"


async def test_a_command_without_an_answer_fails(streams: Streams) -> None:
    call = await streams.open(consumer_settings())
    stream = current_stream(streams.kit.client())
    expired, lost = stream.ask("n1", TelemetryCommand(), 0), stream.ask("n2", TelemetryCommand(), 5)
    with pytest.raises(StatusError, match="has not answered within 0 s"):
        await expired
    call.cancel()
    with pytest.raises(StatusError, match="has ended"):
        await lost
    with pytest.raises(StatusError, match="has no Telemetry stream"):
        current_stream(streams.kit.client())


async def test_commands_without_an_answer_are_bounded(streams: Streams) -> None:
    await streams.open(consumer_settings())
    stream = current_stream(streams.kit.client())
    waiting = [stream.ask(f"n{number}", TelemetryCommand(), 5) for number in range(65)]
    assert [each.done() for each in waiting] == [False] * 64 + [True]
    assert isinstance(waiting[-1].exception(), StatusError)
    stream.ended()
    assert all(each.exception() for each in waiting)


async def test_a_client_that_does_not_read_loses_its_stream(streams: Streams) -> None:
    call = await streams.open(consumer_settings())
    call.unsent = MAX_UNSENT_BYTES + 1
    current_stream(streams.kit.client()).send(TelemetryCommand())
    assert call.status is GrpcCode.RESOURCE_EXHAUSTED
    assert streams.kit.client().streams == []


async def test_streams_of_one_client_are_bounded(streams: Streams) -> None:
    calls = [await streams.open(producer_settings()) for _ in range(9)]
    assert [call.is_over for call in calls] == [True] + [False] * 8
    assert len(streams.kit.client().streams) == 8


async def test_the_end_of_a_stream_is_answered_with_ok(streams: Streams) -> None:
    call = await streams.open(producer_settings())
    assert call.on_half_close is not None
    call.on_half_close()
    assert (call.status, streams.kit.client().streams) == (GrpcCode.OK, [])


async def test_a_stream_belongs_to_one_client_when_access_control_is_switched_on(streams: Streams) -> None:
    stream = await streams.open(producer_settings())
    before = streams.kit.client()
    streams.kit.access.account = Account(name="alice", secret_key="s")
    await streams.send(stream, TelemetryCommand(settings=producer_settings()))
    assert before.streams == [] and [each.call for each in streams.kit.client().streams] == [stream]
