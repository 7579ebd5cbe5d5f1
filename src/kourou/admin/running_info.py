"""The report of a running consumer, and conclusions about its group.

Brokers forward the request to the client. Tables keyed by queue become rows, so that the result can be JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kourou.admin.connections import consumer_connection, group_addresses
from kourou.admin.consume_stats import GroupProgress
from kourou.admin.session import Admin
from kourou.clock import wall_ms
from kourou.errors import KourouError, RemotingError, ResponseError
from kourou.protocol.bodies import (
    Connection,
    ConsumerRunningInfo,
    ConsumeStatus,
    ConsumeType,
    MessageModel,
    MessageQueue,
    PopProcessQueueInfo,
    ProcessQueueInfo,
    SubscriptionData,
    decode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import GetConsumerRunningInfoRequestHeader
from kourou.protocol.versions import version_desc

PROP_CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
PROP_CONSUME_ORDERLY: Final = "PROP_CONSUMEORDERLY"
PROP_START_TIMESTAMP: Final = "PROP_CONSUMER_START_TIMESTAMP"
STARTED_FOR_A_WHILE_MS: Final = 120_000
"""During a rollout members may have different subscriptions."""
BLOCKED_AFTER_MS: Final = 60_000
"""A queue is stuck if it has messages in memory and none was handled for this long."""


async def running_info(
    admin: Admin, group: str, client_id: str, with_stacks: bool = False
) -> ConsumerRunningInfo:
    """The report of one consumer; `with_stacks` includes the stacks of its threads.

    Queries the group's brokers until one can reach the consumer; raises the last ResponseError otherwise.
    """
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group=group, client_id=client_id, jstack_enable=with_stacks
    )
    failure: KourouError = ResponseError(ResponseCode.CONSUMER_NOT_ONLINE, f"{group} has no broker")
    for address in await group_addresses(admin, group):
        try:
            answer = await admin.call(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        except (RemotingError, ResponseError) as error:
            failure = error
            continue
        return decode_body(answer.body, ConsumerRunningInfo)
    raise failure


async def queue_holders(admin: Admin, group: str) -> dict[MessageQueue, str]:
    """The client id of each queue's owner, as far as members report it."""
    held: dict[MessageQueue, str] = {}
    for member in (await consumer_connection(admin, group)).connection_set:
        with contextlib.suppress(RemotingError, ResponseError):
            info = await running_info(admin, group, member.client_id)
            held |= dict.fromkeys(info.mq_table, member.client_id)
    return held


async def with_client_ips(admin: Admin, progress: GroupProgress) -> GroupProgress:
    """A group's progress with the addresses of the queues' owners, which are the start of their client
    ids."""
    try:
        held = await queue_holders(admin, progress.group)
    except (RemotingError, ResponseError):
        return progress
    ips = {queue: client_id.partition("@")[0] for queue, client_id in held.items()}
    return replace(
        progress,
        queues=[replace(queue, client_ip=ips.get(queue.message_queue)) for queue in progress.queues],
    )


@dataclass(frozen=True, slots=True)
class RunningQueue:
    """A queue assigned to a consumer."""

    queue: MessageQueue
    info: ProcessQueueInfo


@dataclass(frozen=True, slots=True)
class PoppedQueue:
    """A queue that a consumer pops from."""

    queue: MessageQueue
    info: PopProcessQueueInfo


@dataclass(frozen=True, slots=True)
class RunningInfo:
    """The report of a consumer; queues are sorted."""

    properties: dict[str, str]
    subscriptions: list[SubscriptionData]
    queues: list[RunningQueue]
    pop_queues: list[PoppedQueue]
    status: dict[str, ConsumeStatus]
    """Rates, by topic."""
    user_consumer_info: dict[str, str]
    jstack: str | None

    @classmethod
    def of(cls, body: ConsumerRunningInfo) -> RunningInfo:
        """From the body of the response."""
        return cls(
            body.properties,
            sorted(body.subscription_set, key=lambda subscription: subscription.topic),
            [RunningQueue(queue, body.mq_table[queue]) for queue in sorted(body.mq_table)],
            [PoppedQueue(queue, body.mq_pop_table[queue]) for queue in sorted(body.mq_pop_table)],
            {topic: body.status_table[topic] for topic in sorted(body.status_table)},
            body.user_consumer_info,
            body.jstack,
        )

    @property
    def is_push(self) -> bool:
        """Whether it is a push consumer."""
        return self.properties.get(PROP_CONSUME_TYPE) == ConsumeType.CONSUME_PASSIVELY

    @property
    def is_orderly(self) -> bool:
        """Whether it consumes queues in order, under a lock."""
        return self.properties.get(PROP_CONSUME_ORDERLY, "").lower() == "true"

    def runs_for_ms(self, now_ms: int) -> int:
        """Its uptime; 0 if not reported."""
        started = self.properties.get(PROP_START_TIMESTAMP, "")
        return now_ms - int(started) if started.isdecimal() else 0


@dataclass(frozen=True, slots=True)
class ClientStatus:
    """One member of a group. `info` is None if it did not respond; `problem` says why."""

    client_id: str
    version: str
    info: RunningInfo | None
    problem: str


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """All members of a group, and its problems."""

    group: str
    timestamp_ms: int
    clients: list[ClientStatus]
    is_subscription_same: bool
    is_rebalance_ok: bool
    findings: list[str]
    """Stuck queues, one sentence each."""


async def client_status(
    admin: Admin, group: str, client_id: str, *, broker: str | None = None, with_stacks: bool = False
) -> ClientStatus:
    """One member of a group. ResponseError if it is not online."""
    connection = await consumer_connection(admin, group, broker)
    versions = {found.client_id: found.version for found in connection.connection_set}
    info = RunningInfo.of(await running_info(admin, group, client_id, with_stacks))
    return ClientStatus(client_id, version_desc(versions.get(client_id, 0)), info, "")


async def group_status(
    admin: Admin, group: str, *, broker: str | None = None, with_stacks: bool = False
) -> GroupStatus:
    """All members of a group. ResponseError CONSUMER_NOT_ONLINE if it has none."""
    connection = await consumer_connection(admin, group, broker)
    members = sorted(connection.connection_set, key=lambda member: member.client_id)
    clients = await asyncio.gather(*(_client_status(admin, group, member, with_stacks) for member in members))
    now_ms = wall_ms()
    infos = {client.client_id: client.info for client in clients if client.info is not None}
    is_broadcast = connection.message_model is MessageModel.BROADCASTING
    return GroupStatus(
        group,
        now_ms,
        list(clients),
        is_subscription_same=has_same_subscriptions(list(infos.values()), now_ms),
        is_rebalance_ok=is_broadcast or not queues_held_twice(list(infos.values())),
        findings=[line for client_id in infos for line in stuck_queues(client_id, infos[client_id], now_ms)],
    )


async def _client_status(admin: Admin, group: str, member: Connection, with_stacks: bool) -> ClientStatus:
    version = version_desc(member.version)
    try:
        info = RunningInfo.of(await running_info(admin, group, member.client_id, with_stacks))
    except (RemotingError, ResponseError) as error:
        return ClientStatus(member.client_id, version, None, str(error))
    return ClientStatus(member.client_id, version, info, "")


# -- conclusions -------------------------------------------------------------------------------------


def has_same_subscriptions(infos: Sequence[RunningInfo], now_ms: int) -> bool:
    """Whether all members have the same subscriptions; counts only push consumers that have run for a
    while."""
    subscriptions = {
        frozenset(
            (one.topic, one.sub_string, one.expression_type, one.class_filter_mode)
            for one in info.subscriptions
        )
        for info in infos
        if info.is_push and info.runs_for_ms(now_ms) > STARTED_FOR_A_WHILE_MS
    }
    return len(subscriptions) <= 1


def queues_held_twice(infos: Sequence[RunningInfo]) -> list[MessageQueue]:
    """Queues with several owners: the members disagree about the group."""
    held: set[MessageQueue] = set()
    twice: set[MessageQueue] = set()
    for info in infos:
        queues = {running.queue for running in info.queues if not running.info.dropped}
        twice |= held & queues
        held |= queues
    return sorted(twice)


def stuck_queues(client_id: str, info: RunningInfo, now_ms: int) -> list[str]:
    """Stuck queues of a member, one sentence each in Apache's wording."""
    if not info.is_push:
        return []
    found = ((running.queue, _why_stuck(running.info, info.is_orderly, now_ms)) for running in info.queues)
    return [
        f"{client_id} MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}] {why}"
        for queue, why in found
        if why
    ]


def _why_stuck(info: ProcessQueueInfo, is_orderly: bool, now_ms: int) -> str:
    if not is_orderly:
        silent_ms = now_ms - info.last_consume_timestamp
        is_blocked = silent_ms > BLOCKED_AFTER_MS and info.cached_msg_count > 0
        return f"can't consume for a while, maybe blocked, {silent_ms}ms" if is_blocked else ""
    if not info.locked:
        return f"can't lock for a while, {now_ms - info.last_lock_timestamp}ms"
    if info.dropped and info.try_unlock_times > 0:
        return f"unlock {info.try_unlock_times} times, still failed"
    return ""
