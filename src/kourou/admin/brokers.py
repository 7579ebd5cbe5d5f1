"""Brokers: their state, configuration and cleanup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kourou.admin.namesrvs import ServerConfig, properties_of, server_configs
from kourou.admin.session import Admin
from kourou.admin.targets import ConfigUpdate, Outcome, call_each, on_each, update_config_on_each
from kourou.errors import KourouError, ResponseError
from kourou.protocol.bodies import (
    ConsumeStatsList,
    EpochEntryCache,
    GroupLags,
    HARuntimeInfo,
    KVTable,
    decode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.broker_admin import ResetMasterFlushOffsetHeader
from kourou.protocol.headers.groups import GetConsumeStatsInBrokerHeader, GetGroupLagsRequestHeader


@dataclass(frozen=True, slots=True)
class BrokerRuntime:
    """The state of one broker, by RocketMQ's names."""

    address: str
    table: dict[str, str]
    problem: str = ""


ALL_QUEUES: Final = -1
"""The queue_id of a row that sums up all queues of a broker."""


@dataclass(frozen=True, slots=True)
class GroupQueueLag:
    """The progress of a group in one queue, or in all of a broker (ALL_QUEUES)."""

    topic: str
    group: str
    broker_name: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    last_timestamp: int
    """The store time of the last consumed message; for all queues that of the oldest one not consumed."""

    @property
    def diff(self) -> int:
        """Messages not yet consumed."""
        return self.broker_offset - self.consumer_offset


@dataclass(frozen=True, slots=True)
class BrokerConsumeStats:
    """The progress of all groups of a broker, in the order of its response."""

    address: str
    queues: list[GroupQueueLag]
    total_diff: int


@dataclass(frozen=True, slots=True)
class HaStatus:
    """The replication state, as reported by one broker."""

    address: str
    status: HARuntimeInfo | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class BrokerEpochs:
    """The epochs of the log of one broker."""

    address: str
    epochs: EpochEntryCache | None
    problem: str = ""


# -- state -------------------------------------------------------------------------------------------


async def broker_runtime(admin: Admin, address: str) -> dict[str, str]:
    """The state of one broker."""
    answer = await admin.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
    return decode_body(answer.body, KVTable).table


async def broker_runtimes(admin: Admin, addresses: Sequence[str]) -> list[BrokerRuntime]:
    """The state of several brokers, sorted by address."""
    answers = await call_each(sorted(addresses), lambda address: broker_runtime(admin, address))
    return [
        BrokerRuntime(address, {}, str(answer))
        if isinstance(answer, KourouError)
        else BrokerRuntime(address, answer)
        for address, answer in answers
    ]


async def broker_consume_stats(
    admin: Admin, address: str, *, is_order: bool = False, timeout_ms: int | None = None
) -> BrokerConsumeStats:
    """The progress of a broker's groups; `is_order` selects groups that consume in order."""
    header = GetConsumeStatsInBrokerHeader(is_order=is_order)
    answer = await admin.call(address, RequestCode.GET_BROKER_CONSUME_STATS, header, timeout_ms=timeout_ms)
    body = decode_body(answer.body, ConsumeStatsList)
    queues = [
        GroupQueueLag(
            queue.topic,
            group,
            queue.broker_name,
            queue.queue_id,
            stats.offset_table[queue].broker_offset,
            stats.offset_table[queue].consumer_offset,
            stats.offset_table[queue].last_timestamp,
        )
        for groups in body.consume_stats_list
        for group, topics in groups.items()
        for stats in topics
        for queue in sorted(stats.offset_table)
    ]
    return BrokerConsumeStats(address, queues, body.total_diff)


async def group_lags(
    admin: Admin, address: str, *, max_age_ms: int = 0, timeout_ms: int | None = None
) -> list[GroupQueueLag]:
    """The progress of a broker's groups, a row for each group and topic, over all queues (ALL_QUEUES).

    Kourou's brokers sum it up themselves, without delaying other requests, or have done so at most
    `max_age_ms` ago. For others it takes the progress
    of every queue (317), which costs a large broker seconds.
    """
    broker_name = await admin.broker_name(address)
    try:
        header = GetGroupLagsRequestHeader(kourou_max_age_ms=max_age_ms)
        answer = await admin.call(address, RequestCode.GET_KOUROU_GROUP_LAGS, header, timeout_ms=timeout_ms)
    except ResponseError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        return _sums((await broker_consume_stats(admin, address, timeout_ms=timeout_ms)).queues)
    return [
        GroupQueueLag(row.topic, row.group, broker_name, ALL_QUEUES, row.end, row.end - row.lag, row.since_ms)
        for row in GroupLags.decode(answer.body).rows
    ]


def _sums(queues: list[GroupQueueLag]) -> list[GroupQueueLag]:
    """One row for each group and topic of a broker."""
    rows: dict[tuple[str, str, str], GroupQueueLag] = {}
    for queue in queues:
        key = queue.topic, queue.group, queue.broker_name
        since_ms = queue.last_timestamp if queue.diff > 0 else 0
        row = rows.get(key)
        if row is not None:
            since_ms = min(filter(None, (since_ms, row.last_timestamp)), default=0)
        rows[key] = GroupQueueLag(
            *key,
            ALL_QUEUES,
            queue.broker_offset + (row.broker_offset if row else 0),
            queue.consumer_offset + (row.consumer_offset if row else 0),
            since_ms,
        )
    return list(rows.values())


async def ha_statuses(admin: Admin, addresses: Sequence[str]) -> list[HaStatus]:
    """The replication state of several brokers (5.x)."""

    async def ask(address: str) -> HARuntimeInfo:
        answer = await admin.call(address, RequestCode.GET_BROKER_HA_STATUS)
        return decode_body(answer.body, HARuntimeInfo)

    return [
        HaStatus(address, None, str(answer)) if isinstance(answer, KourouError) else HaStatus(address, answer)
        for address, answer in await call_each(addresses, ask)
    ]


async def broker_epochs(admin: Admin, addresses: Sequence[str]) -> list[BrokerEpochs]:
    """The epochs of the logs of several brokers (5.x; Apache's in controller mode only)."""

    async def ask(address: str) -> EpochEntryCache:
        answer = await admin.call(address, RequestCode.GET_BROKER_EPOCH_CACHE)
        return decode_body(answer.body, EpochEntryCache)

    return [
        BrokerEpochs(address, None, str(answer))
        if isinstance(answer, KourouError)
        else BrokerEpochs(address, answer)
        for address, answer in await call_each(addresses, ask)
    ]


# -- configuration -----------------------------------------------------------------------------------


async def broker_configs(admin: Admin, addresses: Sequence[str]) -> list[ServerConfig]:
    """The configuration of several brokers."""

    async def ask(address: str) -> dict[str, str]:
        return properties_of((await admin.call(address, RequestCode.GET_BROKER_CONFIG)).body)

    return server_configs(await call_each(addresses, ask))


async def update_broker_config(
    admin: Admin, addresses: Sequence[str], key: str, value: str
) -> list[ConfigUpdate]:
    """Change one key of running brokers."""
    return await update_config_on_each(admin, addresses, RequestCode.UPDATE_BROKER_CONFIG, key, value)


async def reset_master_flush_offset(admin: Admin, address: str, phy_offset: int) -> None:
    """Set the flushed offset of the master at a slave (5.x)."""
    header = ResetMasterFlushOffsetHeader(master_flush_offset=phy_offset)
    await admin.call(address, RequestCode.RESET_MASTER_FLUSH_OFFSET, header)


# -- cleanup -----------------------------------------------------------------------------------------


async def clean_expired_consume_queues(admin: Admin, addresses: Sequence[str]) -> list[Outcome]:
    """Delete ConsumeQueue files of deleted messages."""
    return await _tell(admin, addresses, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)


async def clean_unused_topics(admin: Admin, addresses: Sequence[str]) -> list[Outcome]:
    """Delete the files of topics that no longer exist."""
    return await _tell(admin, addresses, RequestCode.CLEAN_UNUSED_TOPIC)


async def delete_expired_commit_logs(admin: Admin, addresses: Sequence[str]) -> list[Outcome]:
    """Delete expired messages now, not at the configured hour."""
    return await _tell(admin, addresses, RequestCode.DELETE_EXPIRED_COMMITLOG)


async def _tell(admin: Admin, addresses: Sequence[str], code: RequestCode) -> list[Outcome]:
    return await on_each(addresses, lambda address: admin.call(address, code))
