"""Overflow policies of a cluster: the topics that have one on each master, their backlogs, what was
dropped."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.admin.each import map_each
from kourou.admin.session import Admin, BrokerAddress
from kourou.errors import KourouError, ResponseError
from kourou.protocol.bodies.overflow import OverflowState, TopicOverflow
from kourou.protocol.codes import RequestCode, ResponseCode


@dataclass(frozen=True, slots=True)
class BrokerOverflow:
    """The topics of one master that have a policy, or of which messages were dropped."""

    broker_name: str
    address: str
    topics: tuple[TopicOverflow, ...] = ()
    problem: str = ""
    """Why it could not be read; empty if it could."""


async def broker_overflow(admin: Admin, address: str) -> list[TopicOverflow]:
    """Those of one broker; none if it is not Kourou's. KourouError if it does not answer."""
    try:
        answer = await admin.call(address, RequestCode.GET_KOUROU_OVERFLOW)
    except ResponseError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return []
        raise
    return OverflowState.decode(answer.body).topics


async def list_overflow(
    admin: Admin, cluster: str | None = None, topic: str | None = None
) -> list[BrokerOverflow]:
    """Those of all masters, or of one cluster, or of one topic, in the order of the brokers' names."""

    async def read(place: BrokerAddress) -> BrokerOverflow:
        try:
            topics = await broker_overflow(admin, place.address)
        except KourouError as error:
            return BrokerOverflow(place.broker_name, place.address, problem=str(error))
        wanted = tuple(each for each in topics if topic is None or each.topic == topic)
        return BrokerOverflow(place.broker_name, place.address, wanted)

    masters = sorted(await admin.masters(cluster), key=lambda place: place.broker_name)
    return await map_each(masters, read)


def describe_limits(state: TopicOverflow) -> str:
    """The backlog of the slowest group against the limits of the topic."""
    age_s, max_age_s = ((ms or 0) // 1000 for ms in (state.age_ms, state.max_age_ms))
    limits = (
        (state.messages, state.max_messages, "messages"),
        (state.size_bytes or 0, state.max_bytes, "bytes"),
        (age_s, None if state.max_age_ms is None else max_age_s, "s of age"),
    )
    return ", ".join(f"{used} of {limit} {unit}" for used, limit, unit in limits if limit is not None)
