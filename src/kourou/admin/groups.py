"""Consumer groups: their settings on each broker, and changes to them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kourou.admin.config_pages import PAGE_SIZE, read_config_pages
from kourou.admin.session import Admin, BrokerAddress
from kourou.admin.targets import Outcome, on_each
from kourou.admin.topics import topic_names
from kourou.errors import RemotingError, ResponseError
from kourou.protocol.bodies import (
    DataVersion,
    MessageRequestMode,
    MessageRequestModeSerializeWrapper,
    SetMessageRequestModeRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
)
from kourou.protocol.pop.retry_topics import retry_groups


@dataclass(frozen=True, slots=True)
class GroupOnBroker:
    """The settings of a group on one broker; None if it did not respond, `problem` says why."""

    cluster: str
    broker_name: str
    config: SubscriptionGroupConfig | None
    problem: str = ""


# -- changes -----------------------------------------------------------------------------------------


async def update_group(
    admin: Admin, addresses: Sequence[str], config: SubscriptionGroupConfig
) -> list[Outcome]:
    """Create a group, or change its settings, on each broker."""
    body = encode_body(config)
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    return await on_each(addresses, lambda address: admin.call(address, code, body=body))


async def update_groups(
    admin: Admin, addresses: Sequence[str], configs: list[SubscriptionGroupConfig]
) -> list[Outcome]:
    """Create or change several groups on each broker. Supported by brokers of RocketMQ 5 only."""
    body = encode_body(SubscriptionGroupList(configs))
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    return await on_each(addresses, lambda address: admin.call(address, code, body=body))


async def delete_group(
    admin: Admin, addresses: Sequence[str], group: str, *, drops_offsets: bool = False
) -> list[Outcome]:
    """Delete a group on each broker; `drops_offsets` deletes its offsets, too."""
    header = DeleteSubscriptionGroupRequestHeader(
        group_name=group, remove_offset=drops_offsets, clean_offset=drops_offsets
    )
    code = RequestCode.DELETE_SUBSCRIPTIONGROUP
    return await on_each(addresses, lambda address: admin.call(address, code, header))


async def set_consume_mode(
    admin: Admin,
    addresses: Sequence[str],
    *,
    topic: str,
    group: str,
    mode: MessageRequestMode,
    pop_share_queue_num: int = 0,
) -> list[Outcome]:
    """Set whether a group pulls or pops a topic. Supported by brokers of RocketMQ 5 only."""
    body = encode_body(SetMessageRequestModeRequestBody(topic, group, mode, pop_share_queue_num))
    code = RequestCode.SET_MESSAGE_REQUEST_MODE
    return await on_each(addresses, lambda address: admin.call(address, code, body=body))


async def consume_modes(
    admin: Admin, address: str
) -> dict[tuple[str, str], SetMessageRequestModeRequestBody]:
    """How groups read topics by the settings of one broker, by topic and group; where nothing is set, the
    default of the broker counts. Brokers before 5 do not know this request: ResponseError."""
    answer = await admin.call(address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    modes = decode_body(answer.body, MessageRequestModeSerializeWrapper).message_request_mode_map
    return {(topic, group): mode for topic, groups in modes.items() for group, mode in groups.items()}


async def modes_of_group(admin: Admin, group: str) -> dict[str, str]:
    """PULL or POP by topic, where it is set for a group; both, if the masters differ. Brokers that do not
    answer, or do not know the request, are left out."""
    found: dict[str, set[str]] = {}
    for master in await admin.masters():
        with suppress(RemotingError, ResponseError):
            for (topic, name), mode in (await consume_modes(admin, master.address)).items():
                if name == group:
                    found.setdefault(topic, set()).add(mode.mode.value)
    return {topic: "/".join(sorted(modes)) for topic, modes in sorted(found.items())}


# -- settings ----------------------------------------------------------------------------------------


async def group_config(admin: Admin, address: str, group: str) -> SubscriptionGroupConfig | None:
    """The settings of one group on a broker; None if it is not there. Brokers before 5 do not know this
    request: ResponseError."""
    header = GetSubscriptionGroupConfigRequestHeader(group=group)
    try:
        answer = await admin.call(address, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, header)
    except ResponseError as error:
        if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            return None
        raise
    return decode_body(answer.body, SubscriptionGroupConfig)


async def group_configs(admin: Admin, address: str) -> dict[str, SubscriptionGroupConfig]:
    """The settings of all groups of a broker, by group."""

    async def read(
        known: int, version: str
    ) -> tuple[dict[str, SubscriptionGroupConfig], DataVersion, int | None]:
        header = GetAllSubscriptionGroupRequestHeader(
            group_seq=known, data_version=version, max_group_num=PAGE_SIZE
        )
        answer = await admin.call(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
        page = decode_body(answer.body, SubscriptionGroupWrapper)
        total = answer.header(GetAllSubscriptionGroupResponseHeader).total_group_num
        return page.subscription_group_table, page.data_version, total

    return await read_config_pages(read)


async def group_names(admin: Admin, topics: Iterable[str] | None = None) -> list[str]:
    """All groups that have a retry topic, sorted; `topics` are those of the cluster, if known already.

    POP has retry topics for each topic of a group, of which the names could be those of other groups: then
    the settings of the brokers decide."""
    found, ambiguous = retry_groups(await topic_names(admin) if topics is None else topics)
    if ambiguous:
        found |= ambiguous & await _configured_groups(admin)
    return sorted(found)


async def all_group_names(admin: Admin) -> list[str]:
    """All groups, sorted: those with a retry topic, and those configured on a master."""
    found, _ = retry_groups(await topic_names(admin))
    return sorted(found | await _configured_groups(admin))


async def _configured_groups(admin: Admin) -> set[str]:
    masters = await admin.masters()
    tables = await asyncio.gather(*(_known_groups(admin, master.address) for master in masters))
    return {name for table in tables for name in table}


async def _known_groups(admin: Admin, address: str) -> dict[str, SubscriptionGroupConfig]:
    """The settings of a broker's groups; empty if it does not respond."""
    try:
        return await group_configs(admin, address)
    except (RemotingError, ResponseError):
        return {}


async def group_on_brokers(admin: Admin, group: str) -> list[GroupOnBroker]:
    """The settings of a group on every master that has it, and masters that did not respond.

    ResponseError SUBSCRIPTION_GROUP_NOT_EXIST if no broker has it.
    """
    masters = await admin.masters()
    asked = await asyncio.gather(*(_group_at(admin, master, group) for master in masters))
    found = [result for result in asked if result is not None]
    if any(result.config for result in found):
        return found
    problem = next((result.problem for result in found), f"Group {group} does not exist on any broker")
    raise ResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, problem)


async def _group_at(admin: Admin, master: BrokerAddress, group: str) -> GroupOnBroker | None:
    try:
        config = (await group_configs(admin, master.address)).get(group)
    except (RemotingError, ResponseError) as error:
        return GroupOnBroker(master.cluster, master.broker_name, None, str(error))
    return None if config is None else GroupOnBroker(master.cluster, master.broker_name, config)
