"""Administration of topics: create and change (17, 18), list (21, 305, 351), delete (215).

Not here: the table (topics.py), and the queues and messages of a topic (store).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kourou.broker.storage.flush_service import flush_all
from kourou.broker.tables.attributes import MIXED_MESSAGE_TYPE, parse_changes
from kourou.broker.tables.config_table import SPLIT_METADATA_SIZE, page_of
from kourou.broker.tables.name_checks import check_topic_name
from kourou.broker.tables.topics import check_queue_nums
from kourou.errors import RequestError
from kourou.protocol.bodies import (
    TopicConfig,
    TopicConfigList,
    TopicFilterType,
    TopicList,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
    GetTopicConfigRequestHeader,
)
from kourou.protocol.pop.retry_topics import pop_retry_topics
from kourou.protocol.priority import MESSAGE_TYPE
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.settings import LiveConfig
    from kourou.broker.stats.broker_stats import BrokerStatsManager
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.tables.config_table import ConfigTable
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.store.message_store import MessageStore
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)


class TopicProcessor:
    """Changes the table of topics, and shows it."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        store: MessageStore,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        consumers: ConsumerManager,
        stats: BrokerStatsManager,
        disk: DiskThreads,
        requests: TaskOwner,
        store_work: asyncio.Lock,
        progress: Sequence[ConfigTable],
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._consumers = consumers
        self._stats = stats
        self._disk = disk
        self._requests = requests
        self._store_work = store_work
        # The tables that say how far groups have consumed.
        self._progress = progress

    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update_topic,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_topic_list,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all_topics,
            RequestCode.GET_TOPIC_CONFIG: self.get_topic,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.get_system_topics,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
        }

    # -- making and changing ---------------------------------------------------------------------

    def update_topic(self, request: Request) -> None:
        """17: make a topic or change it."""
        header = request.header(CreateTopicRequestHeader)
        check_topic_name(header.topic)
        self._refuse_system(header.topic)
        config = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=_filter_type(header.topic_filter_type),
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=parse_changes(header.attributes),
        )
        self._check(config)
        self._topics.update(config)
        request.reply()

    def update_topic_list(self, request: Request) -> None:
        """18: several at once, none if one of the names is refused."""
        configs = decode_body(request.body, TopicConfigList).topic_config_list
        for config in configs:
            check_topic_name(config.topic_name)
            self._refuse_system(config.topic_name)
            self._check(config)
        self._topics.update_all(configs)
        request.reply()

    def _refuse_system(self, topic: str) -> None:
        if self._config.current.validate_system_topic_when_update_topic and self._topics.is_system(topic):
            raise _invalid(f"The topic[{topic}] is conflict with system topic.")

    def _check(self, config: TopicConfig) -> None:
        for queue_nums in (config.read_queue_nums, config.write_queue_nums):
            check_queue_nums(config.topic_name, queue_nums)
        is_mixed = config.attributes.get("+" + MESSAGE_TYPE) == MIXED_MESSAGE_TYPE
        if is_mixed and not self._config.current.enable_mixed_message_type:
            raise _invalid("MIXED message type is not supported.")

    # -- showing ---------------------------------------------------------------------------------

    def get_all_topics(self, request: Request) -> None:
        """21: all topics, or of 5.x a page of them."""
        topics = self._topics
        header = request.header(GetAllTopicConfigRequestHeader)
        page = None
        if (header.topic_seq, header.data_version, header.max_topic_num) != (None, None, None):
            page = page_of(
                topics.table,
                topics.data_version,
                asked_version=header.data_version,
                begin=header.topic_seq or 0,
                count=min(SPLIT_METADATA_SIZE, _or_all(header.max_topic_num)),
            )
        request.reply(
            GetAllTopicConfigResponseHeader(total_topic_num=len(topics.table)),
            encode_body(topics.wrapper(page)),
        )

    def get_topic(self, request: Request) -> None:
        """GET_TOPIC_CONFIG (351): the settings of one topic."""
        topic = request.header(GetTopicConfigRequestHeader).topic
        config = self._topics.get(topic)
        if config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}")
        request.reply(body=encode_body(config))

    def get_system_topics(self, request: Request) -> None:
        """305: the names that are not the users'."""
        request.reply(body=encode_body(TopicList(sorted(self._topics.system_topics))))

    # -- deleting --------------------------------------------------------------------------------

    def delete_topic(self, request: Request) -> None:
        """215: forget a topic, its queues, and how far groups have come in it."""
        topic = request.header(DeleteTopicRequestHeader).topic
        if not topic.strip():
            raise _invalid("The specified topic is blank.")
        self._refuse_system(topic)
        topics = [topic]
        if self._config.current.clear_retry_topic_when_delete_topic:
            topics += self._pop_retry_topics(topic)
        _log.info("%s deletes %s", request.connection.remote_address, ", ".join(topics))
        run_request(self._requests, request, self._delete(request, topics))

    def _pop_retry_topics(self, topic: str) -> list[str]:
        names = [
            name
            for group in sorted(self._offsets.groups_of(topic))
            for name in pop_retry_topics(topic, group)
        ]
        return [name for name in names if self._topics.get(name) is not None]

    async def _delete(self, request: Request, topics: list[str]) -> None:
        async with self._store_work:
            await flush_all(self._store, self._disk)
            for topic in topics:
                self._delete_one(topic)
            # A new topic of this name begins at 0: with old offsets, a kill would skip its messages.
            for table in self._progress:
                if table.is_dirty:
                    await self._disk.run_steps(table.persist_steps())
        request.reply()

    def _delete_one(self, topic: str) -> None:
        # First what may fail: a topic that cannot be deleted stays whole.
        self._store.delete_topic(topic)
        self._topics.delete(topic)
        self._offsets.remove_topic(topic)
        self._consumers.forget_pops(topic=topic)
        if self._config.current.auto_delete_unused_stats:
            self._stats.remove_topic(topic)


def _filter_type(name: str) -> TopicFilterType:
    try:
        return TopicFilterType(name)
    except ValueError:
        known = ", ".join(TopicFilterType)
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"topicFilterType {name!r} is not one of {known}"
        ) from None


def _or_all(count: int | None) -> int:
    return SPLIT_METADATA_SIZE if count is None else count


def _invalid(remark: str) -> RequestError:
    return RequestError(ResponseCode.INVALID_PARAMETER, remark)
