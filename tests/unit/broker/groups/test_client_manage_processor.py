"""Heartbeats, farewells and checks, over connections in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kourou.broker.groups.producers import CHANNEL_EXPIRED_MS
from kourou.protocol.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    ConsumeType,
    MessageModel,
    ProducerData,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    encode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import NotifyConsumerIdsChangedRequestHeader, UnregisterClientRequestHeader
from tests.unit.broker.tables_kit import MemoryBroker, Peer, consumer


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[MemoryBroker]:
    broker = MemoryBroker(tmp_path)
    yield broker
    await broker.close()


async def notified(peer: Peer) -> list[str]:
    """The groups that the client was notified of."""
    await asyncio.sleep(0)
    commands = peer.received()
    assert all(each.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED and each.is_oneway for each in commands)
    return [each.header(NotifyConsumerIdsChangedRequestHeader).consumer_group for each in commands]


def ids(broker: MemoryBroker, group: str = "CG") -> list[str]:
    info = broker.consumers.get(group)
    return [] if info is None else info.client_ids()


def changed(answer: RemotingCommand) -> str:
    assert answer.code == ResponseCode.SUCCESS
    return (answer.ext_fields or {})["IS_SUB_CHANGE"]


async def test_a_heartbeat_registers_the_client_and_makes_its_group_and_retry_topic(
    broker: MemoryBroker,
) -> None:
    peer = broker.connect()
    answer = await peer.heartbeat(consumer(), producer_data_set=[ProducerData("PG")])
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields == {
        "IS_SUPPORT_HEART_BEAT_V2": "true",
        "IS_SUB_CHANGE": "true",
        "kourouFeatures": "atomicPublish,haHello,idempotentProducers,largePull",
    }
    assert ids(broker) == ["c40000"]
    assert broker.producers.is_registered("PG", peer.connection)
    assert broker.groups.get("CG") == SubscriptionGroupConfig("CG")
    retry = TopicConfig("%RETRY%CG", 1, 1, 6)
    assert broker.topics.get("%RETRY%CG") == retry
    assert broker.registered == [retry], "name servers hear at once"


async def test_a_retry_topic_is_made_after_its_group(broker: MemoryBroker) -> None:
    broker.groups.update(SubscriptionGroupConfig("CG", retry_queue_nums=3))
    broker.topics.update(TopicConfig("T", order=True))
    unit = consumer()
    unit.unit_mode = True
    await broker.connect().heartbeat(unit)
    assert broker.topics.get("%RETRY%CG") == TopicConfig("%RETRY%CG", 3, 3, 6, topic_sys_flag=2, order=True)


async def test_heartbeats_of_the_cpp_client_are_understood(broker: MemoryBroker) -> None:
    body = (
        b'{"clientID":"cpp","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"CG",'
        b'"messageModel":1,"subscriptionDataSet":[{"subString":"*","subVersion":"1700000000000","topic":"T"}]'
        b"}]}\n"
    )
    assert (await broker.connect().call(RequestCode.HEART_BEAT, body=body)).code == ResponseCode.SUCCESS
    info = broker.consumers.get("CG")
    assert info is not None
    assert info.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert info.subscriptions["T"].sub_version == 1_700_000_000_000


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"consumerDataSet":7}'])
async def test_a_body_that_is_no_heartbeat_is_refused(broker: MemoryBroker, body: bytes) -> None:
    answer = await broker.connect().call(RequestCode.HEART_BEAT, body=body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert broker.consumers.groups == {}


async def test_sets_that_are_null_are_empty(broker: MemoryBroker) -> None:
    body = b'{"clientID":"c1","consumerDataSet":null,"producerDataSet":[{"groupName":"PG"}]}'
    assert (await broker.connect().call(RequestCode.HEART_BEAT, body=body)).code == ResponseCode.SUCCESS
    assert set(broker.producers.groups) == {"PG"}


async def test_members_are_notified_when_one_comes_goes_breaks_off_or_expires(broker: MemoryBroker) -> None:
    one, other, third = (broker.connect(port) for port in (1, 2, 3))
    await one.heartbeat(consumer())
    await other.heartbeat(consumer())
    assert await notified(one) == ["CG"]
    await third.heartbeat(consumer())
    assert (await notified(one), await notified(other)) == (["CG"], ["CG"])
    await other.call(
        RequestCode.UNREGISTER_CLIENT,
        UnregisterClientRequestHeader(client_id="c2", producer_group="", consumer_group="CG"),
    )
    assert (await notified(one), await notified(other), await notified(third)) == (["CG"], [], ["CG"])
    third.transport.break_off()
    assert await notified(one) == ["CG"]
    assert ids(broker) == ["c1"]
    broker.clock.advance(CHANNEL_EXPIRED_MS + 1)
    broker.consumers.scan(broker.clock())
    assert ids(broker) == []


async def test_members_that_disconnect_together_cause_one_notification(broker: MemoryBroker) -> None:
    peers = [broker.connect(port) for port in range(5)]
    for peer in peers:
        await peer.heartbeat(consumer())
    await notified(peers[0])
    for peer in peers[1:]:
        peer.transport.break_off()
    assert await notified(peers[0]) == ["CG"]


@pytest.mark.parametrize("by", ["group", "broker"])
async def test_no_member_is_notified_where_it_is_switched_off(broker: MemoryBroker, by: str) -> None:
    if by == "group":
        broker.groups.update(SubscriptionGroupConfig("CG", notify_consumer_ids_changed_enable=False))
    else:
        broker.set_keys(notify_consumer_ids_changed_enable=False)
    one, other = broker.connect(1), broker.connect(2)
    await one.heartbeat(consumer())
    await other.heartbeat(consumer())
    other.transport.break_off()
    assert await notified(one) == []


async def test_notifications_wait_where_they_are_not_to_be_sent_at_once(broker: MemoryBroker) -> None:
    broker.set_keys(real_time_notify_consumer_change=False)
    one, other = broker.connect(1), broker.connect(2)
    await one.heartbeat(consumer())
    await other.heartbeat(consumer())
    assert await notified(one) == []
    broker.notifier.send_held()
    assert (await notified(one), await notified(other)) == (["CG"], ["CG"])
    broker.notifier.send_held()
    assert await notified(one) == []


async def test_unregistering_a_producer_leaves_the_consumer(broker: MemoryBroker) -> None:
    peer = broker.connect()
    await peer.heartbeat(consumer(), producer_data_set=[ProducerData("PG")])
    header = UnregisterClientRequestHeader(client_id="c40000", producer_group="PG")
    assert (await peer.call(RequestCode.UNREGISTER_CLIENT, header)).code == ResponseCode.SUCCESS
    assert broker.producers.groups == {}
    assert ids(broker) == ["c40000"]


async def test_a_group_that_may_not_be_made_is_passed_over(broker: MemoryBroker) -> None:
    broker.set_keys(auto_create_subscription_group=False)
    answer = await broker.connect().heartbeat(consumer(), consumer("TOOLS_CONSUMER"))
    assert answer.code == ResponseCode.SUCCESS
    assert set(broker.consumers.groups) == {"TOOLS_CONSUMER"}
    assert broker.topics.get("%RETRY%CG") is None


async def test_pull_consumers_may_be_kept_out(broker: MemoryBroker) -> None:
    broker.set_keys(reject_pull_consumer_enable=True)
    active = consumer("A")
    active.consume_type = ConsumeType.CONSUME_ACTIVELY
    await broker.connect().heartbeat(active, consumer())
    assert set(broker.consumers.groups) == {"CG"}


async def test_producers_that_are_never_called_need_not_be_kept(broker: MemoryBroker) -> None:
    peer = broker.connect()
    await peer.heartbeat(producer_data_set=[ProducerData("old")])
    broker.set_keys(enable_register_producer=False, reject_transaction_message=True)
    await peer.heartbeat(producer_data_set=[ProducerData("old"), ProducerData("new")])
    assert set(broker.producers.groups) == {"old"}


# -- heartbeats of 5.x with a fingerprint --------------------------------------------------------


async def test_a_fingerprint_stands_for_subscriptions_that_the_broker_has(broker: MemoryBroker) -> None:
    peer = broker.connect()
    assert changed(await peer.heartbeat(consumer(T="a"), heartbeat_fingerprint=7)) == "false"
    bare = ConsumerData(group_name="CG", message_model=MessageModel.CLUSTERING)
    answer = await peer.heartbeat(bare, heartbeat_fingerprint=7, without_sub=True)
    assert changed(answer) == "false"
    assert broker.consumers.topics_of("CG") == {"T"}


async def test_after_another_heartbeat_of_the_group_the_subscriptions_are_asked_for(
    broker: MemoryBroker,
) -> None:
    one, other = broker.connect(1), broker.connect(2)
    await one.heartbeat(consumer(T="a"), heartbeat_fingerprint=7)
    assert changed(await other.heartbeat(consumer(T="b"), heartbeat_fingerprint=8)) == "true"
    bare = ConsumerData(group_name="CG")
    assert changed(await one.heartbeat(bare, heartbeat_fingerprint=7, without_sub=True)) == "true"


async def test_a_broker_that_restarted_asks_for_the_subscriptions(broker: MemoryBroker) -> None:
    bare = ConsumerData(group_name="CG")
    answer = await broker.connect().heartbeat(bare, heartbeat_fingerprint=7, without_sub=True)
    assert changed(answer) == "true"
    assert ids(broker) == ["c40000"]


# -- members that do not go together -------------------------------------------------------------


async def test_inconsistent_members_are_accepted_unless_the_key_says_otherwise(
    broker: MemoryBroker,
) -> None:
    one, other = broker.connect(1), broker.connect(2)
    await one.heartbeat(consumer(T="a"))
    assert (await other.heartbeat(consumer(T="b"), client_id="c1")).code == ResponseCode.SUCCESS
    assert len(broker.consumers.problems("CG")) == 2


@pytest.mark.parametrize(
    ("key", "fields", "words"),
    [
        (
            "reject_inconsistent_subscription",
            {},
            "group CG: members subscribe differently, c1 at 10.0.0.9:1 to T [a], c2 at 10.0.0.9:2 to T [b]; ",
        ),
        (
            "reject_duplicate_client_id",
            {"client_id": "c1"},
            "group CG: two consumers have the client id c1, at 10.0.0.9:1 and 10.0.0.9:2; ",
        ),
    ],
)
async def test_a_key_makes_the_broker_refuse_and_name_both_sides(
    broker: MemoryBroker,
    caplog: pytest.LogCaptureFixture,
    key: str,
    fields: dict[str, Any],
    words: str,
) -> None:
    broker.set_keys(**{key: True})
    one, other = broker.connect(1), broker.connect(2)
    await one.heartbeat(consumer(T="a"))
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            answer = await other.heartbeat(consumer("ok"), consumer(T="b"), **fields)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark is not None
            assert answer.remark.startswith(words)
    assert len(caplog.messages) == 1, "logged once"
    assert ids(broker) == ["c1"]
    assert len(ids(broker, "ok")) == 1, "its other group is taken"
    assert (await one.heartbeat(consumer(T="c"))).code == ResponseCode.SUCCESS, "alone it may change"


async def test_a_member_that_agrees_is_taken_with_the_keys_on(broker: MemoryBroker) -> None:
    broker.set_keys(reject_inconsistent_subscription=True, reject_duplicate_client_id=True)
    one, other = broker.connect(1), broker.connect(2)
    await one.heartbeat(consumer(T="a"))
    assert (await other.heartbeat(consumer(T="a"))).code == ResponseCode.SUCCESS
    assert ids(broker) == ["c1", "c2"]


# -- 46 ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression_type", "enabled", "code"),
    [("TAG", False, 0), ("", False, 0), ("SQL92", True, 0), ("SQL92", False, 1)],
)
async def test_filters_that_are_not_enabled_are_refused(
    broker: MemoryBroker, expression_type: str, enabled: bool, code: int
) -> None:
    broker.set_keys(enable_property_filter=enabled)
    subscription = SubscriptionData(topic="T", sub_string="a > 1", expression_type=expression_type)
    body = CheckClientRequestBody(client_id="c1", group="CG", subscription_data=subscription)
    answer = await broker.connect().call(RequestCode.CHECK_CLIENT_CONFIG, body=encode_body(body))
    assert answer.code == code
    if code:
        assert answer.remark == "The broker does not support consumer to filter message by SQL92"
