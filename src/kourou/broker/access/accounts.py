"""The accounts of a broker, of either version of RocketMQ: their rules, files and admin requests."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kourou.access.auth.migration import with_accounts
from kourou.access.auth.rules import AuthRules
from kourou.access.auth.seeding import with_configured_users
from kourou.access.auth.settings import AuthSettings, Credentials, parse_whitelist
from kourou.access.auth.tables import AuthTables
from kourou.access.plain.accounts_file import AccountFiles
from kourou.access.plain.rules import PlainRules
from kourou.broker.access.absent import NoAuthProcessor, NoPlainAclProcessor
from kourou.broker.access.auth_following import AuthFollower
from kourou.broker.access.auth_processor import AuthProcessor
from kourou.broker.access.plain_processor import PlainAclProcessor
from kourou.broker.settings import store_root

if TYPE_CHECKING:
    from collections.abc import Callable

    from kourou.access.gate import AccessGate
    from kourou.access.model import AccessRules
    from kourou.broker.part import Handler
    from kourou.broker.replication.metadata_sync import Follow
    from kourou.broker.settings import LiveConfig
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.config.broker import BrokerConfig
    from kourou.transport.client import RemotingClient
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)


class Accounts(Protocol):
    """The accounts of one version of RocketMQ."""

    @property
    def rules(self) -> AccessRules:
        """The decisions by these accounts."""
        ...

    def load(self) -> None:
        """Read them, at the start. ConfigError. Waits for the disk."""
        ...

    def reload_if_changed(self) -> bool:
        """Read them again if their files have changed. True: others are in force. Waits for the disk."""
        ...

    def handlers(self, gate: AccessGate) -> list[Handler]:
        """The admin requests."""
        ...

    def follow_master(self, client: RemotingClient) -> list[Follow]:
        """What a slave copies from its master; nothing: its accounts are its own."""
        ...


class PlainAccounts:
    """Those of RocketMQ 4."""

    def __init__(
        self,
        config: LiveConfig,
        *,
        address: str,
        disk: DiskThreads,
        requests: TaskOwner,
        now_ms: Callable[[], int],
        on_change: Callable[[], None],
    ) -> None:
        self.rules = PlainRules(AccountFiles.of_home(home_of(config.current)))
        self._make_processor = partial(
            PlainAclProcessor,
            rules=self.rules,
            rules_changed=on_change,
            config=config,
            address=address,
            disk=disk,
            requests=requests,
            now_ms=now_ms,
        )

    def load(self) -> None:
        """Read the files."""
        self.rules.load()

    def reload_if_changed(self) -> bool:
        """Read them again if one has changed."""
        return self.rules.reload_if_changed()

    def handlers(self, gate: AccessGate) -> list[Handler]:
        """The admin requests of RocketMQ 4."""
        return [self._make_processor(is_admin=gate.is_administrator), NoAuthProcessor()]

    def follow_master(self, client: RemotingClient) -> list[Follow]:
        """Files are the operator's to copy."""
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
        self._migrated = (
            AccountFiles.of_home(home_of(config)) if config.migrate_auth_from_v1_enabled else None
        )
        self._tables = AuthTables(store_root(config) / "config", now_ms)
        self._on_change = on_change
        self._disk = disk
        self._requests = requests
        self._changing = asyncio.Lock()
        self._follower: AuthFollower | None = None
        self.rules = AuthRules(self._settings, self._tables)

    def load(self) -> None:
        """Read users and policies, with those of the configuration and of RocketMQ 4."""
        self._tables.load()
        data = with_configured_users(self._tables.current, self._settings)
        if self._migrated is not None:
            data = with_accounts(data, self._migrated.load())
        if not data.users:
            _log.warning(
                "there are no users, so every request is refused: set initAuthenticationUser, and restart"
            )
        self._tables.replace(data)
        # On the loop from here on; this was in a disk thread.
        self._tables.on_change.append(self._on_change)

    def reload_if_changed(self) -> bool:
        """Changes come by requests."""
        return False

    def handlers(self, gate: AccessGate) -> list[Handler]:
        """The admin requests of RocketMQ 5."""
        inner = self._settings.inner_credentials
        return [
            AuthProcessor(
                tables=self._tables,
                is_super=gate.is_administrator,
                disk=self._disk,
                requests=self._requests,
                changing=self._changing,
                audit_secrets=partial(gate.audit_secrets, usual=None if inner is None else inner.name),
                follower=lambda: self._follower,
            ),
            NoPlainAclProcessor(),
        ]

    def follow_master(self, client: RemotingClient) -> list[Follow]:
        """From now on users and policies are those of this slave's master."""
        self._follower = AuthFollower(
            tables=self._tables, client=client, disk=self._disk, changing=self._changing
        )
        return [self._follower.follow]


def home_of(config: BrokerConfig) -> Path:
    """The home folder; of an embedded broker without one its store."""
    return Path(config.rocketmq_home) if config.rocketmq_home else store_root(config)


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
