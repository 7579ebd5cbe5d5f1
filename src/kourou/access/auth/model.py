"""Users and policies of RocketMQ 5, and their JSON.

A user has policies of two types, Custom and Default; the Default ones decide where no Custom one matches. A
policy has entries: a resource, actions, addresses that they are limited to, and whether they are allowed.

Words are read in any case and written in RocketMQ's. All of it is immutable: a change makes a new object.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Self, TypeVar

from kourou.access.auth.sources import Source
from kourou.access.model import EVERY, Action, Resource, ResourceType
from kourou.protocol.bodies.acl import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

USER_PREFIX: Final = "User:"
"""What subjects begin with; RocketMQ has no other ones."""

Word = TypeVar("Word", bound=enum.Enum)


class UserType(enum.Enum):
    """What a user is; the value is RocketMQ's word."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(enum.Enum):
    """Whether a user may do anything."""

    ENABLE = "enable"
    DISABLE = "disable"


class Decision(enum.Enum):
    """What an entry says."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(enum.Enum):
    """Custom policies come before Default ones."""

    CUSTOM = "Custom"
    DEFAULT = "Default"


class PatternKind(enum.IntEnum):
    """How a pattern names resources, the most exact one first."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2


def word_of(words: type[Word], text: str | None) -> Word | None:
    """The word that `text` is, in any case; None if it is none of them.

    >>> word_of(UserType, "super")
    <UserType.SUPER: 'Super'>
    """
    lowered = (text or "").strip().lower()
    return next((word for word in words if word.value.lower() == lowered), None)


def subject_of(user_name: str) -> str:
    """The subject of a user's policies."""
    return USER_PREFIX + user_name


def user_of_subject(subject: str | None) -> str | None:
    """The name in `User:name`; None if that is not what it looks like."""
    kind, colon, name = (subject or "").partition(":")
    return name if colon and name.strip() and kind.lower() == "user" else None


@dataclass(frozen=True, slots=True)
class User:
    """One user."""

    name: str
    password: str = field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        """Whether the user may do everything."""
        return self.type is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        """Whether the user may do anything at all."""
        return self.status is UserStatus.ENABLE

    def info(self, *, with_password: bool) -> UserInfo:
        """The user in RocketMQ's JSON."""
        return UserInfo(
            username=self.name,
            password=self.password if with_password else None,
            user_type=self.type.value,
            user_status=self.status.value,
        )


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """The resources of an entry: one, those whose names begin alike, all of a type, or all."""

    type: ResourceType
    kind: PatternKind
    name: str = ""
    """The name, or how names begin; empty for all."""

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """Read `Topic:name`, `Topic:pre*`, `Topic:*` or `*`; None if it is none of these.

        Apache reads `Any:name` as everything. Here it is nothing.

        >>> str(ResourcePattern.parse("topic:orders*"))
        'Topic:orders*'
        """
        text = (text or "").strip()
        if text == EVERY:
            return cls(ResourceType.ANY, PatternKind.ANY)
        word, _, name = text.partition(":")
        resource_type = word_of(ResourceType, word)
        if resource_type is None or not name or (resource_type is ResourceType.ANY and name != EVERY):
            return None
        if name == EVERY:
            return cls(resource_type, PatternKind.ANY)
        if name.endswith(EVERY):
            return cls(resource_type, PatternKind.PREFIXED, name.partition(EVERY)[0])
        return cls(resource_type, PatternKind.LITERAL, name)

    def __str__(self) -> str:
        if self.type is ResourceType.ANY:
            return EVERY
        return f"{self.type.value}:{self.name}{'' if self.kind is PatternKind.LITERAL else EVERY}"

    def matches(self, resource: Resource) -> bool:
        """Whether a resource is one of these."""
        if self.type is not resource.type:
            return self.type is ResourceType.ANY
        if self.kind is PatternKind.LITERAL:
            return resource.name == self.name
        return self.kind is PatternKind.ANY or resource.name.startswith(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a policy."""

    resource: ResourcePattern
    actions: tuple[Action, ...]
    sources: tuple[Source, ...] = ()
    """The addresses it is limited to; none: it holds everywhere."""
    decision: Decision

    def info(self) -> PolicyEntryInfo:
        """The entry in RocketMQ's JSON."""
        return PolicyEntryInfo(
            resource=str(self.resource),
            actions=[action.value for action in self.actions],
            source_ips=[str(source) for source in self.sources] or None,
            decision=self.decision.value,
        )


@dataclass(frozen=True, slots=True)
class Acl:
    """The policies of one user. Entries of one type have different resources."""

    user_name: str
    custom: tuple[Entry, ...] = ()
    default: tuple[Entry, ...] = ()

    def entries(self, policy_type: PolicyType) -> tuple[Entry, ...]:
        """The entries of one type."""
        return self.custom if policy_type is PolicyType.CUSTOM else self.default

    def with_entries(self, policy_type: PolicyType, entries: Iterable[Entry]) -> Acl:
        """The same with these entries of one type instead."""
        if policy_type is PolicyType.CUSTOM:
            return replace(self, custom=tuple(entries))
        return replace(self, default=tuple(entries))

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing."""
        return not self.custom and not self.default

    def info(self) -> AclInfo:
        """The policies in RocketMQ's JSON."""
        return AclInfo(
            subject=subject_of(self.user_name),
            policies=[
                PolicyInfo(policy_type=policy_type.value, entries=[entry.info() for entry in entries])
                for policy_type in PolicyType
                if (entries := self.entries(policy_type))
            ],
        )
