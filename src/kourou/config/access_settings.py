"""The keys of access control: each is declared here and nowhere else. No request can change any of them.

RocketMQ's keys come first, Kourou's own begin with `access`. Every `accessOpen…` key opens again what is
closed here and open in RocketMQ (access/openings.py). The account of a server's own requests:
inner_credentials.py. What the keys mean together: docs/security.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Final

from kourou.config.keys import BOOL, INT, LONG, STRING, Key, keys, setting

_SECTION: Final = "Access control"
_access = partial(setting, _SECTION, live=False, protected=True)
_own = partial(setting, _SECTION, live=False, protected=True, shown=False)
_lockout = partial(setting, "Access control: wrong logins", live=False, protected=True, shown=False)
_gate = partial(setting, "Access control: limits", live=False, protected=True, shown=False)
_audit = partial(setting, "Access control: audit log", live=False, protected=True, shown=False)

_AUTHENTICATION_PACKAGE: Final = "org.apache.rocketmq.auth.authentication."
_AUTHORIZATION_PACKAGE: Final = "org.apache.rocketmq.auth.authorization."
_ONE_PROVIDER: Final = "users and policies are kept in the folder `config` of the store"
_NO_CACHE: Final = "users and policies are in memory; a change takes effect at once"


def _codes(text: str) -> str | None:
    """Request codes, separated by commas."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    return (
        None if all(word.isascii() and word.isdecimal() for word in words) else "request codes, as in 34,105"
    )


def user_problem(text: str) -> str | None:
    """A user with a password, as JSON."""
    try:
        given = json.loads(text) if text else {"username": "none", "password": "none"}
    except ValueError:
        given = None
    if isinstance(given, dict) and all(
        isinstance(given.get(name), str) and given[name].strip() for name in ("username", "password")
    ):
        return None
    return '{"username":"…","password":"…"}, neither of them empty'


def _class(name: str, package: str, *simple_names: str) -> Key:
    """A key for a Java class: Apache's own are accepted. Another one would promise what is not there."""
    known = {package + simple_name for simple_name in simple_names}

    def check(text: str) -> str | None:
        return None if not text or text in known else " or ".join(sorted(known))

    return Key(name, STRING, "", _ONE_PROVIDER, protected=True, shown=False, check=check)


ACCESS_KEYS_WITHOUT_EFFECT: Final = (
    _class("authenticationProvider", _AUTHENTICATION_PACKAGE, "provider.DefaultAuthenticationProvider"),
    _class(
        "authenticationMetadataProvider",
        _AUTHENTICATION_PACKAGE,
        "provider.LocalAuthenticationMetadataProvider",
    ),
    _class(
        "authenticationStrategy",
        _AUTHENTICATION_PACKAGE,
        "strategy.StatelessAuthenticationStrategy",
        "strategy.StatefulAuthenticationStrategy",
    ),
    _class("authorizationProvider", _AUTHORIZATION_PACKAGE, "provider.DefaultAuthorizationProvider"),
    _class(
        "authorizationMetadataProvider",
        _AUTHORIZATION_PACKAGE,
        "provider.LocalAuthorizationMetadataProvider",
    ),
    _class(
        "authorizationStrategy",
        _AUTHORIZATION_PACKAGE,
        "strategy.StatelessAuthorizationStrategy",
        "strategy.StatefulAuthorizationStrategy",
    ),
    *keys(
        INT,
        _NO_CACHE,
        userCacheMaxNum=1_000,
        userCacheExpiredSecond=600,
        userCacheRefreshSecond=60,
        aclCacheMaxNum=1_000,
        aclCacheExpiredSecond=600,
        aclCacheRefreshSecond=60,
        statefulAuthenticationCacheMaxNum=10_000,
        statefulAuthenticationCacheExpiredSecond=60,
        statefulAuthorizationCacheMaxNum=10_000,
        statefulAuthorizationCacheExpiredSecond=60,
    ),
)


# The methods are generated once, for each component's class: a start should be short.
@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class LockoutSettings:
    """Wrong logins, of whatever checks them."""

    access_lockout_attempts: int = _lockout(
        "accessLockoutAttempts",
        INT,
        20,
        "After so many requests with unknown users or wrong signatures within `accessLockoutWindow` an "
        "address is locked out: its requests are refused without a look at their signatures. Of IPv6 the "
        "first 64 bits count. 0: never.",
        low=0,
    )
    access_lockout_window: int = _lockout(
        "accessLockoutWindow", LONG, 60_000, "Over which time wrong logins are counted, in ms.", low=1
    )
    access_lockout_time: int = _lockout(
        "accessLockoutTime", LONG, 60_000, "How long an address is locked out, in ms.", low=1
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class AuditLogSettings:
    """The audit log, of brokers, name servers and proxies."""

    access_audit_log_enable: bool = _audit(
        "accessAuditLogEnable",
        BOOL,
        True,
        "With access control: write a line of JSON for each refusal and each administrative request.",
    )
    access_audit_log_path: str | None = _audit(
        "accessAuditLogPath",
        STRING,
        None,
        "That file; `audit_broker_`, name and id of the broker, and `.log` in the folder `logs` of the home "
        "folder if not set, of a name server `audit_namesrv.log`, of a proxy in a process of its own "
        "`audit_proxy.log`.",
    )
    access_audit_log_file_size: int = _audit(
        "accessAuditLogFileSize",
        LONG,
        104_857_600,
        "At which size a new file of the audit log begins, in bytes.",
        low=4_096,
    )
    access_audit_log_files: int = _audit(
        "accessAuditLogFiles", INT, 10, "How many older files of it are kept.", low=0, high=10_000
    )
    access_audit_log_interval: int = _audit(
        "accessAuditLogInterval",
        LONG,
        10_000,
        "Refusals of the same kind, user, address and request within this time, in ms, become one line with "
        "their number.",
        low=1,
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class AccessGateSettings(AuditLogSettings, LockoutSettings):
    """Wrong logins, limits and the audit log, of brokers and name servers."""

    access_limits_path: str | None = _gate(
        "accessLimitsPath",
        STRING,
        None,
        "The file with limits of accounts, followed while the server runs ([security.md](security.md)); "
        "`conf/limits.json` in the home folder if not set. Without the file there are no limits.",
    )


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class AccessSettings(AccessGateSettings):
    """Access control of a broker."""

    acl_enable: bool = _access(
        "aclEnable",
        BOOL,
        False,
        "Access control of RocketMQ 4: accounts of `conf/plain_acl.yml` and `conf/acl/` in the home folder.",
        important=True,
    )
    authentication_enabled: bool = _own(
        "authenticationEnabled",
        BOOL,
        False,
        "Access control of RocketMQ 5: requests need the signature of a user.",
        important=True,
    )
    authorization_enabled: bool = _own(
        "authorizationEnabled",
        BOOL,
        False,
        "Users need permissions, too; with `authenticationEnabled` only.",
        important=True,
    )
    authentication_whitelist: str = _own(
        "authenticationWhitelist",
        STRING,
        "",
        "Request codes that need no signature, separated by commas; where a permission is needed, they need "
        "one all the same.",
        check=_codes,
    )
    authorization_whitelist: str = _own(
        "authorizationWhitelist",
        STRING,
        "",
        "Request codes that every user may send, separated by commas.",
        check=_codes,
    )
    init_authentication_user: str = _own(
        "initAuthenticationUser",
        STRING,
        "",
        'A user `{"username":"…","password":"…"}`, made as Super user if it is not there. Never shown.',
        secret=True,
        check=user_problem,
    )
    migrate_auth_from_v1_enabled: bool = _own(
        "migrateAuthFromV1Enabled",
        BOOL,
        False,
        "At the start, make users and policies of the accounts of `plain_acl.yml` that are not there yet.",
    )
    access_open_acl_admin: bool = _own(
        "accessOpenAclAdmin",
        BOOL,
        False,
        "With `aclEnable`: any account reads and changes all accounts, as in RocketMQ 4.",
    )
    access_open_batches: bool = _own(
        "accessOpenBatches",
        BOOL,
        False,
        "With `aclEnable`: batches go to any topic, as in RocketMQ 4.",
    )
    access_open_config: bool = _own(
        "accessOpenConfig",
        BOOL,
        False,
        "Any account reads the configuration of the broker, and with users of RocketMQ 5 changes it, as in "
        "RocketMQ. Secrets are never shown.",
    )
    access_open_management: bool = _own(
        "accessOpenManagement",
        BOOL,
        False,
        "Any account may send the requests that RocketMQ does not check, such as those for the lists of "
        "topics and groups.",
    )
    access_open_replies: bool = _own(
        "accessOpenReplies",
        BOOL,
        False,
        "Replies of request and reply need no permission for the reply topic, as in RocketMQ.",
    )
    access_open_records: bool = _own(
        "accessOpenRecords",
        BOOL,
        False,
        "Messages are read, sent back and committed by offset without a check of their topic, and read from "
        "the topics where messages of all topics wait, as in RocketMQ.",
    )


def access_problem(*, acl: bool, authentication: bool, authorization: bool) -> str | None:
    """Why these do not go together; None if they do."""
    if acl and (authentication or authorization):
        other = "authenticationEnabled" if authentication else "authorizationEnabled"
        return (
            f"aclEnable=true and {other}=true exclude each other: choose the accounts of RocketMQ 4 or the "
            "users of RocketMQ 5 (migrateAuthFromV1Enabled=true takes the accounts over)"
        )
    if authorization and not authentication:
        return (
            "authorizationEnabled=true needs authenticationEnabled=true: without it every client could claim "
            "to be any user"
        )
    return None
