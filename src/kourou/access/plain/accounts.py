"""An account of RocketMQ 4, a file of them, and the table of all files. All are immutable: a change of the
files makes a new table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kourou.access.model import Account, Action, Need, ResourceType
from kourou.access.plain.addresses import AddressPattern, Parts
from kourou.access.plain.permissions import Permission
from kourou.protocol.bodies import DataVersion
from kourou.protocol.names import RETRY_GROUP_TOPIC_PREFIX, is_retry_topic, retry_topic


def resource_key(need: Need) -> str:
    """The name by which permissions are kept: a group is its retry topic."""
    resource = need.resource
    return retry_topic(resource.name) if resource.type is ResourceType.GROUP else resource.name


def described(key: str) -> str:
    """A resource in RocketMQ's words."""
    return f"group:{key[len(RETRY_GROUP_TOPIC_PREFIX) :]}" if is_retry_topic(key) else f"topic:{key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainAccount(Account):
    """One account, with its permissions."""

    exempt: AddressPattern
    """From these addresses, nothing is checked but that the account exists."""
    default_topic: Permission
    default_group: Permission
    listed: Mapping[str, Permission]
    """Of topics and groups, by `resource_key`."""
    file: Path

    def is_granted(self, need: Need) -> bool:
        """Whether it may; an administrator may do everything unless permissions are listed for it."""
        if self.is_admin and not self.listed:
            return True
        return not self.permission(resource_key(need)).isdisjoint(need.actions)

    def may_send_to(self, topic: str) -> bool:
        """Whether it is granted PUB on a topic."""
        return (self.is_admin and not self.listed) or Action.PUB in self.permission(topic)

    def permission(self, key: str) -> Permission:
        """What it may with a resource: what is listed, else the default."""
        default = self.default_group if is_retry_topic(key) else self.default_topic
        return self.listed.get(key, default)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountsFile:
    """What is in one file."""

    path: Path
    white_texts: tuple[str, ...] = ()
    white: tuple[AddressPattern, ...] = ()
    accounts: tuple[PlainAccount, ...] = ()
    raw_accounts: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """The accounts as they were written, in the same order."""
    version: DataVersion = field(default_factory=DataVersion)
    is_empty: bool = False
    notes: tuple[str, ...] = ()
    """What is probably a mistake, but no error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountTable:
    """The accounts and white lists of all files."""

    files: tuple[AccountsFile, ...] = ()
    accounts: Mapping[str, PlainAccount] = field(default_factory=dict)
    white: tuple[AddressPattern, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, files: tuple[AccountsFile, ...]) -> AccountTable:
        """The table of these files. An access key in a second place is ignored, with a note."""
        accounts: dict[str, PlainAccount] = {}
        notes = [note for file in files for note in file.notes]
        for account in (account for file in files for account in file.accounts):
            first = accounts.setdefault(account.name, account)
            if first is not account:
                place = "this file" if account.file == first.file else first.file
                notes.append(f"{account.file}: accessKey {account.name} is ignored, it is already in {place}")
        white = tuple(pattern for file in files for pattern in file.white)
        return cls(files=files, accounts=accounts, white=white, notes=tuple(notes))

    def filled_paths(self) -> frozenset[Path]:
        """The files that are not empty."""
        return frozenset(file.path for file in self.files if not file.is_empty)

    def is_exempt(self, address: Parts) -> bool:
        """Whether nothing is checked for this address."""
        return any(pattern.matches(address) for pattern in self.white)
