"""Promises: how a master goes on while etcd cannot be reached (`failoverContinuesWithoutEtcd`).

Only members of the in-sync set may take over. The master asks every one of them to promise not to do so for
the time of a lease, and asks again before that is over. With all promises there is no other master, whatever
etcd says meanwhile: the reign goes on. If one of them is missing, the reign ends at its deadline.

The deadline is counted from when the requests were sent, the promise from when one arrived. A promise is kept
in memory; so a member that was started again assumes that it has given one. Only a member that follows the
master promises anything: the master waits for its acknowledgements, too. A member that has sent the
transaction of a take-over promises nothing until its outcome is known.

Not here: the deadline itself (reign.py), how the master gets its key back (member.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from kourou.access.inner_keys import inner_keys
from kourou.broker.replication.reign import Reign, boottime_s
from kourou.config.broker import BrokerConfig
from kourou.errors import KourouError, ResponseError
from kourou.failover.identity import MemberIdentity
from kourou.failover.lease import deadline_of
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.controller import PromiseRequestHeader, PromiseResponseHeader
from kourou.transport.client import RemotingClient
from kourou.transport.from_config import client_settings

_log = logging.getLogger(__name__)

_MS: Final = 1_000
_SHORTEST_CALL_S: Final = 0.1


class Promise:
    """What one member has promised."""

    def __init__(self, lease_s: int, now_s: Callable[[], float] = boottime_s) -> None:
        self._lease_s = lease_s
        self._now_s = now_s
        self._until_s = now_s() + lease_s  # an earlier process may have promised

    def give(self, asked_ms: int) -> int:
        """Promise not to take over; for how many milliseconds from now."""
        granted_ms = min(asked_ms, self._lease_s * _MS)
        self._until_s = max(self._until_s, self._now_s() + granted_ms / _MS)
        return granted_ms

    @property
    def left_s(self) -> float:
        """For how long it still holds."""
        return max(0.0, self._until_s - self._now_s())


class PromiseRequests:
    """The master's side. `addresses` are those of all members that were ever seen."""

    def __init__(self, config: BrokerConfig, identity: MemberIdentity, addresses: Mapping[int, str]) -> None:
        self._config = config
        self._identity = identity
        self._addresses = addresses
        self._client = RemotingClient(client_settings(config), keys=inner_keys(config))
        self._lease_s = config.failover_lease_seconds
        self._said: str | None = None

    async def run(self, reign: Callable[[], Reign | None]) -> None:
        """Collect promises whenever the present reign needs them."""
        try:
            while True:
                await asyncio.sleep(self._lease_s / 12)
                present = reign()
                if present is not None and self.is_due(present):
                    self._report(present, await self.collect(present))
                elif present is None or not present.rests_on_promises:
                    self._said = None
        finally:
            await self._client.stop()

    def is_due(self, reign: Reign) -> bool:
        """Whether the reign would end soon: renewals of the lease leave it more time than this."""
        return reign.is_good() and (reign.lacks_key or reign.left_s < 0.4 * self._lease_s)

    async def collect(self, reign: Reign) -> str | None:
        """Ask every member that may take over, and prolong the reign if all have promised; else the problem,
        in one line."""
        asked, sent_s = reign.waited_for, boottime_s()
        unknown = [each for each in asked if each not in self._addresses]
        if unknown:
            return f"the address of member {unknown[0]} is not known"
        timeout_ms = int(_MS * max(_SHORTEST_CALL_S, reign.left_s / 2))
        answers = await asyncio.gather(
            *(self._ask(each, reign, timeout_ms) for each in asked), return_exceptions=True
        )
        granted_ms = self._lease_s * _MS
        for member, answer in zip(asked, answers, strict=True):
            if isinstance(answer, KourouError):
                return f"member {member} has not promised to wait: {answer}"
            if isinstance(answer, BaseException):
                raise answer
            granted_ms = min(granted_ms, answer)
        if not set(reign.waited_for) <= set(asked):
            return "the in-sync set has changed meanwhile"
        reign.promised(deadline_of(sent_s, granted_ms / _MS))
        return None

    async def _ask(self, member_id: int, reign: Reign, timeout_ms: int) -> int:
        address = self._addresses[member_id]
        header = PromiseRequestHeader(
            cluster_name=self._config.broker_cluster_name,
            broker_name=self._config.broker_name,
            kourou_set_id=self._identity.set_id,
            kourou_member_id=self._identity.member_id,
            kourou_asked_id=member_id,
            kourou_epoch=reign.epoch,
            kourou_asked_ms=self._lease_s * _MS,
        )
        command = RemotingCommand.request(RequestCode.PROMISE_KOUROU_MASTER, header)
        answer = await self._client.call(address, command, timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark or "", address)
        return answer.header(PromiseResponseHeader).kourou_granted_ms

    def _report(self, reign: Reign, problem: str | None) -> None:
        """Log each turn once."""
        said = problem or f"epoch {reign.epoch}"
        if said == self._said:
            return
        self._said = said
        if problem is not None:
            _log.warning("etcd has not answered in time, and the master cannot go on without it: %s", problem)
        else:
            others = ", ".join(map(str, reign.waited_for)) or "there are none"
            _log.warning(
                "etcd has not answered in time: this master goes on, the other members in sync (%s) have "
                "promised not to take over",
                others,
            )
