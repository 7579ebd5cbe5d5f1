"""What administrators do to consumer groups, over connections in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.protocol.bodies import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import PermName, RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from tests.unit.broker.tables_kit import MemoryBroker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[MemoryBroker]:
    broker = MemoryBroker(tmp_path)
    yield broker
    await broker.close()


async def update(broker: MemoryBroker, config: SubscriptionGroupConfig) -> RemotingCommand:
    body = encode_body(config)
    return await broker.connect().call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)


async def test_a_group_is_made_and_changed(broker: MemoryBroker) -> None:
    config = SubscriptionGroupConfig("CG", consume_enable=False, retry_max_times=3, retry_queue_nums=2)
    assert (await update(broker, config)).code == ResponseCode.SUCCESS
    assert broker.groups.get("CG") == config
    assert broker.groups.is_dirty


async def test_the_form_of_4_9_has_the_defaults_of_5(broker: MemoryBroker) -> None:
    body = b'{"brokerId":0,"consumeEnable":true,"groupName":"CG","retryMaxTimes":5}'
    await broker.connect().call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
    assert broker.groups.get("CG") == SubscriptionGroupConfig("CG", retry_max_times=5)


@pytest.mark.parametrize(
    ("group", "remark"),
    [
        ("", "The specified group is blank."),
        ("a.b", "The specified group: a.b, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("g" * 121, f"The specified group: {'g' * 121}, is longer than group max length: 120"),
    ],
)
async def test_bad_names_are_refused_in_apaches_words(broker: MemoryBroker, group: str, remark: str) -> None:
    answer = await update(broker, SubscriptionGroupConfig(group))
    assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, remark)
    assert broker.groups.get(group) is None


async def test_a_list_of_groups_is_made_whole_or_not_at_all(broker: MemoryBroker) -> None:
    peer = broker.connect()

    async def create_list(*groups: str) -> int:
        configs = SubscriptionGroupList([SubscriptionGroupConfig(group) for group in groups])
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        return (await peer.call(code, body=encode_body(configs))).code

    assert await create_list("one", "a.b") == ResponseCode.INVALID_PARAMETER
    assert broker.groups.get("one") is None
    assert await create_list("one", "two") == ResponseCode.SUCCESS
    assert {"one", "two"} <= set(broker.groups.table)


async def test_groups_are_shown_all_or_page_by_page(broker: MemoryBroker) -> None:
    peer = broker.connect()
    broker.groups.update_forbidden("TOOLS_CONSUMER", "orders", PermName.READ, is_forbidden=True)

    async def ask(header: GetAllSubscriptionGroupRequestHeader | None = None) -> SubscriptionGroupWrapper:
        answer = await peer.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
        assert answer.ext_fields == {"totalGroupNum": str(len(broker.groups.table))}
        return decode_body(answer.body, SubscriptionGroupWrapper)

    everything = await ask()
    assert everything == SubscriptionGroupWrapper(
        broker.groups.table, {"TOOLS_CONSUMER": {"orders": 4}}, broker.groups.data_version
    )
    names = sorted(broker.groups.table)
    first = await ask(GetAllSubscriptionGroupRequestHeader(group_seq=0, data_version="", max_group_num=3))
    assert sorted(first.subscription_group_table) == names[:3]
    assert first.forbidden_table == {}
    version = encode_body(first.data_version).decode()
    rest = await ask(
        GetAllSubscriptionGroupRequestHeader(group_seq=3, data_version=version, max_group_num=99)
    )
    assert sorted(rest.subscription_group_table) == names[3:]
    assert rest.forbidden_table == {"TOOLS_CONSUMER": {"orders": 4}}


async def test_one_group_is_shown(broker: MemoryBroker) -> None:
    peer = broker.connect()
    header = GetSubscriptionGroupConfigRequestHeader(group="TOOLS_CONSUMER")
    answer = await peer.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
    assert decode_body(answer.body, SubscriptionGroupConfig) == broker.groups.get("TOOLS_CONSUMER")
    header = GetSubscriptionGroupConfigRequestHeader(group="no")
    answer = await peer.call(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
    assert (answer.code, answer.remark) == (
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        "No group in this broker",
    )


@pytest.mark.parametrize("flag", ["remove_offset", "clean_offset", None])
async def test_a_deleted_group_loses_its_offsets_if_asked_in_either_words(
    broker: MemoryBroker, flag: str | None
) -> None:
    broker.groups.find("CG")
    broker.offsets.commit("CG", "orders", 0, 5, "")
    header = DeleteSubscriptionGroupRequestHeader(group_name="CG")
    if flag is not None:
        setattr(header, flag, True)
    answer = await broker.connect().call(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
    assert answer.code == ResponseCode.SUCCESS
    assert broker.groups.get("CG") is None
    assert broker.offsets.query("CG", "orders", 0) == (5 if flag is None else -1)


async def test_reading_is_forbidden_and_allowed_again(broker: MemoryBroker) -> None:
    peer = broker.connect()

    async def ask(readable: bool | None = None) -> GroupForbidden:
        header = UpdateGroupForbiddenRequestHeader(group="CG", topic="orders", readable=readable)
        answer = await peer.call(RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN, header)
        return decode_body(answer.body, GroupForbidden)

    assert await ask() == GroupForbidden("CG", "orders", True)
    assert await ask(False) == GroupForbidden("CG", "orders", False)
    assert broker.groups.forbidden("CG", "orders") == PermName.READ
    assert await ask() == GroupForbidden("CG", "orders", False)
    assert await ask(True) == GroupForbidden("CG", "orders", True)
