"""The words of access control, in those of RocketMQ 5: a call needs actions on resources.

A `Need` is one resource with actions of which one suffices; a call must have all of its needs. The accounts
of RocketMQ 4 have topics and groups, PUB and SUB only: their needs are a list of their own.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from kourou.errors import RequestError
from kourou.protocol.signature import ACCESS_KEY


class ResourceType(enum.Enum):
    """What a resource is; the value is RocketMQ's word."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Action(enum.Enum):
    """What is done with a resource; the value is RocketMQ's word."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


EVERY: Final = "*"
"""The name of a resource that stands for all of its type: needed by requests that list them."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One topic, group or cluster; the name `*` means all of them."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.value}:{self.name}"


@dataclass(frozen=True, slots=True)
class Need:
    """A resource, and the actions of which the caller needs one."""

    resource: Resource
    actions: frozenset[Action]


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a request needs: decided by the table of requests (requests.py), the same for all rules."""

    auth: Sequence[Need] = ()
    """By RocketMQ 5's rules; empty: a valid signature suffices."""
    plain: Sequence[Need] = ()
    """By RocketMQ 4's: topics and groups, each with PUB or SUB."""
    is_admin_only: bool = False
    """By RocketMQ 5's rules only Super users may, whatever else it needs."""
    is_plain_admin_only: bool = False
    """By RocketMQ 4's rules only administrators may; `is_admin_only` is not for them."""
    random_producer: str = ""
    """A producer with a random id, which only the account that has opened it may use: the gate checks that,
    by the same rule for both versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account, with the key that signs."""

    name: str
    """The access key, or user name."""
    secret_key: str = field(repr=False)
    is_admin: bool = False


@dataclass(slots=True, kw_only=True)
class AccessCall:
    """One request as rules see it."""

    code: int
    version: int
    fields: Mapping[str, str]
    """All header fields as they came, unknown ones too."""
    body: bytes
    address: str
    """The IP address of the peer, without port."""
    needs: Needs
    certificate_user: str | None = None
    """The name in the client's certificate, where the listener takes it as user."""
    signed_with: str = field(default="", repr=False)
    """The secret key by which the signature was found to be right: a body is hashed once."""
    is_signed_with: Callable[[str], bool] | None = None
    """Whether the call was signed with a secret key, where it came by another protocol; None: by remoting,
    with the signature among the fields."""

    @property
    def access_key(self) -> str:
        """The account that the request names; empty: none."""
        return self.fields.get(ACCESS_KEY, "")


class RefusalKind(enum.Enum):
    """Why a request was refused: the audit log counts by it, and wrong logins lock out."""

    NO_CREDENTIALS = "no credentials"
    UNKNOWN_USER = "unknown user"
    DISABLED_USER = "disabled user"
    WRONG_SIGNATURE = "wrong signature"
    NO_PERMISSION = "no permission"
    LOCKED_OUT = "locked out"
    OVER_QUOTA = "over quota"


class AccessRefusedError(RequestError):
    """A request that access control refuses. Code and remark are those of RocketMQ's version."""

    def __init__(self, kind: RefusalKind, code: int, remark: str, *, user: str = "") -> None:
        super().__init__(code, remark)
        self.kind = kind
        self.user = user


class AccessRules(Protocol):
    """The accounts of one version of RocketMQ's access control, and what they may do."""

    @property
    def version(self) -> object:
        """Another object after every change of what is decided."""
        ...

    def check(self, call: AccessCall) -> Account | None:
        """The account of the caller; None: an exempt address or request, which needs none.
        AccessRefusedError."""
        ...

    def has_everywhere(self, access_key: str, needs: Needs) -> bool:
        """Whether an account has all of these needs from every address."""
        ...

    def sender(self, access_key: str, topic: str) -> Account | None:
        """The account that may send to `topic` from every address, its signature provided. None: look at
        each request (`check`). Holds until the rules change (`on_change` of their owner)."""
        ...
