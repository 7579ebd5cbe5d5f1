"""Headers of administering subscription groups on a broker."""

from __future__ import annotations

from kourou.protocol.headers.command_header import CommandHeader, Int32

__all__ = [
    "DeleteSubscriptionGroupRequestHeader",
    "GetAllSubscriptionGroupRequestHeader",
    "GetAllSubscriptionGroupResponseHeader",
    "GetConsumeStatsInBrokerHeader",
    "GetConsumeStatsRequestHeader",
    "GetGroupLagsRequestHeader",
    "GetSubscriptionGroupConfigRequestHeader",
    "QueryConsumeTimeSpanRequestHeader",
    "QuerySubscriptionByConsumerRequestHeader",
    "QueryTopicsByConsumerRequestHeader",
    "UpdateGroupForbiddenRequestHeader",
]


class DeleteSubscriptionGroupRequestHeader(CommandHeader, kw_only=True):
    """DELETE_SUBSCRIPTIONGROUP. 4.9 says `remove_offset`, 5.x says `clean_offset`."""

    group_name: str
    remove_offset: bool | None = None
    clean_offset: bool | None = None

    @property
    def drops_offsets(self) -> bool:
        """Whether the group's progress goes too, in either version's words."""
        return bool(self.remove_offset or self.clean_offset)


class GetAllSubscriptionGroupRequestHeader(CommandHeader, kw_only=True):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG of 5.x, read in pages; 4.9 sends no header."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


class GetAllSubscriptionGroupResponseHeader(CommandHeader, kw_only=True):
    """Response to GET_ALL_SUBSCRIPTIONGROUP_CONFIG; a pager stops when the number is not there."""

    total_group_num: Int32 | None = None


class GetSubscriptionGroupConfigRequestHeader(CommandHeader, kw_only=True):
    """GET_SUBSCRIPTIONGROUP_CONFIG."""

    group: str


class GetConsumeStatsRequestHeader(CommandHeader, kw_only=True):
    """GET_CONSUME_STATS. `topic_list`, joined by semicolons, wins over `topic`."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


class GetConsumeStatsInBrokerHeader(CommandHeader, kw_only=True):
    """GET_BROKER_CONSUME_STATS."""

    is_order: bool


class GetGroupLagsRequestHeader(CommandHeader, kw_only=True):
    """GET_KOUROU_GROUP_LAGS: how old the numbers may be."""

    kourou_max_age_ms: Int32 | None = None


class QueryConsumeTimeSpanRequestHeader(CommandHeader, kw_only=True):
    """QUERY_CONSUME_TIME_SPAN."""

    topic: str
    group: str


class QueryTopicsByConsumerRequestHeader(CommandHeader, kw_only=True):
    """QUERY_TOPICS_BY_CONSUMER."""

    group: str


class QuerySubscriptionByConsumerRequestHeader(CommandHeader, kw_only=True):
    """QUERY_SUBSCRIPTION_BY_CONSUMER."""

    group: str
    topic: str | None = None


class UpdateGroupForbiddenRequestHeader(CommandHeader, kw_only=True):
    """UPDATE_AND_GET_GROUP_FORBIDDEN; without `readable` it only reads."""

    group: str
    topic: str
    readable: bool | None = None
