"""The brokers of an operation, and its outcome on each.

An operation on many brokers continues when one fails: failures are reported per broker. It is an error only
when all fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from kourou.admin.session import Admin, BrokerAddress
from kourou.config.properties import format_properties
from kourou.errors import ConfigError, KourouError
from kourou.protocol.codes import RequestCode
from kourou.wording import suggestion

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an operation on one server."""

    address: str
    problem: str = ""
    """Why it failed; empty if it did not."""

    @property
    def is_done(self) -> bool:
        return not self.problem


@dataclass(frozen=True, slots=True)
class ConfigUpdate(Outcome):
    """What became of a change of keys on one server."""

    note: str = ""
    """Which keys are not in force yet; empty if all are. Only Kourou's servers report it."""


async def brokers_of(admin: Admin, cluster: str) -> list[BrokerAddress]:
    """All brokers of a cluster. ConfigError, in Apache's wording, if there is no such cluster."""
    brokers = await admin.brokers(cluster)
    if not brokers:
        clusters = sorted({broker.cluster for broker in await admin.brokers()})
        there = f"; there are: {', '.join(clusters)}" if clusters else "; no broker is registered there"
        raise ConfigError(
            f"cluster [{cluster}] not exist. Make sure the specified clusterName exists or the name server "
            f"connected to is correct{suggestion(cluster, clusters) or there}"
        )
    return brokers


async def masters_of(admin: Admin, cluster: str) -> list[BrokerAddress]:
    """The masters of a cluster; ConfigError if there is no such cluster, or none of its masters is online."""
    masters = [broker for broker in await brokers_of(admin, cluster) if broker.is_master]
    if not masters:
        raise ConfigError(f"cluster [{cluster}] has no master now; start one of its brokers as master")
    return masters


async def master_addresses(
    admin: Admin, *, broker: str | None = None, cluster: str | None = None
) -> list[str]:
    """The broker given by address or name; else the masters of a cluster; else all masters."""
    if broker is not None:
        return [await admin.broker_address(broker)]
    masters = await (masters_of(admin, cluster) if cluster is not None else admin.masters())
    if not masters:
        raise ConfigError("no broker is registered at the name server; start one, or give another with -n")
    return [master.address for master in masters]


async def call_each(
    addresses: Sequence[str], ask: Callable[[str], Awaitable[T]]
) -> list[tuple[str, T | KourouError]]:
    """Call several servers in parallel: the result or error of each. Raises an error if all failed."""
    answers = await asyncio.gather(*(_answer(ask(address)) for address in addresses))
    errors = [answer for answer in answers if isinstance(answer, KourouError)]
    if errors and len(errors) == len(answers):
        raise errors[0]
    return list(zip(addresses, answers, strict=True))


async def on_each(addresses: Sequence[str], action: Callable[[str], Awaitable[object]]) -> list[Outcome]:
    """Run an action on several servers in parallel. If it fails on all, the first error is raised."""
    return [
        Outcome(address, str(answer) if isinstance(answer, KourouError) else "")
        for address, answer in await call_each(addresses, action)
    ]


async def update_config_on_each(
    admin: Admin, addresses: Sequence[str], code: RequestCode, key: str, value: str
) -> list[ConfigUpdate]:
    """Change one key of several servers. If it fails on all, the first error is raised."""
    body = format_properties({key: value}).encode("utf-8")
    return [
        ConfigUpdate(address, str(answer))
        if isinstance(answer, KourouError)
        else ConfigUpdate(address, note=answer.remark or "")
        for address, answer in await call_each(
            addresses, lambda address: admin.call(address, code, body=body)
        )
    ]


async def _answer(answer: Awaitable[T]) -> T | KourouError:
    try:
        return await answer
    except KourouError as error:
        return error
