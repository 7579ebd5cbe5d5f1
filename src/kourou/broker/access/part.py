"""AccessPart: access control in a broker, from its start to its stop.

The accounts are read before the broker serves, and followed while it runs: those of `plain_acl.yml` by a
look at the files each 5 s, users and policies by the requests that change them. Whatever was decided before a
change is decided anew, also of pulls that are held. Without access control there is no such part.
Not here: what is checked (access/gate.py), the admin requests (auth_processor.py, plain_processor.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from kourou.access.auth.rules import AuthRules
from kourou.access.auth.seeding import with_configured_users
from kourou.access.auth.settings import AuthSettings, Credentials, parse_whitelist
from kourou.access.auth.tables import AuthTables
from kourou.access.gate import AccessGate
from kourou.access.lockout import Lockout
from kourou.access.openings import Opening
from kourou.access.plain.accounts_file import AccountFiles
from kourou.access.plain.rules import PlainRules
from kourou.access.requests import RequestTable
from kourou.broker.access.auth_processor import AuthProcessor
from kourou.broker.admission import RequestCheck
from kourou.broker.part import BrokerPart, Handler, processors_of
from kourou.broker.settings import store_root
from kourou.config.access_settings import AccessSettings
from kourou.config.broker import BrokerConfig
from kourou.config.keys import settings_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from kourou.access.model import AccessRules
    from kourou.broker.admission import Admission
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.transport.request import Processor
    from kourou.transport.tasks import TaskOwner

RELOAD_S: Final = 5.0
"""How often files are looked at, as RocketMQ does."""
_log = logging.getLogger(__name__)


class Accounts(Protocol):
    """The accounts of one version of RocketMQ."""

    @property
    def rules(self) -> AccessRules:
        """Who may do what."""
        ...

    def load(self) -> None:
        """Read them, at the start. ConfigError. May wait for the disk."""
        ...

    def reload_if_changed(self) -> bool:
        """Read them again if their files have changed. True: others are in force. May wait for the disk."""
        ...

    def handlers(self, gate: AccessGate) -> list[Handler]:
        """The admin requests."""
        ...


class PlainAccounts:
    """Those of RocketMQ 4."""

    def __init__(self, config: BrokerConfig) -> None:
        home = Path(config.rocketmq_home) if config.rocketmq_home else store_root(config)
        self.rules = PlainRules(AccountFiles.of_home(home))
        self.load = self.rules.load
        self.reload_if_changed = self.rules.reload_if_changed

    def handlers(self, gate: AccessGate) -> list[Handler]:
        return []


class AuthAccounts:
    """Those of RocketMQ 5."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: DiskThreads,
        requests: TaskOwner,
        now_ms: Callable[[], int],
        on_change: Callable[[], None],
    ) -> None:
        self._settings = auth_settings(config)
        self._tables = AuthTables(store_root(config) / "config", now_ms)
        self._tables.on_change.append(on_change)
        self._disk = disk
        self._requests = requests
        self.rules = AuthRules(self._settings, self._tables)

    def load(self) -> None:
        self._tables.load()
        self._tables.replace(with_configured_users(self._tables.current, self._settings))

    def reload_if_changed(self) -> bool:
        return False

    def handlers(self, gate: AccessGate) -> list[Handler]:
        return [
            AuthProcessor(
                tables=self._tables, is_super=gate.is_administrator, disk=self._disk, requests=self._requests
            )
        ]


class AccessPart(BrokerPart):
    """The part of a broker with access control. Its check is in force from the beginning."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        accounts: Accounts,
        admission: Admission,
        disk: DiskThreads,
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._accounts = accounts
        self._admission = admission
        self._disk = disk
        self.gate = AccessGate(
            accounts.rules,
            RequestTable(cluster=config.broker_cluster_name, openings=openings_of(config)),
            monotonic_ms=monotonic_ms,
            lockout=lockout_of(config),
        )
        self._handlers = accounts.handlers(self.gate)
        admission.add(RequestCheck(self.gate.check))

    def processors(self) -> Mapping[int, Processor]:
        return processors_of(self._handlers)

    def recover(self) -> None:
        self._accounts.load()

    async def start(self, tasks: TaskOwner) -> None:
        tasks.start(self._follow_files(), "access-files")

    async def _follow_files(self) -> None:
        while True:
            await asyncio.sleep(RELOAD_S)
            if await self._disk.run(self._accounts.reload_if_changed):
                self._admission.invalidate()


def auth_settings(config: BrokerConfig) -> AuthSettings:
    """What the configuration says of users. ConfigError."""
    return AuthSettings(
        is_authentication_enabled=config.authentication_enabled,
        is_authorization_enabled=config.authorization_enabled,
        authentication_whitelist=parse_whitelist("authenticationWhitelist", config.authentication_whitelist),
        authorization_whitelist=parse_whitelist("authorizationWhitelist", config.authorization_whitelist),
        init_user=Credentials.parse("initAuthenticationUser", config.init_authentication_user),
        inner_credentials=Credentials.parse(
            "innerClientAuthenticationCredentials", config.inner_client_authentication_credentials
        ),
    )


def openings_of(config: AccessSettings) -> list[Opening]:
    """The holes of RocketMQ that the configuration opens again."""
    attributes = settings_of(AccessSettings)
    found = [opening for opening in Opening if getattr(config, attributes[opening.value][0])]
    if found:
        _log.warning("open as in RocketMQ: %s", ", ".join(opening.value for opening in found))
    return found


def lockout_of(config: AccessSettings) -> Lockout | None:
    """What counts wrong logins; None: nothing does."""
    if not config.access_lockout_attempts:
        return None
    return Lockout(
        attempts=config.access_lockout_attempts,
        window_ms=config.access_lockout_window,
        time_ms=config.access_lockout_time,
    )
