"""GroupLag: what a consumer group has not consumed yet, read from inside the brokers.

Offsets at brokers may be 5 s old, so members are queried for theirs. Messages that wait for a retry or for
their delay count too.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kourou.broker.delay.deliveries import target_of
from kourou.broker.groups.producers import ClientChannel
from kourou.broker.storage.record_reads import read_records_at
from kourou.embed import Broker
from kourou.errors import ProtocolError, RemotingError
from kourou.protocol.bodies import GetConsumerStatusBody, MessageQueue, decode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.offsets import GetConsumerStatusRequestHeader
from kourou.protocol.names import RMQ_SYS_SCHEDULE_TOPIC, TIMER_TOPIC, is_retry_topic, retry_topic
from kourou.protocol.properties import properties_from_bytes
from kourou.protocol.record import decode_record
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.queue.cq_unit import UNIT, CqUnit
from kourou.wording import counted

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices

_NO_OFFSET: Final = -1
# If a member takes longer, its offsets at the broker are used.
_MEMBER_TIMEOUT_MS: Final = 1_000
_MAX_WORDS: Final = 8

Offsets = dict[MessageQueue, int]


@dataclass(frozen=True, slots=True)
class QueueLag:
    """A queue in which a group is behind; `consumer_offset` is -1 if it has not begun."""

    queue: MessageQueue
    consumer_offset: int
    max_offset: int

    def __str__(self) -> str:
        at = f"at {self.consumer_offset}" if self.consumer_offset >= 0 else "not begun"
        return f"{self.queue.topic} {self.queue.broker_name}/{self.queue.queue_id} {at} of {self.max_offset}"


@dataclass(frozen=True, slots=True)
class GroupLag:
    """What is left for a group, at one broker or several."""

    topics: frozenset[str]
    """The examined topics that exist, without the group's retry topic."""
    queues: tuple[QueueLag, ...]
    waiting: Counter[str]
    """Messages that are to be delivered later, by topic."""
    members: int

    @property
    def is_zero(self) -> bool:
        """Whether everything is consumed; False if there is no topic."""
        return bool(self.topics) and not self.queues and not self.waiting.total()

    def __str__(self) -> str:
        words = [str(queue) for queue in self.queues[:_MAX_WORDS]]
        if len(self.queues) > _MAX_WORDS:
            words.append(counted(len(self.queues) - _MAX_WORDS, "more queue"))
        words += [_waiting_words(topic, count) for topic, count in sorted(self.waiting.items())]
        if not self.members:
            words.append("no member of the group is online")
        return "; ".join(words)


def _waiting_words(topic: str, count: int) -> str:
    verb, whose = ("waits", "its") if count == 1 else ("wait", "their")
    what = "redelivery" if is_retry_topic(topic) else f"{whose} delivery time"
    return f"{topic}: {counted(count, 'message')} {verb} for {what}"


def merged(lags: Iterable[GroupLag]) -> GroupLag:
    """What is left at all brokers."""
    parts = list(lags)
    return GroupLag(
        frozenset().union(*(part.topics for part in parts)),
        tuple(sorted((queue for part in parts for queue in part.queues), key=lambda lag: lag.queue)),
        sum((part.waiting for part in parts), Counter()),
        max((part.members for part in parts), default=0),
    )


async def broker_topics(broker: Broker, group: str) -> set[str]:
    """The topics of a group that one broker knows. Called on its loop."""
    services = broker.services
    return services.offsets.topics_of(group) | services.consumers.topics_of(group)


async def broker_lag(broker: Broker, group: str, topics: Iterable[str]) -> GroupLag:
    """What is left for a group at one broker, in these topics. Called on its loop."""
    services = broker.services
    topics = {each for each in topics if services.topics.get(each) is not None}
    looked_at = topics | {retry_topic(group)}
    waiting = await _waiting(services, looked_at)
    offsets = await _offsets(services, group, looked_at)
    # Ends are read last: messages that arrive meanwhile count as left, never as consumed.
    queues = [
        QueueLag(queue, offset, end)
        for queue, end in _ends(services, looked_at).items()
        if (offset := offsets.get(queue, _NO_OFFSET)) < end
    ]
    info = services.consumers.get(group)
    members = 0 if info is None else len(info.channels)
    own = frozenset(each for each in topics if not is_retry_topic(each))
    return GroupLag(own, tuple(queues), waiting, members)


def _ends(services: BrokerServices, topics: Iterable[str]) -> Offsets:
    """The ends of queues that hold messages."""
    queues = services.store.queues
    found = (queues.get(topic, queue_id) for topic in topics for queue_id in queues.queue_ids(topic))
    return {
        MessageQueue(queue.topic, services.config.broker_name, queue.queue_id): queue.max_queue_offset
        for queue in found
        if queue.max_queue_offset > queue.min_queue_offset
    }


# -- offsets -----------------------------------------------------------------------------------------


async def _offsets(services: BrokerServices, group: str, topics: Iterable[str]) -> Offsets:
    """The offsets of the group: the lowest of all members in broadcasting, else the highest."""
    info = services.consumers.get(group)
    channels = [] if info is None else list(info.channels.values())
    asked = [_ask(channel, group, topic) for channel in channels for topic in topics]
    tables: list[Offsets] = await asyncio.gather(*asked)
    if info is not None and info.is_broadcasting:
        return _least(tables, len(channels))
    return _most([_stored(services, group, topics), *tables])


def _stored(services: BrokerServices, group: str, topics: Iterable[str]) -> Offsets:
    name = services.config.broker_name
    return {
        MessageQueue(topic, name, queue_id): offset
        for topic in topics
        for queue_id, offset in (services.offsets.query_all(group, topic) or {}).items()
    }


async def _ask(channel: ClientChannel, group: str, topic: str) -> Offsets:
    header = GetConsumerStatusRequestHeader(topic=topic, group=group)
    command = RemotingCommand.request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header)
    try:
        answer = await channel.connection.call(command, _MEMBER_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            return {}
        return dict(decode_body(answer.body, GetConsumerStatusBody).message_queue_table)
    except (RemotingError, ProtocolError):
        return {}


def _most(tables: Iterable[Offsets]) -> Offsets:
    found: Offsets = {}
    for table in tables:
        for queue, offset in table.items():
            found[queue] = max(offset, found.get(queue, _NO_OFFSET))
    return found


def _least(tables: list[Offsets], members: int) -> Offsets:
    counts = Counter(queue for table in tables for queue in table)
    return {
        queue: min(table[queue] for table in tables if queue in table)
        for queue, count in counts.items()
        if count == members
    }


# -- what waits --------------------------------------------------------------------------------------


async def _waiting(services: BrokerServices, topics: set[str]) -> Counter[str]:
    """Messages of these topics that are to be delivered later."""
    units = await _waiting_units(services)
    found: Counter[str] = Counter()
    for raw in await read_records_at(services.store.log, services.records, units):
        target = None if raw is None else target_of(properties_from_bytes(decode_record(raw).raw_properties))
        if target is not None and target.topic in topics:
            found[target.topic] += 1
    if services.timers is not None:
        counts = services.timers.metrics.snapshot(services.topics.table).timing_count
        found += Counter({topic: counts[topic].count for topic in topics if topic in counts})
    return found


async def _waiting_units(services: BrokerServices) -> list[CqUnit]:
    """Those of the delay levels, and of timers those that are not on the wheel yet."""
    queues = services.store.queues
    begins: list[tuple[ConsumeQueue, int]] = []
    for queue_id in queues.queue_ids(RMQ_SYS_SCHEDULE_TOPIC):
        next_offset = services.delay_offsets.table.get(queue_id + 1, 0)
        begins.append((queues.get(RMQ_SYS_SCHEDULE_TOPIC, queue_id), next_offset))
    timer_queue = queues.find(TIMER_TOPIC, 0)
    if timer_queue is not None and services.timers is not None:
        begins.append((timer_queue, services.timers.queue_offset))
    units: list[CqUnit] = []
    for queue, begin in begins:
        begin = max(begin, queue.min_queue_offset)
        if (count := queue.max_queue_offset - begin) > 0:
            raw = await services.disk.run(queue.read_units, begin, count)
            units += [CqUnit(*fields) for fields in UNIT.iter_unpack(raw)]
    return units
