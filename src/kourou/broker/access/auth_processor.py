"""The admin requests of RocketMQ 5's access control: users (3001 to 3005) and their policies (3006 to 3010).

A change is on disk, and acts, when it is answered; at a slave it is its master's (auth_following.py).
Passwords are returned to Super users only; RocketMQ returns them to every user that may list users.
Not here: whether the caller may send the request at all (the gate), what a change means (access/auth/).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kourou.access.auth.changes import (
    acl_of_subject,
    acls_like,
    change_acl,
    create_user,
    delete_acl,
    delete_user,
    update_user,
    users_like,
)
from kourou.access.auth.infos import checked_name
from kourou.broker.access.repeated_changes import RepeatedChanges
from kourou.errors import RequestError
from kourou.protocol.bodies import AccessTables, AclInfo, DataVersion, UserInfo, decode_body, encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.acl import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
    DeleteUserRequestHeader,
    GetAccessRequestHeader,
    GetAclRequestHeader,
    GetUserRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UpdateAclRequestHeader,
    UpdateUserRequestHeader,
)
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.access.auth.data import AuthData
    from kourou.access.auth.tables import AuthTables
    from kourou.broker.access.auth_following import AuthFollower
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)


class AuditSecrets(Protocol):
    """Audits a request whose response may have secrets."""

    def __call__(self, request: Request, *, are_shown: bool) -> None:
        """Before the response: whether it has some."""
        ...


class AuthProcessor:
    """Changes users and policies, and shows them. `is_super` says whether the authenticated user
    of a request is a Super user. `changing` is held by whatever changes the tables: each change is made of
    what the last one left. `audit_secrets` is called before all users are shown to a slave, or are not as it
    has them."""

    def __init__(
        self,
        *,
        tables: AuthTables,
        is_super: Callable[[Request], bool],
        disk: DiskThreads,
        requests: TaskOwner,
        changing: asyncio.Lock,
        audit_secrets: AuditSecrets,
        follower: Callable[[], AuthFollower | None] = lambda: None,
    ) -> None:
        self._tables = tables
        self._is_super = is_super
        self._disk = disk
        self._requests = requests
        self._changing = changing
        self._audit_secrets = audit_secrets
        self._follower = follower
        self._repeated = RepeatedChanges(asyncio.get_running_loop().time)

    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_GET_USER: self.get_user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_CREATE_ACL: self.create_acl,
            RequestCode.AUTH_UPDATE_ACL: self.update_acl,
            RequestCode.AUTH_DELETE_ACL: self.delete_acl,
            RequestCode.AUTH_GET_ACL: self.get_acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
            RequestCode.GET_KOUROU_ACCESS: self.get_tables,
        }

    # -- users -----------------------------------------------------------------------------------

    def create_user(self, request: Request) -> None:
        """AUTH_CREATE_USER."""
        name = request.header(CreateUserRequestHeader).username
        info, by_super = decode_body(request.body, UserInfo), self._is_super(request)
        self._change(request, lambda data: create_user(data, name, info, by_super=by_super))

    def update_user(self, request: Request) -> None:
        """AUTH_UPDATE_USER."""
        name = request.header(UpdateUserRequestHeader).username
        info, by_super = decode_body(request.body, UserInfo), self._is_super(request)
        self._change(request, lambda data: update_user(data, name, info, by_super=by_super))

    def delete_user(self, request: Request) -> None:
        """AUTH_DELETE_USER."""
        name = request.header(DeleteUserRequestHeader).username
        by_super = self._is_super(request)
        self._change(request, lambda data: delete_user(data, name, by_super=by_super))

    def get_user(self, request: Request) -> None:
        """AUTH_GET_USER; for an unknown user the answer has no body."""
        name = checked_name(request.header(GetUserRequestHeader).username)
        user = self._tables.current.users.get(name)
        request.reply(
            body=b"" if user is None else encode_body(user.info(with_password=self._is_super(request)))
        )

    def list_users(self, request: Request) -> None:
        """AUTH_LIST_USER."""
        text = request.header(ListUsersRequestHeader).filter
        with_password = self._is_super(request)
        found = [user.info(with_password=with_password) for user in users_like(self._tables.current, text)]
        request.reply(body=encode_body(found) if found else b"")

    # -- policies --------------------------------------------------------------------------------

    def create_acl(self, request: Request) -> None:
        """AUTH_CREATE_ACL; as in RocketMQ, entries are added to those that are there."""
        self._change_acl(request, request.header(CreateAclRequestHeader).subject)

    def update_acl(self, request: Request) -> None:
        """AUTH_UPDATE_ACL, the same."""
        self._change_acl(request, request.header(UpdateAclRequestHeader).subject)

    def _change_acl(self, request: Request, subject: str | None) -> None:
        info = decode_body(request.body, AclInfo)
        self._change(request, lambda data: change_acl(data, subject, info))

    def delete_acl(self, request: Request) -> None:
        """AUTH_DELETE_ACL."""
        header = request.header(DeleteAclRequestHeader)
        self._change(
            request, lambda data: delete_acl(data, header.subject, header.policy_type, header.resource)
        )

    def get_acl(self, request: Request) -> None:
        """AUTH_GET_ACL; no policies are an answer without a body."""
        acl = acl_of_subject(self._tables.current, request.header(GetAclRequestHeader).subject)
        request.reply(body=b"" if acl is None else encode_body(acl.info()))

    def list_acls(self, request: Request) -> None:
        """AUTH_LIST_ACL."""
        header = request.header(ListAclsRequestHeader)
        acls = acls_like(self._tables.current, header.subject_filter, header.resource_filter)
        request.reply(body=encode_body([acl.info() for acl in acls]) if acls else b"")

    # -- slaves ----------------------------------------------------------------------------------

    def get_tables(self, request: Request) -> None:
        """GET_KOUROU_ACCESS: everything, if the slave has another version."""
        known = request.header(GetAccessRequestHeader).kourou_data_version or ""
        data = self._tables.current
        has_all = known != "" and decode_body(known.encode(), DataVersion) == data.version
        self._audit_secrets(request, are_shown=not has_all)
        if has_all:
            request.reply()
            return
        tables = AccessTables(data.version, data.users_file().users, data.acls_file().acls)
        request.reply(body=encode_body(tables))

    # -- changes ---------------------------------------------------------------------------------

    def _change(self, request: Request, change: Callable[[AuthData], AuthData]) -> None:
        run_request(self._requests, request, self._changed(request, change))

    async def _changed(self, request: Request, change: Callable[[AuthData], AuthData]) -> None:
        follower = self._follower()
        answer = None if follower is None else await follower.pass_on(request)
        if answer is not None:
            request.reply(code=answer.code, remark=answer.remark)
            return
        async with self._changing:
            if not self._repeated.is_repeated(request):
                await self._adopt(change(self._tables.current))
                self._repeated.done(request)
        request.reply()

    async def _adopt(self, data: AuthData) -> None:
        if data.same_as(self._tables.current):
            return
        data = self._tables.next(data)
        try:
            await self._disk.run(self._tables.persist, data)
        except OSError as error:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"nothing was changed, the file cannot be written: {error.strerror or error}",
            ) from error
        self._tables.adopt(data)
