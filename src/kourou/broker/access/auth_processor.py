"""The admin requests of RocketMQ 5's access control: users (3001 to 3005) and their policies (3006 to 3010).

A change is on disk, and acts, when it is answered. Passwords are returned to Super users only: to others who
may list users, RocketMQ returns them too.
Not here: whether the caller may send the request at all (the gate), what a change means (access/auth/).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

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
from kourou.errors import RequestError
from kourou.protocol.bodies import AclInfo, UserInfo, decode_body, encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.acl import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
    DeleteUserRequestHeader,
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
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_CODES: Final = (
    RequestCode.AUTH_CREATE_USER,
    RequestCode.AUTH_UPDATE_USER,
    RequestCode.AUTH_DELETE_USER,
    RequestCode.AUTH_GET_USER,
    RequestCode.AUTH_LIST_USER,
    RequestCode.AUTH_CREATE_ACL,
    RequestCode.AUTH_UPDATE_ACL,
    RequestCode.AUTH_DELETE_ACL,
    RequestCode.AUTH_GET_ACL,
    RequestCode.AUTH_LIST_ACL,
)


class AuthProcessor:
    """Changes users and policies, and shows them. `is_super` says whether the caller of a request, who was
    authenticated, is a Super user."""

    def __init__(
        self,
        *,
        tables: AuthTables,
        is_super: Callable[[Request], bool],
        disk: DiskThreads,
        requests: TaskOwner,
    ) -> None:
        self._tables = tables
        self._is_super = is_super
        self._disk = disk
        self._requests = requests
        # One change at a time: each is made of what the last one left.
        self._changing = asyncio.Lock()

    def processors(self) -> dict[int, Processor]:
        handlers = (
            self.create_user,
            self.update_user,
            self.delete_user,
            self.get_user,
            self.list_users,
            self.create_acl,
            self.update_acl,
            self.delete_acl,
            self.get_acl,
            self.list_acls,
        )
        return dict(zip(_CODES, handlers, strict=True))

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
        """AUTH_GET_USER; a user who is not there is an answer without a body."""
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

    # -- changes ---------------------------------------------------------------------------------

    def _change(self, request: Request, change: Callable[[AuthData], AuthData]) -> None:
        run_request(self._requests, request, self._changed(request, change))

    async def _changed(self, request: Request, change: Callable[[AuthData], AuthData]) -> None:
        async with self._changing:
            data = change(self._tables.current)
            if not data.same_as(self._tables.current):
                data = self._tables.next(data)
                try:
                    await self._disk.run(self._tables.persist, data)
                except OSError as error:
                    raise RequestError(
                        ResponseCode.SYSTEM_ERROR,
                        f"nothing was changed, the file cannot be written: {error.strerror or error}",
                    ) from error
                self._tables.adopt(data)
        request.reply()
