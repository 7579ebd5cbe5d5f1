"""Endpoint: one operation of the API, declared once: method, path, role, types and handler.

A `Read` returns data. A `Change` makes a plan first: what it will do, as sentences, and the equivalent
mqadmin commands. `?preview=true` returns the plan and does nothing. Otherwise the plan is executed and
written to the audit log. A client that passes the `plan` of its preview gets status 409 and the new preview
if the cluster has changed since, and nothing is done.

The application (app.py) and the OpenAPI document (openapi.py) are made of the same declarations.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from kourou.admin.session import Admin
from kourou.admin.targets import Outcome

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from kourou.console.cluster_sessions import ClusterSession
    from kourou.console.cluster_view import ClusterView
    from kourou.console.context import ConsoleContext
    from kourou.console.security.access import Visitor


class Role(IntEnum):
    """What a user may do; each role includes those before it."""

    NONE = 0
    """Not logged in."""
    READER = 1
    OPERATOR = 2
    """Reads and changes what the cluster permits the own account. Not a role of the console's users."""
    ADMINISTRATOR = 3
    """Also what belongs to the console: its audit log."""

    @property
    def label(self) -> str:
        """The name in the API and in the users file."""
        return self.name.lower()


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No query parameters."""


class NoBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An empty JSON object, or nothing."""


QueryT = TypeVar("QueryT")
BodyT = TypeVar("BodyT")


@dataclass(frozen=True, slots=True)
class Call(Generic[QueryT, BodyT]):
    """One request to an endpoint, with its parameters checked and converted."""

    context: ConsoleContext
    visitor: Visitor
    cluster: ClusterSession | None
    """None if nobody is logged in."""
    path: Mapping[str, str]
    query: QueryT
    body: BodyT

    @property
    def session(self) -> ClusterSession:
        """The cluster as the visitor's account sees it."""
        assert self.cluster is not None, "an operation for visitors who are not logged in reads nothing"
        return self.cluster

    @property
    def admin(self) -> Admin:
        """Connections to the cluster, which sign with the visitor's keys."""
        return self.session.admin

    @property
    def view(self) -> ClusterView:
        """What was read of the cluster with these keys."""
        return self.session.view


class TargetOutcome(msgspec.Struct, frozen=True):
    """The outcome of a change on one server, message or queue."""

    target: str
    is_done: bool
    problem: str = ""

    @classmethod
    def of(cls, outcome: Outcome) -> TargetOutcome:
        """The outcome of an operation of `kourou.admin`."""
        return cls(outcome.address, outcome.is_done, outcome.problem)


class Done(msgspec.Struct, frozen=True):
    """What a change did: the outcome for each target, and a result if the operation has one."""

    outcomes: list[TargetOutcome] = []
    result: Any = None

    @property
    def is_complete(self) -> bool:
        """Whether no target failed."""
        return all(outcome.is_done for outcome in self.outcomes)

    @property
    def is_failed(self) -> bool:
        """Whether all targets failed."""
        return bool(self.outcomes) and not any(outcome.is_done for outcome in self.outcomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a change will do, and how it is done."""

    effects: list[str]
    """One sentence each."""
    commands: list[str]
    """mqadmin command lines that do the same; empty if there are none."""
    run: Callable[[], Awaitable[Done]]
    warnings: list[str] = field(default_factory=list)
    """What the operator should consider before: connected consumers, messages that are skipped."""
    details: Any = None
    """Figures that change all the time, such as offsets: shown, but not part of the comparison."""
    is_secret: bool = False
    """Whether this request's body must not be written to the audit log."""

    def preview(self) -> Preview:
        """The plan as data."""
        text = msgspec.json.encode([self.effects, self.commands, self.warnings])
        plan = hashlib.sha256(text).hexdigest()[:32]
        return Preview(self.effects, self.warnings, self.commands, plan, self.details)


class Preview(msgspec.Struct, frozen=True):
    """What a change will do. `plan` identifies it: pass it with the change to do exactly this."""

    effects: list[str]
    warnings: list[str]
    commands: list[str]
    plan: str
    details: Any = None
    """Figures at this moment, such as the offsets of queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """What both kinds have."""

    method: str
    path: str
    """Below `/api`, with `{name}` for a segment and `{name:path}` for one that may contain slashes."""
    summary: str
    role: Role
    query: type[Any] = NoQuery
    body: type[Any] = NoBody
    returns: Any = dict[str, Any]

    @property
    def name(self) -> str:
        """A unique name: the operationId of OpenAPI."""
        words = [word.strip("{}").removesuffix(":path") for word in self.path.strip("/").split("/")]
        return "_".join([self.method.lower(), *words]).replace("-", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(Endpoint):
    """An operation that changes nothing."""

    method: str = "GET"
    role: Role = Role.READER
    handler: Callable[[Call[Any, Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Endpoint):
    """An operation that changes the cluster."""

    method: str = "POST"
    role: Role = Role.OPERATOR
    planner: Callable[[Call[Any, Any]], Awaitable[Plan]]
    returns: Any = Done
    is_secret: bool = False
    """Whether no body of this operation may be written to the audit log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw(Endpoint):
    """An operation that writes its own response: login, downloads. With another method than GET it needs the
    CSRF token, too."""

    respond: Callable[[Call[Any, Any], Request], Awaitable[Response]]
