"""BrokerExporter: rocketmq-exporter's families of one broker, from its own tables.

The slow part, going over all topics and asking consumers for their numbers, is done in slices and kept for 15
seconds, like consumer lag (stats/consumer_lag.py).
Not here: names (metrics/exporter_names.py), the same for a whole cluster (admin/exporter.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kourou.broker.admin.runtime_info import OnDisk, RuntimeInfo
from kourou.broker.stats.stats_item import Column
from kourou.errors import KourouError
from kourou.metrics.exporter import (
    BrokerFacts,
    ClientFacts,
    ExporterFacts,
    GroupFacts,
    ProgressFacts,
    TopicFacts,
    exporter_families,
)
from kourou.protocol.bodies import ConsumerRunningInfo, decode_body
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import GetConsumerRunningInfoRequestHeader

if TYPE_CHECKING:
    from pathlib import Path

    from kourou.broker.groups.consumers import ConsumerManager
    from kourou.broker.groups.producers import ClientChannel, ProducerManager
    from kourou.broker.settings import LiveConfig
    from kourou.broker.stats.broker_stats import BrokerStatsManager
    from kourou.broker.stats.consumer_lag import ConsumerLag
    from kourou.broker.stats.stats_item import StatsItem
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.storage.record_reads import RecordReader
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.metrics.families import Family
    from kourou.store.disk.files import Files
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.queue.consume_queues import ConsumeQueues

MAX_AGE_S: Final = 15.0
MAX_CLIENTS: Final = 200
"""Of more consumers the numbers that they report themselves are left out."""
_CALL_TIMEOUT_MS: Final = 2_000
_CALLS_AT_ONCE: Final = 8
_LAG_TIMEOUT_S: Final = 5.0
_TOPICS_PER_TURN: Final = 50


@dataclass(slots=True, kw_only=True)
class BrokerExporter:
    """What one broker is asked for; see BrokerMetrics."""

    config: LiveConfig
    address: str
    files: Files
    log: CommitLog
    queues: ConsumeQueues
    queue_folder: Path
    topics: TopicConfigManager
    producers: ProducerManager
    consumers: ConsumerManager
    stats: BrokerStatsManager
    runtime: RuntimeInfo
    lag: ConsumerLag
    records: RecordReader
    disk: DiskThreads
    now_ms: Callable[[], int]
    monotonic_ms: Callable[[], int]
    _kept: tuple[int, list[Family]] | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def families(self) -> list[Family]:
        """The families, at most 15 seconds old."""
        async with self._lock:
            now_ms = self.monotonic_ms()
            if self._kept is None or now_ms - self._kept[0] >= MAX_AGE_S * 1000:
                self._kept = now_ms, list(exporter_families(await self._facts()))
            return self._kept[1]

    async def _facts(self) -> ExporterFacts:
        await self.lag.refresh(_LAG_TIMEOUT_S)
        on_disk = await self.disk.run(OnDisk.look, self.files, self.log.folders, self.queue_folder)
        oldest_ms = await self.records.read(lambda reads: reads.store_time(self.log.min_phy_offset))
        cluster, broker = self._names
        facts = ExporterFacts()
        runtime = self.runtime.table(on_disk, oldest_ms)
        facts.brokers.append(BrokerFacts(cluster, broker, self.address, runtime))
        facts.producers = {
            (cluster, broker, group): len(channels) for group, channels in self.producers.groups.items()
        }
        facts.groups = {
            group: GroupFacts(
                info.is_broadcasting,
                [
                    (channel.connection.remote_address, channel.connection.local_address)
                    for channel in info.channels.values()
                ],
            )
            for group, info in self.consumers.groups.items()
        }
        facts.progress = list(self._progress())
        for number, topic in enumerate(list(self.topics.table)):
            facts.topics.append(self._topic(topic))
            if number % _TOPICS_PER_TURN == 0:
                await asyncio.sleep(0)
        facts.clients = await self._clients()
        return facts

    @property
    def _names(self) -> tuple[str, str]:
        config = self.config.current
        return config.broker_cluster_name, config.broker_name

    def _topic(self, topic: str) -> TopicFacts:
        found = [self.queues.find(topic, queue_id) for queue_id in self.queues.queue_ids(topic)]
        queues = [queue for queue in found if queue is not None]
        item = self.stats.topic_puts.get(topic)
        return TopicFacts(
            *self._names,
            topic,
            sum(queue.max_queue_offset for queue in queues),
            sum(queue.max_queue_offset - queue.min_queue_offset for queue in queues),
            _per_second(item, Column.NUMS),
            _per_second(item, Column.SIZE),
        )

    def _progress(self) -> Iterator[ProgressFacts]:
        now_ms = self.now_ms()
        for each in self.lag.table:
            key = each.topic, each.group
            gets, send_backs = self.stats.group_gets.get(key), self.stats.send_backs.get(key)
            yield ProgressFacts(
                *self._names,
                each.topic,
                each.group,
                each.consumer_offset,
                each.lag,
                max(0, now_ms - each.lag_since_ms) if each.lag_since_ms else 0,
                _per_second(gets, Column.NUMS),
                _per_second(gets, Column.SIZE),
                0 if send_backs is None else send_backs.data(Column.NUMS).stats_minute.sum,
            )

    # -- consumers -------------------------------------------------------------------------------

    async def _clients(self) -> list[ClientFacts]:
        """What consumers report; those that do not answer in time are left out."""
        members = [
            (group, channel)
            for group, info in self.consumers.groups.items()
            for channel in info.channels.values()
        ][:MAX_CLIENTS]
        turns = asyncio.Semaphore(_CALLS_AT_ONCE)
        answers = await asyncio.gather(*(_ask(turns, group, channel) for group, channel in members))
        return [facts for found in answers for facts in found]


async def _ask(turns: asyncio.Semaphore, group: str, channel: ClientChannel) -> list[ClientFacts]:
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group=group, client_id=channel.client_id, jstack_enable=False
    )
    command = RemotingCommand.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    try:
        async with turns:
            answer = await channel.connection.call(command, _CALL_TIMEOUT_MS)
        statuses = decode_body(answer.body, ConsumerRunningInfo).status_table if answer.body else {}
    except KourouError:
        return []
    return [
        ClientFacts(channel.connection.remote_address, channel.client_id, group, topic, status)
        for topic, status in statuses.items()
    ]


def _per_second(item: StatsItem | None, column: Column) -> float:
    return 0.0 if item is None else item.data(column).stats_minute.tps
