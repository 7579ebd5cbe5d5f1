"""AuthFollower: a slave's users and policies are those of its master.

Fetched with the other tables, when their version is another one, and stored like a master's: a slave that is
promoted has them. Changes that reach the slave are passed on to the master as they are, with the caller's
signature, and are here when they are answered. An Apache master has no such request: its slaves keep users
and policies of their own, which operators change there, too.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from kourou.access.auth.data import AclsFile, AuthData, UsersFile
from kourou.broker.access.repeated_changes import PASSED_ON
from kourou.errors import KourouError, RequestError, ResponseError
from kourou.protocol.bodies import AccessTables, decode_body, encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.acl import GetAccessRequestHeader
from kourou.protocol.signature import SIGNATURE

if TYPE_CHECKING:
    from kourou.access.auth.tables import AuthTables
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.transport.client import RemotingClient
    from kourou.transport.request import Request

_log = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 3_000
# An Apache master logs a warning for each unknown request.
_ROUNDS_WITHOUT: Final = 60


class AuthFollower:
    """Copies users and policies of the master. `changing` is held by whatever changes the tables."""

    def __init__(
        self, *, tables: AuthTables, client: RemotingClient, disk: DiskThreads, changing: asyncio.Lock
    ) -> None:
        self._tables = tables
        self._client = client
        self._disk = disk
        self._changing = changing
        # Of two copies at a time the older one could be the last to be taken over.
        self._copying = asyncio.Lock()
        self._master: str | None = None
        self._is_apache = False
        self._rounds_left = 0
        self._problem = ""

    async def follow(self, address: str) -> None:
        """Copy what the master at `address` has, if it has anything else. Problems are logged: what is here
        remains in force."""
        if address != self._master:
            self._master, self._is_apache, self._rounds_left = address, False, 0
        if self._rounds_left:
            self._rounds_left -= 1
            return
        try:
            async with self._copying:
                await self._copy(address)
        except (KourouError, OSError) as error:
            if str(error) != self._problem:
                _log.warning("users and policies of the master at %s are not copied: %s", address, error)
            self._problem = str(error)
        else:
            if self._problem:
                _log.info("users and policies of the master at %s are copied again", address)
            self._problem = ""

    async def _copy(self, address: str) -> None:
        known = encode_body(self._tables.current.version).decode()
        header = GetAccessRequestHeader(kourou_data_version=known)
        command = RemotingCommand.request(RequestCode.GET_KOUROU_ACCESS, header)
        answer = await self._client.call(address, command, _TIMEOUT_MS)
        self._is_apache = answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        if self._is_apache:
            self._rounds_left = _ROUNDS_WITHOUT
            return
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark or "", address)
        if not answer.body:
            return
        copied = decode_body(answer.body, AccessTables)
        version = copied.data_version
        data = AuthData.of(UsersFile(version, copied.users), AclsFile(version, copied.acls))
        async with self._changing:
            await self._disk.run(self._tables.persist, data)
            self._tables.adopt(data)
        _log.info("%d users and %d policies copied from the master", len(data.users), len(data.acls))

    async def pass_on(self, request: Request) -> RemotingCommand | None:
        """Let the master do what a request changes; its response. None: the master is Apache's, and the
        change is made here. RequestError: it cannot be asked."""
        if self._is_apache:
            return None
        if self._master is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                "this broker is a slave, whose users and policies are its master's; it has not found "
                "the master yet",
            )
        if SIGNATURE not in request.ext_fields:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                "this broker is a slave, whose users and policies are its master's, and the request is not "
                f"signed, so that it cannot be passed on; change them at {self._master}",
            )
        master = self._master
        command = RemotingCommand(
            request.code, ext_fields=request.ext_fields, body=request.body, remark=PASSED_ON
        )
        try:
            # Not by the client, which would sign it with this broker's account.
            connection = await self._client.connection(master)
            answer = await connection.call(command, _TIMEOUT_MS)
        except KourouError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"this broker is a slave, whose users and policies are its master's, and the master cannot "
                f"be asked: {error}",
            ) from error
        await self.follow(master)
        return answer
