"""Administration of consumer groups: create and change (200, 225, 353), list (201, 352), delete (207).

Not here: the table (subscription_groups.py), and the current members of a group (consumers.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kourou.broker.tables.config_table import SPLIT_METADATA_SIZE, page_of
from kourou.broker.tables.name_checks import check_group_name
from kourou.errors import RequestError
from kourou.protocol.bodies import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import PermName, RequestCode, ResponseCode
from kourou.protocol.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.settings import LiveConfig
    from kourou.broker.stats.broker_stats import BrokerStatsManager
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager

_log = logging.getLogger(__name__)


class GroupProcessor:
    """Changes the table of groups, and shows it."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager,
        stats: BrokerStatsManager,
    ) -> None:
        self._config = config
        self._groups = groups
        self._offsets = offsets
        self._consumers = consumers
        self._stats = stats

    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update_group,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_group_list,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all_groups,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get_group,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.update_forbidden,
        }

    def update_group(self, request: Request) -> None:
        """200: make a group or change it."""
        config = decode_body(request.body, SubscriptionGroupConfig)
        check_group_name(config.group_name)
        self._groups.update(config)
        request.reply()

    def update_group_list(self, request: Request) -> None:
        """225: several at once, none if one of the names is refused."""
        configs = decode_body(request.body, SubscriptionGroupList).group_config_list
        for config in configs:
            check_group_name(config.group_name)
        for config in configs:
            self._groups.update(config)
        request.reply()

    def get_all_groups(self, request: Request) -> None:
        """201: all groups, or of 5.x a page of them."""
        groups = self._groups
        header = request.header(GetAllSubscriptionGroupRequestHeader)
        page = None
        if (header.group_seq, header.data_version, header.max_group_num) != (None, None, None):
            asked = SPLIT_METADATA_SIZE if header.max_group_num is None else header.max_group_num
            page = page_of(
                groups.table,
                groups.data_version,
                asked_version=header.data_version,
                begin=header.group_seq or 0,
                count=min(SPLIT_METADATA_SIZE, asked),
            )
        request.reply(
            GetAllSubscriptionGroupResponseHeader(total_group_num=len(groups.table)),
            encode_body(groups.wrapper(page)),
        )

    def get_group(self, request: Request) -> None:
        """GET_SUBSCRIPTIONGROUP_CONFIG (352): the settings of one group."""
        group = request.header(GetSubscriptionGroupConfigRequestHeader).group
        config = self._groups.get(group)
        if config is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        request.reply(body=encode_body(config))

    def delete_group(self, request: Request) -> None:
        """207: forget a group, and if asked how far it has come."""
        header = request.header(DeleteSubscriptionGroupRequestHeader)
        _log.info("%s deletes group %s", request.connection.remote_address, header.group_name)
        self._groups.delete(header.group_name)
        self._consumers.forget_pops(group=header.group_name)
        if header.drops_offsets:
            self._offsets.remove_group(header.group_name)
        if self._config.current.auto_delete_unused_stats:
            self._stats.remove_group(header.group_name)
        request.reply()

    def update_forbidden(self, request: Request) -> None:
        """353: whether a group may read a topic; asked, or changed first."""
        header = request.header(UpdateGroupForbiddenRequestHeader)
        groups, group, topic = self._groups, header.group, header.topic
        if header.readable is not None:
            groups.update_forbidden(group, topic, PermName.READ, is_forbidden=not header.readable)
        readable = not groups.forbidden(group, topic) & PermName.READ
        request.reply(body=encode_body(GroupForbidden(group, topic, readable)))
