"""Heartbeats: what brokers are told of clients."""

from __future__ import annotations

import pytest

from kourou.errors import ConnectionLostError
from kourou.protocol.bodies import ConsumeType, HeartbeatData, MessageModel, decode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.proxy.service.heartbeats import Heartbeats, Registrations
from kourou.proxy.wire.rocketmq_v2 import (
    ClientType,
    Code,
    HeartbeatRequest,
    NotifyClientTerminationRequest,
    Settings,
)
from tests.unit.proxy.recorded import ProxyKit, RecordedCall, consumer_settings, producer_settings, settle

HEART_BEAT = RequestCode.HEART_BEAT


async def beat(kit: ProxyKit, settings: Settings | None = None) -> Code:
    handlers = Heartbeats(kit.clients, Registrations(kit.brokers, kit.tasks)).handlers(kit.make)
    kit.client(settings)
    call = await kit.call(handlers, RecordedCall("Heartbeat", HeartbeatRequest()))
    return Code(call.response.status.code)


async def test_a_client_without_settings_is_not_recognised(kit: ProxyKit) -> None:
    assert await beat(kit) is Code.UNRECOGNIZED_CLIENT_TYPE
    assert kit.brokers.sent == []


async def test_a_producer_is_registered_in_a_group_for_each_topic(kit: ProxyKit) -> None:
    kit.brokers.say(HEART_BEAT)
    kit.brokers.routes["U"] = ["broker-b"]
    assert await beat(kit, producer_settings("T", "U")) is Code.OK
    sent = kit.brokers.requests(HEART_BEAT)
    assert [each.broker_name for each in sent] == ["broker-a", "broker-b"]
    data = decode_body(sent[0].command.body, HeartbeatData)
    assert (data.client_id, [each.group_name for each in data.producer_data_set]) == ("c1", ["T", "U"])
    assert data.consumer_data_set == []


@pytest.mark.parametrize(
    ("client_type", "expected"),
    [
        (ClientType.PUSH_CONSUMER, ConsumeType.CONSUME_PASSIVELY),
        (ClientType.SIMPLE_CONSUMER, ConsumeType.CONSUME_ACTIVELY),
    ],
)
async def test_a_consumer_is_registered_with_its_subscriptions(
    kit: ProxyKit, client_type: ClientType, expected: ConsumeType
) -> None:
    kit.brokers.say(HEART_BEAT)
    await beat(kit, consumer_settings("T", client_type=client_type, expression="A"))
    (sent,) = kit.brokers.requests(HEART_BEAT)
    (consumer,) = decode_body(sent.command.body, HeartbeatData).consumer_data_set
    assert (consumer.group_name, consumer.consume_type) == ("g", expected)
    assert consumer.message_model is MessageModel.CLUSTERING
    assert [(each.topic, each.tags_set) for each in consumer.subscription_data_set] == [("T", ["A"])]


async def test_a_refusal_of_a_broker_is_the_answer(kit: ProxyKit) -> None:
    kit.brokers.say(HEART_BEAT, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "no SQL here")
    assert await beat(kit, consumer_settings()) is Code.ILLEGAL_FILTER_EXPRESSION


async def test_a_broker_that_is_away_does_not_fail_a_heartbeat(kit: ProxyKit) -> None:
    kit.brokers.answers[HEART_BEAT] = lambda _: ConnectionLostError("broker-a", "killed")
    assert await beat(kit, consumer_settings("T", "unknown")) is Code.OK


async def test_a_client_is_registered_at_once_over_a_new_connection(kit: ProxyKit) -> None:
    registrations = Registrations(kit.brokers, kit.tasks)
    client = kit.client()
    registrations.register_at(client, client.link("broker-a"))
    assert kit.brokers.sent == []
    kit.client(consumer_settings())
    registrations.register_at(client, client.link("broker-a"))
    kit.brokers.sent[0].answer(ConnectionLostError("broker-a", "killed again"))
    assert [each.code for each in kit.brokers.sent] == [HEART_BEAT]
    await settle()


async def test_a_client_that_terminates_is_gone(kit: ProxyKit) -> None:
    kit.client(consumer_settings())
    handlers = Heartbeats(kit.clients, Registrations(kit.brokers, kit.tasks)).handlers(kit.make)
    call = RecordedCall("NotifyClientTermination", NotifyClientTerminationRequest())
    await kit.call(handlers, call)
    assert call.response.status.code == Code.OK
    assert (len(kit.clients), kit.brokers.closed) == (0, ["c1"])
