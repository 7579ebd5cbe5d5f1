"""Delayed messages that wait for their time: by delay level, and by the timer wheel.

By level: queue `level - 1` of SCHEDULE_TOPIC_XXXX; the broker reports how far each was delivered. A message
is due its level's delay after it was stored. By timer: records of rmq_sys_wheel_timer; TIMER_OUT_MS is when
one is due, and a later record with TIMER_DEL_UNIQKEY recalls one. Counts by topic come from the broker, the
list from its newest records, so it may be incomplete.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Final

from kourou.admin.brokers import broker_runtime
from kourou.admin.messages.message_reading import QueuePlace, QueueSpan, message_at, read_all
from kourou.admin.namesrvs import properties_of
from kourou.admin.session import Admin
from kourou.clock import wall_ms
from kourou.errors import ConfigError, ResponseError
from kourou.protocol.bodies import MessageQueue, TopicOffset, TopicStatsTable, decode_body
from kourou.protocol.bodies.timers import TimerMetricsSerializeWrapper
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers import GetTopicStatsInfoRequestHeader
from kourou.protocol.headers.send import RecallMessageRequestHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.names import RMQ_SYS_SCHEDULE_TOPIC, TIMER_TOPIC
from kourou.protocol.properties import MessageConst
from kourou.protocol.recall_handle import RecallHandle

_PER_LEVEL: Final = 50
_TIMER_RECORDS: Final = 2_000
_LEVEL_KEY: Final = re.compile(r"scheduleMessageOffset_(\d+)")
_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_RECALL_GROUP: Final = "KOUROU_CONSOLE"
DEFAULT_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


@dataclass(frozen=True, slots=True)
class DelayLevel:
    """Messages of one delay level on one broker."""

    level: int
    delay: str
    """As the broker's configuration has it: `10s`."""
    waiting: int
    next_due: int | None
    """When the first of them is due; None if none waits."""


@dataclass(frozen=True, slots=True)
class WaitingMessage:
    """A message that is not delivered yet."""

    topic: str
    """Where it is delivered to."""
    level: int | None
    """None for the timer wheel."""
    due: int
    msg_id: str
    keys: str
    tags: str
    store_timestamp: int
    broker_name: str
    stored_topic: str
    """The system topic that has it now."""
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class BrokerDelays:
    """Delayed messages of one broker."""

    broker_name: str
    levels: list[DelayLevel]
    """Those that have or had messages."""
    timer_counts: dict[str, int]
    """Messages in the timer wheel, by topic."""
    timer_problem: str
    """Why the timer wheel has no counts; empty if it has."""
    timer_read_behind_ms: int
    """How much deliveries are late."""
    waiting: list[WaitingMessage]
    """The next ones, by the time when they are due."""
    is_complete: bool
    """Whether `waiting` has all of them."""


async def broker_delays(admin: Admin, broker_name: str, address: str) -> BrokerDelays:
    """The delayed messages of a master."""
    runtime, config = await asyncio.gather(broker_runtime(admin, address), _config(admin, address))
    delays = config.get("messageDelayLevel", DEFAULT_LEVELS).split()
    levels: list[DelayLevel] = []
    waiting: list[WaitingMessage] = []
    is_complete = True
    delivered_offsets = _delivered_offsets(runtime)
    for level, offsets in sorted((await _level_offsets(admin, address)).items()):
        delivered, end = delivered_offsets.get(level, offsets.min_offset), offsets.max_offset
        delay = delays[level - 1] if level <= len(delays) else "?"
        place = _place(RMQ_SYS_SCHEDULE_TOPIC, broker_name, level - 1, address)
        span = QueueSpan(place, delivered, min(end, delivered + _PER_LEVEL))
        found = await read_all(admin, span)
        rows = [_by_level(message, level, _delay_ms(delay)) for message in found]
        waiting += rows
        is_complete = is_complete and span.end_offset == end
        levels.append(
            DelayLevel(level, delay, max(0, end - delivered), min((row.due for row in rows), default=None))
        )
    counts, problem = await _timer_counts(admin, address)
    timers, has_all = await _timer_messages(admin, broker_name, address)
    waiting += timers
    return BrokerDelays(
        broker_name,
        levels,
        counts,
        problem,
        _number(runtime.get("timerReadBehind", "0")),
        sorted(waiting, key=lambda row: row.due),
        is_complete and has_all,
    )


async def _config(admin: Admin, address: str) -> dict[str, str]:
    return properties_of((await admin.call(address, RequestCode.GET_BROKER_CONFIG)).body)


async def _level_offsets(admin: Admin, address: str) -> dict[int, TopicOffset]:
    """By level: the offsets of its queue, if it has or had messages."""
    header = GetTopicStatsInfoRequestHeader(topic=RMQ_SYS_SCHEDULE_TOPIC)
    try:
        answer = await admin.call(address, RequestCode.GET_TOPIC_STATS_INFO, header)
    except ResponseError:
        return {}  # the topic is created with the first delayed message
    table = decode_body(answer.body, TopicStatsTable).offset_table
    return {queue.queue_id + 1: offsets for queue, offsets in table.items() if offsets.max_offset}


def _delivered_offsets(runtime: dict[str, str]) -> dict[int, int]:
    """By level: the next offset to deliver. Missing for a level of which nothing was delivered yet."""
    offsets = {}
    for name, text in runtime.items():
        if found := _LEVEL_KEY.fullmatch(name):
            offsets[int(found[1])] = _number(text.partition(",")[0])
    return offsets


def _number(text: str) -> int:
    return int(text) if text.lstrip("-").isdecimal() else 0


def _delay_ms(delay: str) -> int:
    unit = _UNIT_MS.get(delay[-1:], 0)
    return _number(delay[:-1]) * unit


def _place(topic: str, broker_name: str, queue_id: int, address: str) -> QueuePlace:
    return QueuePlace(MessageQueue(topic, broker_name, queue_id), address)


def _by_level(message: MessageExt, level: int, delay_ms: int) -> WaitingMessage:
    return _waiting(message, level, message.store_timestamp + delay_ms)


def _waiting(message: MessageExt, level: int | None, due: int) -> WaitingMessage:
    return WaitingMessage(
        topic=message.get_property(MessageConst.PROPERTY_REAL_TOPIC) or "",
        level=level,
        due=due,
        msg_id=message.msg_id,
        keys=" ".join(message.keys),
        tags=message.tags or "",
        store_timestamp=message.store_timestamp,
        broker_name=message.broker_name,
        stored_topic=message.topic,
        queue_id=message.queue_id,
        queue_offset=message.queue_offset,
    )


# -- the timer wheel ---------------------------------------------------------------------------------


async def _timer_counts(admin: Admin, address: str) -> tuple[dict[str, int], str]:
    try:
        answer = await admin.call(address, RequestCode.GET_TIMER_METRICS)
    except ResponseError as error:
        return {}, error.remark or str(error)
    metrics = decode_body(answer.body, TimerMetricsSerializeWrapper)
    return {topic: metric.count for topic, metric in metrics.timing_count.items() if metric.count}, ""


async def _timer_messages(admin: Admin, broker_name: str, address: str) -> tuple[list[WaitingMessage], bool]:
    """Those of the newest records that wait, and whether all records were read."""
    place = _place(TIMER_TOPIC, broker_name, 0, address)
    try:
        low = await admin.api.min_offset(address, place.queue)
        high = await admin.api.max_offset(address, place.queue)
    except ResponseError:
        return [], True  # RocketMQ 4 has no timers
    begin = max(low, high - _TIMER_RECORDS)
    records = await read_all(admin, QueueSpan(place, begin, high))
    return waiting_timers(records, wall_ms()), begin == low


def waiting_timers(records: list[MessageExt], now_ms: int) -> list[WaitingMessage]:
    """The messages of timer records that are neither due nor recalled. A long delay writes the record again:
    the last one counts."""
    waiting: dict[str, WaitingMessage] = {}
    for message in records:
        recalled = message.get_property(MessageConst.PROPERTY_TIMER_DEL_UNIQKEY)
        if recalled is not None:
            waiting.pop(recalled.rpartition("+")[2], None)
            continue
        due = _number(message.get_property(MessageConst.PROPERTY_TIMER_OUT_MS) or "")
        if due > now_ms:
            waiting[message.msg_id] = _waiting(message, None, due)
    return list(waiting.values())


async def timer_message(admin: Admin, broker: str, queue_offset: int) -> WaitingMessage:
    """One message of the timer wheel, by the offset of its record. ConfigError if it does not wait any
    more."""
    address = await admin.broker_address(broker)
    message = await message_at(admin, _place(TIMER_TOPIC, broker, 0, address), queue_offset)
    found = waiting_timers([message], wall_ms())
    if not found:
        raise ConfigError(f"the message at offset {queue_offset} of {TIMER_TOPIC} does not wait any more")
    return found[0]


async def recall_message(admin: Admin, waiting: WaitingMessage) -> str:
    """Recall a message of the timer wheel before its time; returns its id. ResponseError if the broker cannot
    (`recallMessageEnable`) or it is too late."""
    # As brokers make handles: a time within the slot of the message.
    handle = RecallHandle(waiting.topic, waiting.broker_name, waiting.due + 1, waiting.msg_id).encode()
    header = RecallMessageRequestHeader(
        producer_group=_RECALL_GROUP, topic=waiting.topic, recall_handle=handle
    )
    address = await admin.broker_address(waiting.broker_name)
    return await admin.api.recall(address, header, admin.settings.request_timeout_ms)
