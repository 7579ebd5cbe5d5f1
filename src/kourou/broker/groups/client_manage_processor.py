"""Clients: heartbeats (34), unregistration (35), checks of a filter (46).

A heartbeat names every producer and consumer group of one client. Those of 5.x may carry a fingerprint
of the subscriptions in their stead, once the broker has them.
Not here: the members of groups (producers.py, consumers.py), lost connections (controller.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kourou.broker.connection_state import ConnectionState
from kourou.broker.groups.consumer_group import SubscriptionKey, client_id_conflict, subscription_conflict
from kourou.broker.groups.message_filter import check_subscription
from kourou.broker.groups.producers import ClientChannel
from kourou.errors import RequestError
from kourou.protocol.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    ProducerData,
    SubscriptionGroupConfig,
    decode_body,
)
from kourou.protocol.codes import PermName, RequestCode, ResponseCode, TopicSysFlag
from kourou.protocol.features import Feature, format_features
from kourou.protocol.headers import HeartbeatResponseHeader, UnregisterClientRequestHeader
from kourou.protocol.names import retry_topic
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from kourou.broker.filters.plugin_host import PluginFilter, PluginHost
    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.groups.producers import ProducerManager
    from kourou.broker.settings import LiveConfig
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.transport.cycles import Cycles
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_FEATURES: Final = format_features(Feature)
_READ_WRITE: Final = int(PermName.READ | PermName.WRITE)


class ClientManageProcessor:
    """Keeps the tables of producers and consumers after what clients say."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        producers: ProducerManager,
        consumers: ConsumerManager,
        cycles: Cycles,
        plugins: PluginHost,
        requests: TaskOwner,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._producers = producers
        self._consumers = consumers
        self._cycles = cycles
        self._plugins = plugins
        self._requests = requests
        self._monotonic_ms = monotonic_ms

    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.HEART_BEAT: self.heart_beat,
            RequestCode.UNREGISTER_CLIENT: self.unregister_client,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
        }

    def scan(self) -> None:
        """Remove clients whose heartbeats have stopped."""
        self._cycles.open()
        expired_ms, now_ms = self._config.current.channel_expired_timeout, self._monotonic_ms()
        self._producers.scan(now_ms, expired_ms)
        self._consumers.scan(now_ms, expired_ms)

    # -- 34 --------------------------------------------------------------------------------------

    def heart_beat(self, request: Request) -> None:
        """HEART_BEAT (34): the client, and what it produces and consumes.

        Groups of one client are accepted one by one: a rejected group does not affect the others.
        """
        heartbeat = decode_body(request.body, HeartbeatData)
        channel = ClientChannel.of(request, heartbeat.client_id, self._monotonic_ms())
        refusals: list[RequestError] = []
        # To a client of before V2 the broker says what Apache's says: send everything, always.
        is_sub_change = heartbeat.heartbeat_fingerprint == 0
        for consumer in heartbeat.consumer_data_set:
            is_sub_change |= self._register_consumer(channel, consumer, heartbeat, refusals)
        for producer in heartbeat.producer_data_set:
            self._register_producer(channel, producer)
        if refusals:
            self._refuse(channel, refusals)
        channel.connection.state.refused_heartbeat = ""
        request.reply(
            HeartbeatResponseHeader(
                is_support_heart_beat_v2=True, is_sub_change=is_sub_change, kourou_features=_FEATURES
            )
        )

    def _register_consumer(
        self,
        channel: ClientChannel,
        data: ConsumerData,
        heartbeat: HeartbeatData,
        refusals: list[RequestError],
    ) -> bool:
        """Whether the client is to send its subscriptions (again) with the next heartbeat."""
        if (
            self._config.current.reject_pull_consumer_enable
            and data.consume_type is ConsumeType.CONSUME_ACTIVELY
        ):
            return False
        group_config = self._groups.find(data.group_name)
        if group_config is None:
            return False
        if not heartbeat.without_sub:
            state: ConnectionState = channel.connection.state
            state.record_subscriptions(data)
        problems = self._filter_problems(data) + self._conflicts(channel, data, heartbeat.without_sub)
        if problems:
            refusals += problems
            return False
        self._create_retry_topic(data, group_config)
        is_sub_change = self._is_sub_change(channel, data, heartbeat)
        self._consumers.register(
            channel,
            data,
            notifies=group_config.notify_consumer_ids_changed_enable,
            with_subscriptions=not heartbeat.without_sub,
        )
        self._consumers.groups[data.group_name].fingerprint = heartbeat.heartbeat_fingerprint
        return is_sub_change

    def _is_sub_change(self, channel: ClientChannel, data: ConsumerData, heartbeat: HeartbeatData) -> bool:
        """Whether the group's subscriptions may not be this client's: another heartbeat came in between,
        or, which Apache overlooks after a restart, this client has not sent them on this connection."""
        info = self._consumers.get(data.group_name)
        if heartbeat.without_sub and (info is None or channel.connection not in info.subscription_keys):
            return True
        return info is not None and info.fingerprint not in (None, heartbeat.heartbeat_fingerprint)

    def _create_retry_topic(self, data: ConsumerData, group_config: SubscriptionGroupConfig) -> None:
        topics = self._topics
        topic, subscribed = retry_topic(data.group_name), [each.topic for each in data.subscription_data_set]
        topics.create_in_send_back(
            topic,
            group_config.retry_queue_nums,
            _READ_WRITE,
            int(TopicSysFlag.UNIT_SUB) if data.unit_mode else 0,
            is_order=any(topics.is_order(each) for each in subscribed),
        )
        # Else a message of a high priority would wait behind others that failed before it.
        topics.separate_retries(topic, filter(topics.has_priorities, subscribed))

    def _register_producer(self, channel: ClientChannel, data: ProducerData) -> None:
        config = self._config.current
        if config.reject_transaction_message and not config.enable_register_producer:
            # Nobody will be called back: only those that are known already are kept.
            if not self._producers.is_registered(data.group_name, channel.connection):
                return
        self._producers.register(data.group_name, channel)

    # -- members that cannot be served, or do not go together ------------------------------------

    def _filter_problems(self, data: ConsumerData) -> list[RequestError]:
        """Filters that the broker does not have or understand. Apache takes such a member in, to which
        no pull is ever answered: the queues that it is given stand still."""
        property_filter = self._config.current.enable_property_filter
        problems = []
        for subscription in data.subscription_data_set:
            try:
                check_subscription(subscription, property_filter=property_filter, plugins=self._plugins)
            except RequestError as error:
                words = f"group {data.group_name}, topic {subscription.topic}: {error.remark}"
                problems.append(RequestError(error.response_code, words))
        return problems

    def _conflicts(self, channel: ClientChannel, data: ConsumerData, without_sub: bool) -> list[RequestError]:
        config = self._config.current
        info = self._consumers.get(data.group_name)
        if info is None:
            return []
        found = []
        if config.reject_inconsistent_subscription and not without_sub:
            found.append(subscription_conflict(info, channel, SubscriptionKey.of(data)))
        if config.reject_duplicate_client_id:
            found.append(client_id_conflict(info, channel))
        return [RequestError(ResponseCode.SYSTEM_ERROR, words) for words in found if words is not None]

    def _refuse(self, channel: ClientChannel, refusals: list[RequestError]) -> None:
        words = "; ".join(refusal.remark for refusal in refusals)
        state: ConnectionState = channel.connection.state
        if state.refused_heartbeat != words:
            state.refused_heartbeat = words
            _log.warning("heartbeat of %s refused: %s", channel, words)
        raise RequestError(refusals[0].response_code, words)

    # -- 35, 46 ----------------------------------------------------------------------------------

    def unregister_client(self, request: Request) -> None:
        """35: the client leaves a group. C++ sends the group it does not mean as an empty text."""
        header = request.header(UnregisterClientRequestHeader)
        if header.producer_group:
            self._producers.unregister(header.producer_group, request.connection)
        if header.consumer_group:
            self._consumers.unregister(header.consumer_group, request.connection)
        request.reply()

    def check_client_config(self, request: Request) -> None:
        """46: whether a consumer may filter as it wants to; clients ask before they start."""
        subscription = decode_body(request.body, CheckClientRequestBody).subscription_data
        property_filter = self._config.current.enable_property_filter
        wanted = (
            None
            if subscription is None
            else check_subscription(subscription, property_filter=property_filter, plugins=self._plugins)
        )
        if wanted is None:
            request.reply()
        else:
            run_request(self._requests, request, self._check_parameters(request, wanted))

    async def _check_parameters(self, request: Request, wanted: PluginFilter) -> None:
        await self._plugins.check(wanted)
        request.reply()
