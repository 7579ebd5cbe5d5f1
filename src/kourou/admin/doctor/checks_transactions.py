"""Checks of transactions: open for long, given up, or checked with the wrong producers.

A broker asks one online producer of the group how a transaction ended. Only transactional producers can
answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kourou.admin.connections import producers_of_broker
from kourou.admin.doctor.cluster_snapshot import BrokerView, ClusterSnapshot
from kourou.admin.doctor.findings import Finding, Severity
from kourou.admin.messages.message_reading import QueuePlace, QueueSpan, read_span
from kourou.clock import wall_ms
from kourou.errors import RemotingError, ResponseError
from kourou.protocol.bodies import MessageQueue, ProducerTableInfo
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import MessageExt
from kourou.protocol.names import (
    CID_SYS_RMQ_TRANS,
    RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
)
from kourou.protocol.properties import MessageConst
from kourou.wording import counted

# Enough to see which producers send transactions; a cluster may have millions.
_MOST_READ: Final = 512
_CHECK: Final = "transactions"


async def check_transactions(snapshot: ClusterSnapshot) -> list[Finding]:
    """Transactions on every master that responds."""
    findings: list[Finding] = []
    for master in snapshot.living_masters:
        try:
            findings += await _check(snapshot, master)
        except (RemotingError, ResponseError) as error:
            # A broker of RocketMQ 4 creates the topic with the first transaction.
            if not (isinstance(error, ResponseError) and error.code == ResponseCode.TOPIC_NOT_EXIST):
                snapshot.skip(_CHECK, master.where, error)
    return findings


async def _check(snapshot: ClusterSnapshot, master: BrokerView) -> list[Finding]:
    findings: list[Finding] = []
    given_up = await _given_up(snapshot, master)
    if given_up:
        findings.append(_abandoned_finding(snapshot, master, given_up))
    producers = await producers_of_broker(snapshot.admin, master.place.address)
    settled, halves = await _last_halves(snapshot, master)
    open_ones = [half for half in halves if half.queue_offset >= settled]
    findings += _open_for_long(snapshot, master, open_ones, producers)
    findings += _shared_groups(master, halves, producers)
    return findings


def _place(master: BrokerView, topic: str) -> QueuePlace:
    return QueuePlace(MessageQueue(topic, master.place.broker_name, 0), master.place.address)


async def _given_up(snapshot: ClusterSnapshot, master: BrokerView) -> int:
    place = _place(master, RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC)
    try:
        end = await snapshot.admin.api.max_offset(place.address, place.queue)
        return end - await snapshot.admin.api.min_offset(place.address, place.queue)
    except ResponseError:
        return 0  # the topic is created with the first one


async def _last_halves(snapshot: ClusterSnapshot, master: BrokerView) -> tuple[int, list[MessageExt]]:
    """The offset up to which all transactions have ended, and the last half messages."""
    place = _place(master, RMQ_SYS_TRANS_HALF_TOPIC)
    api = snapshot.admin.api
    end = await api.max_offset(place.address, place.queue)
    begin = await api.min_offset(place.address, place.queue)
    settled = await api.consumer_offset(place.address, CID_SYS_RMQ_TRANS, place.queue)
    settled = begin if settled is None else settled
    # The oldest open ones matter most, then the newest.
    spans = [(max(begin, min(settled, end - _MOST_READ)), min(end, settled + _MOST_READ))]
    if spans[0][1] < end:
        spans.append((max(spans[0][1], end - _MOST_READ), end))
    halves: list[MessageExt] = []
    for first, last in spans:
        async for pulled in read_span(snapshot.admin, QueueSpan(place, first, last)):
            halves += pulled.messages
    return settled, halves


def _group(half: MessageExt) -> str:
    return half.get_property(MessageConst.PROPERTY_PRODUCER_GROUP) or ""


def _abandoned_finding(snapshot: ClusterSnapshot, master: BrokerView, count: int) -> Finding:
    return Finding(
        severity=Severity.WARNING,
        check=_CHECK,
        where=master.where,
        what=f"given up because no producer resolved them: {counted(count, 'transaction')}",
        meaning=f"their messages were not delivered; they are in {RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC}",
        cure="look at them and fix the listener's check; resumeCheckHalfMessage makes the broker check "
        "one again, by the id that printMsg shows",
        commands=(snapshot.command("printMsg", "-t", RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC),),
    )


def _open_for_long(
    snapshot: ClusterSnapshot, master: BrokerView, halves: list[MessageExt], producers: ProducerTableInfo
) -> Iterator[Finding]:
    now = wall_ms()
    old: dict[str, list[int]] = {}
    for half in halves:
        if now - half.born_timestamp > snapshot.half_pending_ms:
            old.setdefault(_group(half), []).append(half.born_timestamp)
    for group, times in sorted(old.items()):
        is_online = bool(producers.data.get(group))
        yield Finding(
            severity=Severity.WARNING if is_online else Severity.PROBLEM,
            check=_CHECK,
            where=f"producer group {group} on {master.place.broker_name}",
            what=f"open: {counted(len(times), 'transaction')}, the oldest for {(now - min(times)) // 1000} s"
            + ("" if is_online else ", and no producer of the group is online"),
            meaning="their messages are not delivered until a producer commits or rolls back"
            if is_online
            else "no producer can resolve them: they will be given up, and not delivered",
            cure="see what the listener's check returns (UNKNOW means: ask again), and where it hangs"
            if is_online
            else "start a transactional producer with this group name",
        )


def _shared_groups(
    master: BrokerView, halves: list[MessageExt], producers: ProducerTableInfo
) -> Iterator[Finding]:
    """Groups in which some connected clients sent transactions and others did not."""
    senders: dict[str, set[str]] = {}
    for half in halves:
        senders.setdefault(_group(half), set()).add(half.born_host)
    for group, hosts in sorted(senders.items()):
        clients = {info.remote_ip.lstrip("/"): info.client_id for info in producers.data.get(group, [])}
        others = sorted(client_id for host, client_id in clients.items() if host not in hosts)
        if others and len(others) < len(clients):
            yield Finding(
                severity=Severity.HINT,
                check=_CHECK,
                where=f"producer group {group} on {master.place.broker_name}",
                what=f"some of its clients send transactions, others have not recently: {', '.join(others)}",
                meaning="the broker asks any client of the group how a transaction ended; one that is not "
                "transactional cannot answer, and the transaction stays open",
                cure="give producers without transactions a group of their own",
            )
