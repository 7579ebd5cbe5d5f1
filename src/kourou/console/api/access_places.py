"""The brokers that a change of access control applies to, and what each has now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kourou.admin.access import AuthTables, PlainListing, broker_access
from kourou.admin.session import Admin, BrokerAddress
from kourou.console.api.places import mqadmin, place_options
from kourou.console.api_errors import bad_input, not_found
from kourou.console.endpoints import Call
from kourou.errors import RemotingError

KindT = TypeVar("KindT", AuthTables, PlainListing)


@dataclass(frozen=True, slots=True)
class AccessPlaces(Generic[KindT]):
    """Brokers with one kind of access control, masters first: slaves may follow theirs."""

    found: dict[BrokerAddress, KindT]
    warnings: list[str]
    """About brokers that do not answer."""

    def __iter__(self) -> Iterator[tuple[BrokerAddress, KindT]]:
        return iter(self.found.items())


async def access_places(
    admin: Admin, kind: type[KindT], names: Sequence[str], missing: str
) -> AccessPlaces[KindT]:
    """Masters and slaves with these names, all if there are none, as far as they have this kind of access
    control. ApiError with the text `missing` if none has it; ResponseError if one does not show it."""
    brokers = [broker for broker in await admin.brokers() if not names or broker.broker_name in names]
    for name in names:
        if name not in {broker.broker_name for broker in brokers}:
            raise bad_input("brokers", f"no broker {name!r} is online")
    brokers.sort(key=lambda broker: not broker.is_master)
    answers = await asyncio.gather(*(_access(admin, broker) for broker in brokers))
    found = {broker: one for broker, one in zip(brokers, answers, strict=True) if isinstance(one, kind)}
    if not found:
        raise next((one for one in answers if isinstance(one, RemotingError)), not_found(missing))
    return AccessPlaces(
        found,
        [
            f"{broker.broker_name} ({broker.address}) does not answer and stays as it is: {one}"
            for broker, one in zip(brokers, answers, strict=True)
            if isinstance(one, RemotingError)
        ],
    )


async def _access(admin: Admin, broker: BrokerAddress) -> AuthTables | PlainListing | RemotingError | None:
    try:
        return await broker_access(admin, broker.address)
    except RemotingError as error:
        return error


def where(brokers: Sequence[BrokerAddress]) -> str:
    """Their names, for a sentence; slaves with their ids."""
    return ", ".join(
        one.broker_name if one.is_master else f"{one.broker_name}:{one.broker_id}" for one in brokers
    )


async def access_commands(
    call: Call[Any, Any], brokers: Sequence[BrokerAddress], command: str, *words: str
) -> list[str]:
    """The equivalent command lines: `-c` for whole clusters, whose slaves it changes as well."""
    masters = [broker for broker in brokers if broker.is_master]
    return [mqadmin(call, command, *place, *words) for place in await place_options(call.admin, masters)]
