"""Accounts of RocketMQ 4 as users and policies of RocketMQ 5 (`migrateAuthFromV1Enabled`).

Each account becomes a user, Super if it is an administrator's. What is listed for topics and groups becomes
Custom entries, the defaults become Default ones of all topics and groups; DENY denies everything. An account
whose name a user has already is left alone, so that nothing is undone at the next start.

Stricter than Apache, which allows everything for an unknown word of a permission: that denies
here, as it does in RocketMQ 4. White lists of addresses have no counterpart and are dropped, as in Apache.
Not here: reading the files (access/plain/).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kourou.access.auth.data import AuthData
from kourou.access.auth.infos import checked_name, resource_of
from kourou.access.auth.model import Acl, Decision, Entry, PatternKind, ResourcePattern, User, UserType
from kourou.access.model import Action, ResourceType
from kourou.access.plain.accounts import AccountTable, PlainAccount
from kourou.access.plain.permissions import Permission
from kourou.errors import RequestError
from kourou.protocol.names import RETRY_GROUP_TOPIC_PREFIX, is_retry_topic

_log = logging.getLogger(__name__)


def with_accounts(data: AuthData, table: AccountTable) -> AuthData:
    """The same with the accounts of RocketMQ 4 that are not among the users."""
    if table.white:
        _log.warning(
            "migrateAuthFromV1Enabled: %d patterns of globalWhiteRemoteAddresses are dropped: in RocketMQ 5 "
            "every client needs a user",
            len(table.white),
        )
    for account in table.accounts.values():
        if account.name in data.users:
            continue
        try:
            checked_name(account.name)
        except RequestError as error:
            _log.warning("migrateAuthFromV1Enabled: an account of %s is dropped: %s", account.file, error)
            continue
        data = _with_account(data, account)
    return data


def _with_account(data: AuthData, account: PlainAccount) -> AuthData:
    user_type = UserType.SUPER if account.is_admin else UserType.NORMAL
    acl = Acl(account.name, tuple(_listed(account)), tuple(_defaults(account)))
    _log.info("migrateAuthFromV1Enabled: account %s is now a %s user", account.name, user_type.value)
    if account.is_admin and account.listed:
        _log.warning(
            "migrateAuthFromV1Enabled: the permissions of administrator %s do not limit the Super user",
            account.name,
        )
    return data.with_user(User(account.name, account.secret_key, user_type)).with_acl(acl)


def _listed(account: PlainAccount) -> Iterable[Entry]:
    for key, permission in account.listed.items():
        is_group = is_retry_topic(key)
        kind = ResourceType.GROUP if is_group else ResourceType.TOPIC
        name = key.removeprefix(RETRY_GROUP_TOPIC_PREFIX) if is_group else key
        pattern = _literal(kind, name)
        if pattern is None:
            _log.warning(
                "migrateAuthFromV1Enabled: the permission of account %s for %s %r is dropped: there is none "
                "of that name",
                account.name,
                kind.value.lower(),
                name,
            )
        else:
            yield _entry(pattern, permission)


def _literal(kind: ResourceType, name: str) -> ResourcePattern | None:
    """The pattern of one name; None for a name that would be a pattern of several, or none."""
    try:
        pattern = resource_of(f"{kind.value}:{name}")
    except RequestError:
        return None
    return pattern if pattern.kind is PatternKind.LITERAL else None


def _defaults(account: PlainAccount) -> Iterable[Entry]:
    yield _entry(ResourcePattern(ResourceType.TOPIC, PatternKind.ANY), account.default_topic)
    yield _entry(ResourcePattern(ResourceType.GROUP, PatternKind.ANY), account.default_group)


def _entry(pattern: ResourcePattern, permission: Permission) -> Entry:
    if not permission:
        return Entry(resource=pattern, actions=(Action.ALL,), decision=Decision.DENY)
    actions = tuple(action for action in Action if action in permission)
    return Entry(resource=pattern, actions=actions, decision=Decision.ALLOW)
