"""Atomic publishes of a cluster: which are undecided, not published yet, abandoned or incomplete."""

from __future__ import annotations

from dataclasses import dataclass

from kourou.admin.each import map_each
from kourou.admin.session import Admin, BrokerAddress
from kourou.errors import KourouError, ResponseError
from kourou.protocol.bodies.atomic_list import AtomicEntry, AtomicList
from kourou.protocol.codes import RequestCode, ResponseCode


@dataclass(frozen=True, slots=True)
class BrokerAtomics:
    """The atomic publishes that one master knows of."""

    broker_name: str
    address: str
    publishes: tuple[AtomicEntry, ...] = ()
    problem: str = ""
    """Why it could not be read; empty if it could."""


async def list_atomic(admin: Admin, cluster: str | None = None) -> list[BrokerAtomics]:
    """The atomic publishes of all masters, or of those of one cluster, in the order of their names."""

    async def read(place: BrokerAddress) -> BrokerAtomics:
        try:
            answer = await admin.call(place.address, RequestCode.LIST_KOUROU_ATOMIC)
            listed = AtomicList.decode(answer.body)
        except ResponseError as error:
            is_other = error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            problem = "it does not support atomic publishes" if is_other else str(error)
            return BrokerAtomics(place.broker_name, place.address, problem=problem)
        except KourouError as error:
            return BrokerAtomics(place.broker_name, place.address, problem=str(error))
        return BrokerAtomics(place.broker_name, place.address, tuple(listed.publishes))

    masters = sorted(await admin.masters(cluster), key=lambda place: place.broker_name)
    return await map_each(masters, read)
