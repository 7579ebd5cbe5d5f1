"""What tools ask about topics, groups, clients and counters of a broker.

Not here: how the numbers come about (consume_stats.py, broker_stats.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kourou.broker.groups.consumer_group import ConsumerGroupInfo
from kourou.broker.groups.message_filter import TAG, TagCodes, subscription_codes
from kourou.broker.groups.producers import ClientChannel
from kourou.broker.stats.consume_stats import ConsumeStatsView
from kourou.broker.storage.record_reads import RecordReads
from kourou.errors import RequestError
from kourou.protocol.bodies import (
    Connection,
    ConsumeQueueData,
    ConsumerConnection,
    GroupLagRow,
    GroupLags,
    GroupList,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    QueryConsumeQueueResponseBody,
    QuerySubscriptionResponseBody,
    SubscriptionData,
    TopicConfig,
    TopicList,
    encode_body,
)
from kourou.protocol.codes import LanguageCode, RequestCode, ResponseCode
from kourou.protocol.headers import (
    GetConsumerConnectionListRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    GetGroupLagsRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetTopicStatsInfoRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
    ViewBrokerStatsDataRequestHeader,
)
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.groups.producers import ProducerManager
    from kourou.broker.settings import LiveConfig
    from kourou.broker.stats.broker_stats import BrokerStatsManager
    from kourou.broker.stats.consumer_lag import ConsumerLag
    from kourou.broker.storage.record_reads import RecordReader
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.subscription_groups import SubscriptionGroupManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.store.read.message_lookup import MessageLookup
    from kourou.transport.tasks import TaskOwner

_MAX_LAG_AGE_MS: Final = 5_000
# A request for more units gets this many: some 800 kB of text.
_MAX_UNITS: Final = 10_000


class StatsProcessor:
    """Answers with what the broker knows at the moment."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        address: str,
        queues: ConsumeQueues,
        lookup: MessageLookup,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        producers: ProducerManager,
        consumers: ConsumerManager,
        stats: BrokerStatsManager,
        records: RecordReader,
        lag: ConsumerLag,
        requests: TaskOwner,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._address = address
        self._queues = queues
        self._lookup = lookup
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._producers = producers
        self._consumers = consumers
        self._stats = stats
        self._records = records
        self._lag = lag
        self._requests = requests
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms

    def processors(self) -> dict[int, Processor]:
        """The request codes handled here."""
        return {
            RequestCode.GET_TOPIC_STATS_INFO: self.get_topic_stats_info,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.get_consumer_connection_list,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.get_producer_connection_list,
            RequestCode.GET_CONSUME_STATS: self.get_consume_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.query_topic_consume_by_who,
            RequestCode.QUERY_CONSUME_TIME_SPAN: self.query_consume_time_span,
            RequestCode.VIEW_BROKER_STATS_DATA: self.view_broker_stats_data,
            RequestCode.GET_BROKER_CONSUME_STATS: self.get_broker_consume_stats,
            RequestCode.GET_KOUROU_GROUP_LAGS: self.get_group_lags,
            RequestCode.QUERY_CONSUME_QUEUE: self.query_consume_queue,
            RequestCode.GET_ALL_PRODUCER_INFO: self.get_all_producer_info,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.query_topics_by_consumer,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.query_subscription_by_consumer,
        }

    def _view(self, reads: RecordReads) -> ConsumeStatsView:
        return ConsumeStatsView(
            reads=reads,
            broker_name=self._config.current.broker_name or "",
            address=self._address,
            queues=self._queues,
            lookup=self._lookup,
            topics=self._topics,
            groups=self._groups,
            offsets=self._offsets,
            consumers=self._consumers,
            stats=self._stats,
            now_ms=self._now_ms,
        )

    # -- topics ----------------------------------------------------------------------------------

    def get_topic_stats_info(self, request: Request) -> None:
        """GET_TOPIC_STATS_INFO: the offsets of a topic's queues."""
        config = self._topic_config(request.header(GetTopicStatsInfoRequestHeader).topic)
        self._records.when_read(
            request,
            lambda reads: self._view(reads).topic_stats(config),
            lambda stats: request.reply(body=encode_body(stats)),
        )

    def query_topic_consume_by_who(self, request: Request) -> None:
        """QUERY_TOPIC_CONSUME_BY_WHO: the groups that consume a topic, or did."""
        topic = request.header(QueryTopicConsumeByWhoRequestHeader).topic
        groups = self._consumers.groups_of_topic(topic) | self._offsets.groups_of(topic)
        request.reply(body=encode_body(GroupList(sorted(groups))))

    def query_consume_time_span(self, request: Request) -> None:
        """QUERY_CONSUME_TIME_SPAN: where a group is between a topic's first and last message."""
        header = request.header(QueryConsumeTimeSpanRequestHeader)
        config = self._topic_config(header.topic)
        self._records.when_read(
            request,
            lambda reads: self._view(reads).time_spans(config, header.group),
            lambda spans: request.reply(body=encode_body(spans)),
        )

    def _topic_config(self, topic: str) -> TopicConfig:
        config = self._topics.get(topic)
        if config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        return config

    # -- groups ----------------------------------------------------------------------------------

    def get_consume_stats(self, request: Request) -> None:
        """GET_CONSUME_STATS: a group's progress."""
        header = request.header(GetConsumeStatsRequestHeader)
        topics = self._asked_topics(header)
        self._records.when_read(
            request,
            lambda reads: self._view(reads).group_stats(header.consumer_group, topics),
            lambda stats: request.reply(body=encode_body(stats)),
        )

    def _asked_topics(self, header: GetConsumeStatsRequestHeader) -> list[str]:
        if header.topic_list:
            return [topic for topic in header.topic_list.split(";") if topic]
        if header.topic:
            return [header.topic]
        return sorted(self._offsets.topics_of(header.consumer_group))

    def get_broker_consume_stats(self, request: Request) -> None:
        """GET_BROKER_CONSUME_STATS: every group's progress."""
        is_order = request.header(GetConsumeStatsInBrokerHeader).is_order
        self._records.when_read(
            request,
            lambda reads: self._view(reads).broker_stats(is_order),
            lambda stats: request.reply(body=encode_body(stats)),
        )

    def get_group_lags(self, request: Request) -> None:
        """GET_KOUROU_GROUP_LAGS: every group's progress, summed by topic, without delaying other requests."""
        max_age_ms = request.header(GetGroupLagsRequestHeader).kourou_max_age_ms
        max_age_s = (_MAX_LAG_AGE_MS if max_age_ms is None else max(0, max_age_ms)) / 1000
        run_request(self._requests, request, self._answer_group_lags(request, max_age_s))

    async def _answer_group_lags(self, request: Request, max_age_s: float) -> None:
        await self._lag.refresh(None, max_age_s)
        rows = [
            GroupLagRow(
                lag.group, lag.topic, lag.lag, lag.inflight, lag.consumer_offset + lag.lag, lag.lag_since_ms
            )
            for lag in self._lag.table
        ]
        request.reply(body=GroupLags(round(self._lag.age_s * 1000), rows).encode())

    def query_topics_by_consumer(self, request: Request) -> None:
        """QUERY_TOPICS_BY_CONSUMER: the topics that a group has offsets of."""
        group = request.header(QueryTopicsByConsumerRequestHeader).group
        topics = sorted(self._offsets.topics_of(group))
        request.reply(body=encode_body(TopicList(topics, self._address)))

    def query_subscription_by_consumer(self, request: Request) -> None:
        """QUERY_SUBSCRIPTION_BY_CONSUMER: what a group wants of a topic."""
        header = request.header(QuerySubscriptionByConsumerRequestHeader)
        topic = header.topic or ""
        subscription = self._consumers.find_subscription(header.group, topic)
        request.reply(body=encode_body(QuerySubscriptionResponseBody(header.group, topic, subscription)))

    # -- clients ---------------------------------------------------------------------------------

    def get_consumer_connection_list(self, request: Request) -> None:
        """GET_CONSUMER_CONNECTION_LIST: the members of a group. The remark says if they do not go
        together; clients do not look at it, people may."""
        name = request.header(GetConsumerConnectionListRequestHeader).consumer_group
        group = self._consumers.get(name)
        if group is None:
            raise RequestError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        problems = self._consumers.problems(name)
        request.reply(body=encode_body(consumer_connection(group)), remark="; ".join(problems) or None)

    def get_producer_connection_list(self, request: Request) -> None:
        """GET_PRODUCER_CONNECTION_LIST: the clients of a producer group."""
        name = request.header(GetProducerConnectionListRequestHeader).producer_group
        channels = self._producers.groups.get(name)
        if not channels:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        request.reply(body=encode_body(producer_connection(channels.values())))

    def get_all_producer_info(self, request: Request) -> None:
        """GET_ALL_PRODUCER_INFO: all producers by group."""
        wall_base_ms = self._now_ms() - self._monotonic_ms()
        table = producer_table(self._producers.groups, wall_base_ms=wall_base_ms)
        request.reply(body=encode_body(table))

    # -- counters --------------------------------------------------------------------------------

    def view_broker_stats_data(self, request: Request) -> None:
        """VIEW_BROKER_STATS_DATA: one counter over a minute, an hour and a day."""
        header = request.header(ViewBrokerStatsDataRequestHeader)
        data = self._stats.view(header.stats_name, header.stats_key)
        if data is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            )
        request.reply(body=encode_body(data))

    # -- units of a queue ------------------------------------------------------------------------

    def query_consume_queue(self, request: Request) -> None:
        """QUERY_CONSUME_QUEUE: units of a queue, and whether a group would get their messages."""
        header = request.header(QueryConsumeQueueRequestHeader)
        queue = self._queues.find(header.topic, header.queue_id)
        if queue is None:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{header.queue_id}@{header.topic} is not exist!")
        if not queue.min_queue_offset <= header.index < queue.max_queue_offset:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"Index {header.index} of {header.queue_id}@{header.topic} is not exist!",
            )
        self._records.when_read(
            request,
            lambda reads: self._queue_units(reads, queue, header),
            lambda body: request.reply(body=encode_body(body)),
        )

    def _queue_units(
        self, reads: RecordReads, queue: ConsumeQueue, header: QueryConsumeQueueRequestHeader
    ) -> QueryConsumeQueueResponseBody:
        group = header.consumer_group
        wanted = self._consumers.find_subscription(group, header.topic) if group else None
        is_offline = bool(group) and wanted is None
        return QueryConsumeQueueResponseBody(
            subscription_data=wanted,
            filter_data=f"{group}@{header.topic} is not online!" if is_offline else None,
            queue_data=_unit_data(reads, queue, header, wanted),
            max_queue_index=queue.max_queue_offset,
            min_queue_index=queue.min_queue_offset,
        )


def _unit_data(
    reads: RecordReads,
    queue: ConsumeQueue,
    header: QueryConsumeQueueRequestHeader,
    wanted: SubscriptionData | None,
) -> list[ConsumeQueueData]:
    end = min(header.index + min(header.count, _MAX_UNITS), queue.max_queue_offset)
    units = (reads.unit(queue, queue_offset) for queue_offset in range(header.index, end))
    # Filters of another kind need the message itself.
    is_by_tag = wanted is not None and wanted.expression_type == TAG
    codes = subscription_codes(wanted.sub_string, TAG) if wanted is not None and is_by_tag else None
    return [
        ConsumeQueueData(
            unit.phy_offset, unit.size, unit.tags_code, eval=is_by_tag and _lets_pass(codes, unit.tags_code)
        )
        for unit in units
        if unit is not None
    ]


def _lets_pass(codes: TagCodes, tags_code: int) -> bool:
    return codes is None or tags_code in codes


def consumer_connection(group: ConsumerGroupInfo) -> ConsumerConnection:
    """The members of a consumer group and what it subscribes to (203)."""
    return ConsumerConnection(
        [_client(channel) for channel in group.channels.values()],
        dict(group.subscriptions),
        group.consume_type,
        group.message_model,
        group.consume_from_where,
    )


def producer_connection(channels: Iterable[ClientChannel]) -> ProducerConnection:
    """The clients of a producer group (204)."""
    return ProducerConnection([_client(channel) for channel in channels])


def producer_table(
    groups: Mapping[str, Mapping[Any, ClientChannel]], *, wall_base_ms: int
) -> ProducerTableInfo:
    """All producers by group (328)."""
    return ProducerTableInfo(
        {
            group: [_producer_info(channel, wall_base_ms) for channel in channels.values()]
            for group, channels in groups.items()
        }
    )


def _client(channel: ClientChannel) -> Connection:
    return Connection(
        client_id=channel.client_id,
        client_addr=channel.connection.remote_address,
        language=_language(channel),
        version=channel.version,
    )


def _producer_info(channel: ClientChannel, wall_base_ms: int) -> ProducerInfo:
    return ProducerInfo(
        client_id=channel.client_id,
        # Java's text of an address has the slash, and mqadmin prints it as it comes.
        remote_ip=f"/{channel.connection.remote_address}",
        language=_language(channel),
        version=channel.version,
        last_update_timestamp=wall_base_ms + channel.last_update_ms,
    )


def _language(channel: ClientChannel) -> str:
    """The name; binary headers carry numbers, and there may be newer languages."""
    try:
        return LanguageCode(channel.language).name
    except ValueError:
        return LanguageCode.OTHER.name
