"""AccessPart: access control in a broker, from its start to its stop.

The accounts are read before the broker serves, and followed while it runs: those of `plain_acl.yml` by a
look at the files each 5 s, as limits are, users and policies by the requests that change them. Whatever was
decided before a change is decided anew, also of pulls that are held. Without access control there is no such
part.
Not here: what is checked (access/gate.py), the accounts (accounts.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kourou.access.from_config import audit_log_of, limits_file_of, lockout_of, openings_of
from kourou.access.gate import AccessGate
from kourou.access.quotas import Quotas
from kourou.access.requests import RequestTable
from kourou.broker.access.accounts import home_of
from kourou.broker.admission import RequestCheck
from kourou.broker.part import BrokerPart, processors_of
from kourou.broker.send.signed_sends import SignedSends
from kourou.errors import ConfigError
from kourou.protocol.codes import RequestCode
from kourou.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from kourou.access.model import Account
    from kourou.broker.access.accounts import Accounts
    from kourou.broker.admission import Admission
    from kourou.broker.connection_state import ConnectionState
    from kourou.broker.replication.metadata_sync import Follow
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.config.broker import BrokerConfig
    from kourou.transport.client import RemotingClient
    from kourou.transport.request import Processor, Request
    from kourou.transport.tasks import TaskOwner

RELOAD_S: Final = 5.0
"""How often files are looked at, as RocketMQ does."""
_AUDIT_S: Final = 1.0
_log = logging.getLogger(__name__)


class AccessPart(BrokerPart):
    """The part of a broker with access control. Its check is in force from the beginning. `own_account` signs
    what the broker sends to itself, where the configuration names no account for it."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        accounts: Accounts,
        admission: Admission,
        own_account: Account | None,
        disk: DiskThreads,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._accounts = accounts
        self._admission = admission
        self._disk = disk
        home = home_of(config)
        self._limits_file = limits_file_of(config, home)
        self._quotas = Quotas(monotonic_ms)
        log_name = f"audit_broker_{config.broker_name}_{config.broker_id}.log"
        self._audit_log = audit_log_of(config, home, log_name, now_ms)
        self.gate = AccessGate(
            accounts.rules,
            RequestTable(cluster=config.broker_cluster_name, openings=openings_of(config)),
            monotonic_ms=monotonic_ms,
            lockout=lockout_of(config),
            quotas=self._quotas,
            audit_log=self._audit_log,
            own_account=own_account,
            ruling=lambda: admission.ruling,
        )
        self._handlers = accounts.handlers(self.gate)
        gate = self.gate
        fast_sends = SignedSends(
            gate.sender, concerns=lambda connection: not gate.has_to_see_sends(connection)
        )
        self.check = RequestCheck(self._check, fast_sends=fast_sends)
        admission.add(self.check)
        admission.record_access = self.gate

    def _check(self, request: Request) -> None:
        self.gate.check(request)
        if request.code == RequestCode.HEART_BEAT:
            state: ConnectionState = request.connection.state
            state.heartbeat = request

    def processors(self) -> Mapping[int, Processor]:
        return processors_of(self._handlers)

    def follow_master(self, client: RemotingClient) -> list[Follow]:
        """What this slave copies from its master, beside the tables of every broker."""
        return self._accounts.follow_master(client)

    def recover(self) -> None:
        self._accounts.load()
        self._quotas.replace(self._limits_file.read())

    async def start(self, tasks: TaskOwner) -> None:
        tasks.start(self._follow_files(), "access-files")
        if self._audit_log is not None:
            tasks.start(self._write_audit_log(), "access-audit-log")

    async def stop(self, timeout_ms: int) -> None:
        log = self._audit_log
        if log is not None:
            await self._disk.run(log.write, log.take(is_last=True))

    async def _follow_files(self) -> None:
        while True:
            await asyncio.sleep(RELOAD_S)
            if await self._disk.run(self._accounts.reload_if_changed):
                self._admission.invalidate()
            if await self._follow_limits():
                self._admission.invalidate()

    async def _follow_limits(self) -> bool:
        """Whether other limits count now. What is wrong with the file is logged, and the old ones stay."""
        file = self._limits_file
        if not await self._disk.run(lambda: file.has_changed):
            return False
        try:
            limits = await self._disk.run(file.read)
        except ConfigError as error:
            _log.error("the limits of accounts stay as they were: %s", error)
            return False
        self._quotas.replace(limits)
        _log.info("limits of %s in force", counted(len(limits), "account"))
        return True

    async def _write_audit_log(self) -> None:
        log = self._audit_log
        assert log is not None
        while True:
            await asyncio.sleep(_AUDIT_S)
            if lines := log.take():
                await self._disk.run(log.write, lines)
