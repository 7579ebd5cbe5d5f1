"""rocketmq-exporter's families for any cluster, Apache's too, by few requests.

Of each broker: its runtime information, of masters also the progress of all groups at once (317) and all
producers (328). Then of each topic its offsets (202) and the bytes stored, of each pair of topic and group
what was delivered, of each group its members, of each member its own numbers. Those are many requests on a
large cluster, so each kind has a limit; what is left out is counted. `ExporterCache` keeps the result.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeVar

from kourou.admin.brokers import GroupQueueLag, broker_consume_stats, broker_runtime
from kourou.admin.connections import consumer_connection_at
from kourou.admin.each import map_each
from kourou.admin.session import Admin, BrokerAddress
from kourou.admin.topic_stats import broker_stats
from kourou.clock import wall_ms
from kourou.errors import KourouError
from kourou.metrics.exporter import (
    BrokerFacts,
    ClientFacts,
    ExporterFacts,
    GroupFacts,
    ProgressFacts,
    TopicFacts,
)
from kourou.metrics.exporter import exporter_families as families_of
from kourou.metrics.families import Family, Kind, Metric
from kourou.protocol.bodies import (
    ConsumerConnection,
    ConsumerRunningInfo,
    MessageModel,
    ProducerTableInfo,
    TopicConfigSerializeWrapper,
    TopicStatsTable,
    decode_body,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import GetConsumerRunningInfoRequestHeader, GetTopicStatsInfoRequestHeader

MAX_AGE_S: Final = 15.0
MAX_TOPICS: Final = 1_000
"""Topics of all brokers together whose offsets and rates are asked for."""
MAX_PAIRS: Final = 1_000
"""Pairs of topic and group whose rates are asked for; lag is known of all."""
MAX_GROUPS: Final = 1_000
MAX_CLIENTS: Final = 200
_AT_ONCE: Final = 8
_CLIENT_TIMEOUT_MS: Final = 2_000

SKIPPED: Final = Metric(
    "kourou_exporter_skipped",
    Kind.GAUGE,
    "What was not asked for, because there are too many.",
    ("kind",),
)
UNREACHABLE: Final = Metric(
    "kourou_exporter_unreachable_brokers", Kind.GAUGE, "Registered brokers that do not answer."
)

T = TypeVar("T")
R = TypeVar("R")


class _Rates(NamedTuple):
    get_tps: float = 0.0
    get_bytes_per_s: float = 0.0
    send_backs: int = 0


_NO_RATES: Final = _Rates()


class _Pair(NamedTuple):
    """A group in a topic of a broker."""

    broker: BrokerAddress
    topic: str
    group: str
    queues: list[GroupQueueLag]

    def facts(self, now_ms: int, rates: _Rates) -> ProgressFacts:
        waiting = [each.last_timestamp for each in self.queues if each.diff > 0 and each.last_timestamp > 0]
        return ProgressFacts(
            self.broker.cluster,
            self.broker.broker_name,
            self.topic,
            self.group,
            sum(each.consumer_offset for each in self.queues),
            sum(max(0, each.diff) for each in self.queues),
            max(0, now_ms - min(waiting)) if waiting else 0,
            *rates,
        )


async def exporter_families(admin: Admin) -> list[Family]:
    """The families of this moment, of all clusters that the name server knows."""
    return await _Collector(admin).families()


class ExporterCache:
    """The families of a cluster, at most 15 seconds old. Scrapes at the same time share one collection."""

    def __init__(self, admin: Admin, clock: Callable[[], float] = time.monotonic) -> None:
        self._admin = admin
        self._clock = clock
        self._kept: tuple[float, list[Family]] | None = None
        self._lock = asyncio.Lock()

    async def families(self) -> list[Family]:
        """The kept families, or new ones."""
        async with self._lock:
            if self._kept is None or self._clock() - self._kept[0] >= MAX_AGE_S:
                self._kept = self._clock(), await exporter_families(self._admin)
            return self._kept[1]


class _Collector:
    """One collection."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._skipped = {"topics": 0, "pairs": 0, "groups": 0, "clients": 0}
        self._facts = ExporterFacts()

    async def families(self) -> list[Family]:
        brokers = await self._admin.brokers()
        runtimes = dict(await self._each(brokers, self._runtime))
        reachable = [each for each in brokers if each.address in runtimes]
        masters = [each for each in reachable if each.is_master]
        self._add_brokers(reachable, runtimes)
        await self._each(masters, self._producers)
        pairs = [pair for found in await self._each(masters, self._progress) for pair in found]
        await self._add_progress(pairs)
        await self._topics(masters)
        await self._groups(masters, {pair.group for pair in pairs})
        return [
            *families_of(self._facts),
            SKIPPED.family([((kind,), count) for kind, count in self._skipped.items()]),
            UNREACHABLE.value(len(brokers) - len(reachable)),
        ]

    async def _each(self, items: Sequence[T], ask: Callable[[T], Awaitable[R]]) -> list[R]:
        """What each gives, a few at a time; those that fail are left out."""

        async def one(item: T) -> tuple[R] | None:
            try:
                return (await ask(item),)
            except KourouError:
                return None

        return [found[0] for found in await map_each(items, one, _AT_ONCE) if found is not None]

    def _limited(self, kind: str, items: list[T], limit: int) -> list[T]:
        self._skipped[kind] += max(0, len(items) - limit)
        return items[:limit]

    # -- brokers ---------------------------------------------------------------------------------

    def _add_brokers(self, brokers: Iterable[BrokerAddress], tables: dict[str, dict[str, str]]) -> None:
        def log_end(broker: BrokerAddress) -> int:
            text = tables[broker.address].get("commitLogMaxOffset", "")
            return int(text) if text.isdecimal() else 0

        listed = list(brokers)
        ends = {each.broker_name: log_end(each) for each in listed if each.is_master}
        for each in listed:
            behind = 0 if each.is_master else max(0, ends.get(each.broker_name, 0) - log_end(each))
            self._facts.brokers.append(
                BrokerFacts(each.cluster, each.broker_name, each.address, tables[each.address], behind)
            )

    async def _runtime(self, broker: BrokerAddress) -> tuple[str, dict[str, str]]:
        return broker.address, await broker_runtime(self._admin, broker.address)

    async def _producers(self, broker: BrokerAddress) -> None:
        answer = await self._admin.call(broker.address, RequestCode.GET_ALL_PRODUCER_INFO)
        for group, clients in decode_body(answer.body, ProducerTableInfo).data.items():
            self._facts.producers[broker.cluster, broker.broker_name, group] = len(clients)

    # -- progress --------------------------------------------------------------------------------

    async def _progress(self, broker: BrokerAddress) -> list[_Pair]:
        stats = await broker_consume_stats(self._admin, broker.address)
        pairs: dict[tuple[str, str], list[GroupQueueLag]] = {}
        for queue in stats.queues:
            pairs.setdefault((queue.topic, queue.group), []).append(queue)
        return [_Pair(broker, topic, group, queues) for (topic, group), queues in pairs.items()]

    async def _rates(self, pair: _Pair) -> _Rates:
        key = f"{pair.topic}@{pair.group}"
        nums = await broker_stats(self._admin, pair.broker.address, "GROUP_GET_NUMS", key)
        size = await broker_stats(self._admin, pair.broker.address, "GROUP_GET_SIZE", key)
        send_backs = await broker_stats(self._admin, pair.broker.address, "SNDBCK_PUT_NUMS", key)
        return _Rates(
            0.0 if nums is None else nums.stats_minute.tps,
            0.0 if size is None else size.stats_minute.tps,
            0 if send_backs is None else send_backs.stats_minute.sum,
        )

    async def _add_progress(self, pairs: list[_Pair]) -> None:
        async def asked(pair: _Pair) -> tuple[int, _Rates]:
            return id(pair), await self._rates(pair)

        rates = dict(await self._each(self._limited("pairs", pairs, MAX_PAIRS), asked))
        now_ms = wall_ms()
        self._facts.progress = [pair.facts(now_ms, rates.get(id(pair), _NO_RATES)) for pair in pairs]

    # -- topics ----------------------------------------------------------------------------------

    async def _topics(self, masters: Sequence[BrokerAddress]) -> None:
        found = await self._each(masters, self._topic_names)
        places = [place for names in found for place in names]
        self._facts.topics += await self._each(self._limited("topics", places, MAX_TOPICS), self._topic)

    async def _topic_names(self, broker: BrokerAddress) -> list[tuple[BrokerAddress, str]]:
        answer = await self._admin.call(broker.address, RequestCode.GET_ALL_TOPIC_CONFIG)
        table = decode_body(answer.body, TopicConfigSerializeWrapper).topic_config_table
        return [(broker, topic) for topic in table]

    async def _topic(self, place: tuple[BrokerAddress, str]) -> TopicFacts:
        broker, topic = place
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        answer = await self._admin.call(broker.address, RequestCode.GET_TOPIC_STATS_INFO, header)
        offsets = decode_body(answer.body, TopicStatsTable).offset_table.values()
        nums = await broker_stats(self._admin, broker.address, "TOPIC_PUT_NUMS", topic)
        size = await broker_stats(self._admin, broker.address, "TOPIC_PUT_SIZE", topic)
        return TopicFacts(
            broker.cluster,
            broker.broker_name,
            topic,
            sum(each.max_offset for each in offsets),
            sum(each.max_offset - each.min_offset for each in offsets),
            0.0 if nums is None else nums.stats_minute.tps,
            0.0 if size is None else size.stats_minute.tps,
        )

    # -- groups and clients ----------------------------------------------------------------------

    async def _groups(self, masters: Sequence[BrokerAddress], groups: set[str]) -> None:
        addresses = [master.address for master in masters]

        async def members(group: str) -> tuple[str, ConsumerConnection]:
            return group, await consumer_connection_at(self._admin, group, addresses)

        asked = self._limited("groups", sorted(groups), MAX_GROUPS)
        clients: list[tuple[str, str, str]] = []
        for group, found in await self._each(asked, members):
            is_broadcasting = found.message_model is MessageModel.BROADCASTING
            peers = [(each.client_addr, addresses[0]) for each in found.connection_set]
            self._facts.groups[group] = GroupFacts(is_broadcasting, peers)
            clients += [(group, each.client_id, each.client_addr) for each in found.connection_set]
        for listed in await self._each(
            self._limited("clients", clients, MAX_CLIENTS), lambda client: self._client(client, addresses)
        ):
            self._facts.clients += listed

    async def _client(self, client: tuple[str, str, str], addresses: Sequence[str]) -> list[ClientFacts]:
        group, client_id, client_addr = client
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=client_id, jstack_enable=False
        )
        for address in addresses:
            try:
                answer = await self._admin.call(
                    address,
                    RequestCode.GET_CONSUMER_RUNNING_INFO,
                    header,
                    timeout_ms=_CLIENT_TIMEOUT_MS,
                )
            except KourouError:
                continue  # the client is connected to another broker, or does not answer
            statuses = decode_body(answer.body, ConsumerRunningInfo).status_table
            return [
                ClientFacts(client_addr, client_id, group, topic, status)
                for topic, status in statuses.items()
            ]
        return []
