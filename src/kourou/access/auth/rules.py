"""AuthRules: the user of a request, and whether it is permitted, by the users and policies of RocketMQ 5.

Both are configured apart: authentication asks for a user, authorization for permissions. A refusal has
RocketMQ's words and names user, resource and address. What was decided about a user and a need is kept until
a user or policy changes, so that changes act at once.

Stricter than Apache: a request code of `authenticationWhitelist` needs no signature only where no permission
is needed: without a signature the user is only claimed. Super users alone may send requests that only
administrators may, with authorization or without.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NoReturn, Protocol

from kourou.access.auth.data import AuthData
from kourou.access.auth.evaluation import (
    Candidates,
    candidates_of,
    deciding_entry,
    is_allowed_everywhere,
)
from kourou.access.auth.model import Decision, User, subject_of
from kourou.access.auth.settings import AuthSettings
from kourou.access.auth.sources import address_of
from kourou.access.model import (
    AccessCall,
    AccessRefusedError,
    Account,
    Action,
    Need,
    Needs,
    RefusalKind,
    Resource,
    ResourceType,
)
from kourou.access.signatures import is_signed_by
from kourou.protocol.codes import ResponseCode
from kourou.protocol.names import RETRY_GROUP_TOPIC_PREFIX

MAX_DECISIONS: Final = 10_000
"""Remembered at a time: some megabytes, and more than topics and users of most brokers."""

_PUB: Final = frozenset({Action.PUB})


class Tables(Protocol):
    """Where users and policies are (tables.py, or a copy of those of a broker)."""

    @property
    def current(self) -> AuthData:
        """Those that count now; another object after each change."""
        ...


class AuthRules:
    """The rules of one broker; `tables` change, `settings` do not."""

    def __init__(self, settings: AuthSettings, tables: Tables) -> None:
        self._settings = settings
        self._tables = tables
        self._decisions: OrderedDict[tuple[str, Need], Candidates] = OrderedDict()
        self._accounts: dict[str, Account] = {}
        self._decided_for: AuthData = tables.current

    @property
    def version(self) -> object:
        """Users and policies: a change makes others."""
        return self._tables.current

    def check(self, call: AccessCall) -> Account | None:
        """The account of the caller; None: a request that needs no user. AccessRefusedError."""
        if self._is_exempt(call):
            return None
        user = self._authenticate(call)
        if call.code not in self._settings.authorization_whitelist:
            self._authorize(user, call)
        return self._account(user)

    def sender(self, access_key: str, topic: str) -> Account | None:
        """The account that may send to `topic` from every address; None: look at each request."""
        user = self._data().users.get(access_key)
        # A retry topic stands for its group.
        if user is None or not user.is_enabled or topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return None
        if self._settings.is_authorization_enabled and not user.is_super:
            need = Need(Resource(ResourceType.TOPIC, topic), _PUB)
            if not is_allowed_everywhere(self._candidates(user, need)):
                return None
        return self._account(user)

    def has_everywhere(self, access_key: str, needs: Needs) -> bool:
        """Whether a user has all of them from every address."""
        user = self._data().users.get(access_key)
        if user is None or not user.is_enabled:
            return False
        if user.is_super or not self._settings.is_authorization_enabled:
            return True
        return all(is_allowed_everywhere(self._candidates(user, need)) for need in needs.auth)

    def _is_exempt(self, call: AccessCall) -> bool:
        if not self._settings.is_authentication_enabled:
            return True
        if call.code not in self._settings.authentication_whitelist:
            return False
        if call.code in self._settings.authorization_whitelist:
            return True
        asks = call.needs.is_admin_only or (self._settings.is_authorization_enabled and call.needs.auth)
        return not asks

    # -- authentication --------------------------------------------------------------------------

    def _authenticate(self, call: AccessCall) -> User:
        certified = call.certificate_user
        name = certified or call.access_key
        if not name:
            _refuse(RefusalKind.NO_CREDENTIALS, "username cannot be null.")
        if certified and call.access_key not in ("", certified):
            _refuse(
                RefusalKind.WRONG_SIGNATURE,
                f"User:{call.access_key} is not the user of the client's certificate.",
                call.access_key,
            )
        user = self._data().users.get(name)
        if user is None:
            _refuse(RefusalKind.UNKNOWN_USER, f"User:{name} is not found.", name)
        if not user.is_enabled:
            _refuse(RefusalKind.DISABLED_USER, f"User:{name} is disabled.", name)
        if not certified and not is_signed_by(call, user.password):
            _refuse(RefusalKind.WRONG_SIGNATURE, "check signature failed.", name)
        return user

    # -- authorization ---------------------------------------------------------------------------

    def _authorize(self, user: User, call: AccessCall) -> None:
        if user.is_super:
            return
        if call.needs.is_admin_only:
            _refuse(
                RefusalKind.NO_PERMISSION,
                f"{subject_of(user.name)} has no permission for request code {call.code} from "
                f"{call.address}, only super users have.",
                user.name,
            )
        if self._settings.is_authorization_enabled:
            for need in call.needs.auth:
                self._check_need(user, need, call.address)

    def _check_need(self, user: User, need: Need, address: str) -> None:
        candidates = self._candidates(user, need)
        # The usual case first: an address is not even read.
        entry = (
            candidates[0]
            if candidates and not candidates[0].sources
            else deciding_entry(candidates, address_of(address))
        )
        if entry is None or entry.decision is Decision.DENY:
            reason = "no matched policies." if entry is None else "the decision is deny."
            _refuse(
                RefusalKind.NO_PERMISSION,
                f"{subject_of(user.name)} has no permission to access {need.resource} from {address}, "
                f"{reason}",
                user.name,
            )

    def _candidates(self, user: User, need: Need) -> Candidates:
        key = (user.name, need)
        found = self._decisions.get(key)
        if found is None:
            acl = self._data().acls.get(user.name)
            found = () if acl is None else candidates_of(acl, need)
            if len(self._decisions) >= MAX_DECISIONS:
                self._decisions.popitem(last=False)
            self._decisions[key] = found
        return found

    # -- what is remembered ----------------------------------------------------------------------

    def _data(self) -> AuthData:
        """Users and policies now. If they are others than before, what was remembered is dropped."""
        data = self._tables.current
        if data is not self._decided_for:
            self._decisions.clear()
            self._accounts.clear()
            self._decided_for = data
        return data

    def _account(self, user: User) -> Account:
        account = self._accounts.get(user.name)
        if account is None:
            account = Account(name=user.name, secret_key=user.password, is_admin=user.is_super)
            self._accounts[user.name] = account
        return account


def _refuse(kind: RefusalKind, remark: str, user: str = "") -> NoReturn:
    raise AccessRefusedError(kind, ResponseCode.NO_PERMISSION, remark, user=user)
