"""FollowedAccounts: the users and policies of the brokers, for a proxy in a process of its own.

Read from the first broker of the cluster with the proxy's own account, an administrator there, and looked at
again every few seconds: a change acts as soon. Kourou's brokers send them if they have changed, Apache's
always. What a call needs beyond that is decided by the brokers, which see the client's signature.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final, Protocol

from kourou.access.auth.data import AclsFile, AuthData, UsersFile
from kourou.access.auth.rules import AuthRules
from kourou.access.auth.settings import AuthSettings
from kourou.access.gate import AccessGate
from kourou.access.requests import RequestTable
from kourou.errors import KourouError
from kourou.protocol.bodies import AccessTables, decode_body, encode_body
from kourou.protocol.bodies.acl import AclInfo, UserInfo
from kourou.protocol.bodies.topics import DataVersion
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.acl import GetAccessRequestHeader, ListAclsRequestHeader, ListUsersRequestHeader
from kourou.proxy.access.refusal_records import RefusalRecords
from kourou.proxy.settings import AccessSettings
from kourou.transport.tasks import TaskOwner
from kourou.wording import counted

_log = logging.getLogger(__name__)

_LOOK_S: Final = 5.0
_LOOK_AT_APACHE_S: Final = 20.0


class BrokerRequests(Protocol):
    """How the proxy's own requests reach a broker (links/cluster.py)."""

    async def request(self, command: RemotingCommand, absent: int) -> RemotingCommand | None:
        """The response of a broker; None: its code is `absent`."""
        ...


class FollowedAccounts:
    """Users and policies, and the gate that decides by them. As long as none could be read, every call is
    refused."""

    def __init__(self, settings: AccessSettings, brokers: BrokerRequests, tasks: TaskOwner) -> None:
        self._brokers = brokers
        self._tasks = tasks
        self._is_apache = False
        self._has_read = False
        self.current = AuthData()
        self.problem = "the users of the brokers are not known yet"
        """Why what is here may be old, or is missing; empty: nothing is wrong."""
        rules = AuthRules(AuthSettings(is_authorization_enabled=settings.checks_policies), self)
        self.gate = AccessGate(
            rules,
            RequestTable(),
            monotonic_ms=lambda: time.monotonic_ns() // 1_000_000,
            lockout=settings.lockout,
            audit_log=settings.audit_log,
        )
        self._records = RefusalRecords(self.gate, settings.audit_log)

    async def start(self) -> None:
        """Read them, and follow them from now on. That brokers cannot be asked now is logged."""
        await self._look()
        self._tasks.start(self._follow(), "users and policies")
        self._tasks.start(self._records.write_forever(), "access-audit-log")

    async def stop(self) -> None:
        """Write what is not written yet of the refusals."""
        await self._records.write(is_last=True)

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_AT_APACHE_S if self._is_apache and self._has_read else _LOOK_S)
            await self._look()

    async def _look(self) -> None:
        try:
            data = await self._read()
        except KourouError as error:
            problem = f"the users of the brokers cannot be read: {error}"
            if problem != self.problem:
                _log.warning("%s", problem)
            self.problem = problem
            return
        self.problem, self._has_read = "", True
        if data is not None and data != self.current:
            self.current = data
            users, policies = counted(len(data.users), "user"), counted(len(data.acls), "policy", "policies")
            _log.info("%s and %s of the brokers are in force", users, policies)

    async def _read(self) -> AuthData | None:
        """What a broker has; None: what is here."""
        known = self.current.version if self._has_read else DataVersion()
        header = GetAccessRequestHeader(kourou_data_version=encode_body(known).decode())
        command = RemotingCommand.request(RequestCode.GET_KOUROU_ACCESS, header)
        answer = await self._brokers.request(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        self._is_apache = answer is None
        if answer is None:
            return await self._read_from_apache()
        if not answer.body:
            return None
        tables = decode_body(answer.body, AccessTables)
        return AuthData.of(
            UsersFile(tables.data_version, tables.users), AclsFile(tables.data_version, tables.acls)
        )

    async def _read_from_apache(self) -> AuthData:
        users = await self._list(RequestCode.AUTH_LIST_USER, ListUsersRequestHeader())
        acls = await self._list(RequestCode.AUTH_LIST_ACL, ListAclsRequestHeader())
        version = self.current.version
        return AuthData.of(
            UsersFile(version, decode_body(users, list[UserInfo]) if users else []),
            AclsFile(version, decode_body(acls, list[AclInfo]) if acls else []),
        )

    async def _list(self, code: RequestCode, header: ListUsersRequestHeader | ListAclsRequestHeader) -> bytes:
        command = RemotingCommand.request(code, header)
        answer = await self._brokers.request(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        if answer is None:
            raise KourouError(
                "the brokers know no users; they are of RocketMQ 4, or too old: set authenticationEnabled to "
                "false, and the brokers decide alone"
            )
        return answer.body
