"""Giving up what brokers would keep for ever: names of producers, and brokers that decisions wait for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from kourou.admin.each import map_each
from kourou.admin.session import Admin, BrokerAddress
from kourou.client.producer.atomic_sessions import atomic_name
from kourou.errors import ConfigError, KourouError, ResponseError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.atomic import ForgetAtomicRequestHeader, ForgetAtomicResponseHeader
from kourou.protocol.headers.producers import ForgetProducerRequestHeader, ForgetProducerResponseHeader
from kourou.protocol.producer_sequence import check_producer_name


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What one master has given up."""

    broker_name: str
    address: str
    count: int = 0
    problem: str = ""
    """Why it could not; empty if it could."""


async def forget_participant(admin: Admin, broker_name: str, cluster: str | None = None) -> list[Forgotten]:
    """Let no decision of an atomic publish wait for a broker that is gone for good; how many did, by
    coordinator. What was committed for that broker is never published. ConfigError: the broker is there."""
    if broker_name in (await admin.cluster_info()).broker_addr_table:
        raise ConfigError(
            f"broker {broker_name!r} is registered at the name server: it confirms decisions by itself. "
            "Only a broker that is gone for good can be forgotten"
        )

    async def forget(address: str) -> int:
        header = ForgetAtomicRequestHeader(kourou_broker_name=broker_name)
        answer = await admin.call(address, RequestCode.FORGET_KOUROU_ATOMIC, header)
        return answer.header(ForgetAtomicResponseHeader).kourou_decisions

    return await _each_master(admin, cluster, forget)


async def forget_producer(admin: Admin, name: str, cluster: str | None = None) -> list[Forgotten]:
    """Let all masters forget a named producer, of sends and of atomic publishes; `count` is how many of the
    two a broker knew. Repeats of what it has sent are stored again. ConfigError: no producer can have this
    name."""
    try:
        check_producer_name(name)
    except ValueError as error:
        raise ConfigError(str(error)) from None

    async def forget(address: str) -> int:
        count = 0
        for each in (name, atomic_name(name)):
            header = ForgetProducerRequestHeader(kourou_name=each)
            answer = await admin.call(address, RequestCode.FORGET_KOUROU_PRODUCER, header)
            count += answer.header(ForgetProducerResponseHeader).kourou_is_known
        return count

    return await _each_master(admin, cluster, forget)


async def _each_master(
    admin: Admin, cluster: str | None, forget: Callable[[str], Awaitable[int]]
) -> list[Forgotten]:
    async def at(place: BrokerAddress) -> Forgotten:
        try:
            return Forgotten(place.broker_name, place.address, await forget(place.address))
        except ResponseError as error:
            is_other = error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            problem = "" if is_other else str(error)  # it has nothing that it could forget
            return Forgotten(place.broker_name, place.address, problem=problem)
        except KourouError as error:
            return Forgotten(place.broker_name, place.address, problem=str(error))

    masters = sorted(await admin.masters(cluster), key=lambda place: place.broker_name)
    return await map_each(masters, at)
