"""AccountLogins: logins by accounts of the cluster, with access key and secret key.

A broker says whether the keys are right, by a request that is signed with them. It must refuse the same
request with another secret key: a broker without access control, or one that exempts the console's address,
accepts any keys, and would let every visitor in as any account.

Super users of RocketMQ 5 and admin accounts of RocketMQ 4 are administrators of the console. All others are
operators: what they may read and change is the brokers' decision alone.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from kourou.admin.access import plain_listing
from kourou.admin.session import Admin
from kourou.admin.users import get_user
from kourou.client.core.credentials import Credentials
from kourou.client.core.settings import ClientOptions
from kourou.console.api_errors import ApiError
from kourou.console.endpoints import Role
from kourou.console.refusals import is_about_permission, refusal
from kourou.console.security.logins import Login
from kourou.errors import ClientError, KourouError, RemotingError, ResponseError
from kourou.protocol.codes import RequestCode

_PROBE: Final = RequestCode.GET_BROKER_RUNTIME_INFO
_MAX_BROKERS: Final = 8
"""Each broker has its own accounts."""
_MAX_KEY: Final = 256


class AccountLogins:
    """Accounts of the cluster."""

    wrong: Final = "the cluster does not accept these keys"
    # Not which of these it is: the login page is open to strangers.
    hint: Final = (
        "the account may be unknown or disabled, the secret key wrong, or the console's address locked out "
        "after too many wrong signatures; the audit log of the broker says which"
    )
    at_once: Final = 8
    # Brokers lock out the console's address, for a user after 20 wrong logins a minute, for all after 200:
    # with it all sessions. The console limits guesses before that.
    max_failures: Final = (15, 150)

    renew_s: Final = 60.0

    def __init__(self, client: ClientOptions) -> None:
        self._client = client

    async def check(self, user: str, password: str) -> Login | None:
        """The login of an account. ApiError 403 if no broker checks keys, KourouError if none answers."""
        if not (0 < len(user) <= _MAX_KEY and 0 < len(password) <= _MAX_KEY):
            return None
        credentials = Credentials(user, password)
        async with self._admin(credentials) as admin:
            try:
                masters = await admin.masters()
            except ResponseError as error:
                if refusal(error) is not None:
                    return None
                raise
            is_open = False
            for master in masters[:_MAX_BROKERS]:
                if not await _accepts(admin, master.address):
                    continue
                if await self._refuses_others(user, master.address):
                    return Login(user, await _role(admin, master.address, user), "", credentials)
                is_open = True
        if is_open or not masters:
            raise _not_checked(len(masters))
        return None

    async def renewed(self, login: Login) -> Login | None:
        """The login with its role as it is now; None if every broker that answers refuses its keys. An outage
        ends no login: nothing of the cluster can be read meanwhile."""
        assert login.credentials is not None
        is_refused = False
        async with self._admin(login.credentials) as admin:
            try:
                for master in (await admin.masters())[:_MAX_BROKERS]:
                    with suppress(RemotingError):
                        if await _accepts(admin, master.address):
                            return replace(login, role=await _role(admin, master.address, login.user))
                        is_refused = True
            except ResponseError as error:
                is_refused = refusal(error) is not None
            except ClientError:
                pass
        return None if is_refused else login

    async def _refuses_others(self, user: str, address: str) -> bool:
        """Whether a broker refuses a request that is signed with another secret key."""
        async with self._admin(Credentials(user, secrets.token_urlsafe(24))) as stranger:
            words = await _refusal_at(stranger, address)
        return words is not None and not is_about_permission(words)

    def _admin(self, credentials: Credentials) -> Admin:
        options: ClientOptions = {**self._client, "credentials": credentials}
        return Admin(**options)


def _not_checked(brokers: int) -> ApiError:
    if not brokers:
        return ApiError(
            HTTPStatus.BAD_GATEWAY, "cannot_reach_cluster", "no broker is online that could check the keys"
        )
    return ApiError(
        HTTPStatus.FORBIDDEN,
        "no_access_control",
        "the brokers accept any keys from the console: they have no access control, or exempt its address",
        "switch it on, or take the console's address off the white lists; without access control, start the "
        "console with users of its own instead of --accounts",
    )


async def _accepts(admin: Admin, address: str) -> bool:
    words = await _refusal_at(admin, address)
    return words is None or is_about_permission(words)


async def _refusal_at(admin: Admin, address: str) -> str | None:
    """What access control says to a request of this session; None: nothing."""
    try:
        await admin.call(address, _PROBE)
    except ResponseError as error:
        return refusal(error)
    return None


# -- the role ----------------------------------------------------------------------------------------


async def _role(admin: Admin, address: str, name: str) -> Role:
    """What an account says about itself. Without an answer the role is not administrator."""
    is_administrator = await _is_super(admin, address, name) or await _is_plain_admin(admin, address, name)
    return Role.ADMINISTRATOR if is_administrator else Role.OPERATOR


async def _is_super(admin: Admin, address: str, name: str) -> bool:
    try:
        user = await get_user(admin, address, name)
    except KourouError:
        return False
    return user is not None and (user.user_type or "").lower() == "super"


async def _is_plain_admin(admin: Admin, address: str, name: str) -> bool:
    try:
        found = await plain_listing(admin, address)
    except KourouError:
        return False
    accounts = (found.plain_access_configs if found else None) or ()
    return any(one.access_key == name and one.admin for one in accounts)
