"""NamesrvAccess: permissions to register brokers, administer a name server, and see its routes.

Apache's name servers permit all of that to every client. Here administrators alone register, unregister and
administer; brokers sign with `innerClientAuthenticationCredentials`. Brokers that cannot sign are let in by
the address that they connect from, whatever their request says. Routes are open, or for accounts only.

The accounts are read before the server listens, and looked at each 5 s: those of RocketMQ 4 in
`plain_acl.yml`, those of RocketMQ 5 in the configuration and in the files of a broker, which nothing is
written to.
Not here: what is checked (access/gate.py, access/requests.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from kourou.access.auth.rules import AuthRules
from kourou.access.auth.seeding import with_configured_users
from kourou.access.auth.settings import AuthSettings, Credentials
from kourou.access.auth.tables import ACLS_FILE, USERS_FILE, AuthTables
from kourou.access.from_config import audit_log_of, lockout_of
from kourou.access.gate import AccessGate
from kourou.access.model import AccessRules
from kourou.access.plain.accounts_file import AccountFiles
from kourou.access.plain.rules import PlainRules
from kourou.access.requests import RequestTable
from kourou.clock import wall_ms
from kourou.config.namesrv import NamesrvConfig
from kourou.config.networks import Networks
from kourou.errors import ConfigError
from kourou.protocol.codes import RequestCode
from kourou.transport.addresses import parse_address
from kourou.transport.request import Request

_log = logging.getLogger(__name__)

RELOAD_S: Final = 5.0
"""How often files are looked at, as RocketMQ does."""
AUDIT_S: Final = 1.0
"""How often lines of the audit log are written."""

ROUTE_CODES: Final = frozenset({RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO})
"""What clients ask for, and brokers that look for each other."""

BROKER_CODES: Final = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
    }
)
"""What brokers send: all that a broker may that is let in by its address."""


class Accounts(Protocol):
    """The accounts of one version of RocketMQ."""

    @property
    def rules(self) -> AccessRules:
        """The decisions by these accounts."""
        ...

    def load(self) -> None:
        """Read them, at the start. ConfigError. May wait for the disk."""
        ...

    def reload_if_changed(self) -> bool:
        """Read them again if their files have changed; what cannot be read changes nothing. May wait for the
        disk."""
        ...


class FollowedUsers:
    """Users and policies of RocketMQ 5, from the configuration and from files that a broker may write."""

    def __init__(self, config: NamesrvConfig) -> None:
        self._settings = AuthSettings(
            init_user=Credentials.parse("initAuthenticationUser", config.init_authentication_user),
            inner_credentials=Credentials.parse(
                "innerClientAuthenticationCredentials", config.inner_client_authentication_credentials
            ),
        )
        folder = Path(config.access_users_folder or Path(config.rocketmq_home or ".") / "namesrv")
        self._paths = (folder / USERS_FILE, folder / ACLS_FILE)
        self._tables = AuthTables(folder, now_ms=lambda: 0)
        self._seen: object = None
        self.rules = AuthRules(self._settings, self._tables)

    def load(self) -> None:
        self._seen = self._fingerprint()
        # In one step: requests are decided meanwhile, those of brokers by the configured users.
        self._tables.adopt(with_configured_users(self._tables.read(), self._settings))
        if not self._tables.current.users:
            _log.warning(
                "the name server knows no users, so every request but those for routes is refused: set "
                "initAuthenticationUser or innerClientAuthenticationCredentials"
            )

    def reload_if_changed(self) -> bool:
        if self._fingerprint() == self._seen:
            return False
        try:
            self.load()
        except ConfigError as error:
            _log.error("users and policies stay as they were: %s", error)
            return False
        _log.info("users and policies are read again: %d users", len(self._tables.current.users))
        return True

    def _fingerprint(self) -> object:
        return tuple(_stat(path) for path in self._paths)


class NamesrvAccess:
    """The check of every request of one name server."""

    def __init__(
        self,
        config: NamesrvConfig,
        *,
        monotonic_ms: Callable[[], int],
        now_ms: Callable[[], int] = wall_ms,
    ) -> None:
        if config.rocketmq_home is None:
            raise ConfigError(
                "rocketmqHome is not set: with access control it is the folder of accounts and audit log"
            )
        home = Path(config.rocketmq_home)
        self._accounts: Accounts = (
            PlainRulesOf(AccountFiles.of_home(home)) if config.acl_enable else FollowedUsers(config)
        )
        self._open_codes = frozenset() if config.access_routes_need_signature else ROUTE_CODES
        self._allowed_brokers = Networks.parse(config.access_allowed_brokers)
        self._audit_log = audit_log_of(config, home, "audit_namesrv.log", now_ms)
        self.gate = AccessGate(
            self._accounts.rules,
            RequestTable(),
            monotonic_ms=monotonic_ms,
            lockout=lockout_of(config),
            audit_log=self._audit_log,
        )
        self.load = self._accounts.load
        self.reload_if_changed = self._accounts.reload_if_changed

    def check(self, request: Request) -> None:
        """Admit a request. AccessRefusedError: it is refused."""
        if request.code in self._open_codes or self._is_allowed_broker(request):
            return
        self.gate.check(request)

    async def follow_files(self) -> None:
        """Look at the accounts' files again and again."""
        while True:
            await asyncio.sleep(RELOAD_S)
            await asyncio.to_thread(self.reload_if_changed)

    async def write_audit_log(self) -> None:
        """Write what has happened again and again."""
        while self._audit_log is not None:
            await asyncio.sleep(AUDIT_S)
            if lines := self._audit_log.take():
                await asyncio.to_thread(self._audit_log.write, lines)

    async def stop(self) -> None:
        """Write the last lines of the audit log."""
        if self._audit_log is not None:
            await asyncio.to_thread(self._audit_log.write, self._audit_log.take(is_last=True))

    def _is_allowed_broker(self, request: Request) -> bool:
        if request.code not in BROKER_CODES or not self._allowed_brokers.networks:
            return False
        return parse_address(request.connection.remote_address)[0] in self._allowed_brokers


class PlainRulesOf:
    """The accounts of RocketMQ 4."""

    def __init__(self, files: AccountFiles) -> None:
        self.rules = PlainRules(files)
        self.load = self.rules.load
        self.reload_if_changed = self.rules.reload_if_changed


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
