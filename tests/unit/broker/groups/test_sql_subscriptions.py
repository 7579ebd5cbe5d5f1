"""SQL92 in heartbeats (34) and checks (46): what is taken, refused, and remembered of each member."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.protocol.bodies import CheckClientRequestBody, ConsumerData, SubscriptionData, encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from tests.unit.broker.tables_kit import MemoryBroker, Peer, consumer


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[MemoryBroker]:
    broker = MemoryBroker(tmp_path)
    yield broker
    await broker.close()


def sql_consumer(expression: str, group: str = "CG", version: int = 1) -> ConsumerData:
    data = consumer(group, T=expression)
    data.subscription_data_set[0].expression_type = "SQL92"
    data.subscription_data_set[0].sub_version = version
    return data


async def check(peer: Peer, subscription: SubscriptionData) -> tuple[int, str | None]:
    body = encode_body(CheckClientRequestBody("c1", "CG", subscription))
    answer = await peer.call(RequestCode.CHECK_CLIENT_CONFIG, body=body)
    return answer.code, answer.remark


async def test_a_check_compiles_the_expression(broker: MemoryBroker) -> None:
    peer = broker.connect()
    assert (await check(peer, SubscriptionData("T", "a > 1", expression_type="SQL92")))[0] == 0
    assert (await check(peer, SubscriptionData("T", "a ||", expression_type="TAG")))[0] == 0
    code, remark = await check(peer, SubscriptionData("T", "a > > 1", expression_type="SQL92"))
    assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert remark is not None and "unexpected '>' at position 5" in remark
    code, remark = await check(peer, SubscriptionData("T", "X", class_filter_mode=True))
    assert code == ResponseCode.SUBSCRIPTION_PARSE_FAILED and "class filters" in (remark or "")


async def test_a_member_with_a_filter_that_is_none_does_not_join(broker: MemoryBroker) -> None:
    peer = broker.connect()
    answer = await peer.heartbeat(sql_consumer("a BETWEN 1 AND 2"), consumer("OTHER"))
    assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert answer.remark is not None
    assert answer.remark.startswith("group CG, topic T: parse the consumer's subscription failed: ")
    assert answer.remark.endswith("unexpected 'BETWEN' at position 3; did you mean BETWEEN?")
    assert broker.consumers.get("CG") is None
    assert broker.consumers.get("OTHER") is not None, "the client's other groups are served"


async def test_filters_by_property_may_be_switched_off(broker: MemoryBroker) -> None:
    broker.set_keys(enable_property_filter=False)
    answer = await broker.connect().heartbeat(sql_consumer("a > 1"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "The broker does not support consumer to filter message by SQL92" in answer.remark


async def test_each_member_s_own_subscription_is_remembered(broker: MemoryBroker) -> None:
    old, new = broker.connect(1), broker.connect(2)
    await old.heartbeat(sql_consumer("a = 'old'", version=1))
    await new.heartbeat(sql_consumer("a = 'new'", version=2))
    await old.heartbeat(sql_consumer("a = 'old'", version=1))

    def wanted(peer: Peer) -> str | None:
        found = peer.connection.state.subscription("CG", "T")
        return None if found is None else found.sub_string

    assert (wanted(old), wanted(new)) == ("a = 'old'", "a = 'new'")
    group = broker.consumers.find_subscription("CG", "T")
    assert group is not None and group.sub_string == "a = 'new'"
    assert old.connection.state.subscription("CG", "U") is None
    assert old.connection.state.subscription("OTHER", "T") is None
    assert broker.connect(3).connection.state.subscription("CG", "T") is None


async def test_a_heartbeat_without_subscriptions_changes_nothing_of_them(broker: MemoryBroker) -> None:
    peer = broker.connect()
    await peer.heartbeat(sql_consumer("a = 'x'"), heartbeat_fingerprint=7)
    await peer.heartbeat(
        ConsumerData(group_name="CG", subscription_data_set=[]), heartbeat_fingerprint=7, without_sub=True
    )
    found = peer.connection.state.subscription("CG", "T")
    assert found is not None and found.sub_string == "a = 'x'"
