"""Requests, rules and signatures for the tests of the gate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kourou.access.model import AccessCall, AccessRefusedError, Account, Needs, RefusalKind
from kourou.access.signatures import is_signed_by
from kourou.protocol.signature import ACCESS_KEY, SIGNATURE, signature_of

ALICE = Account(name="alice", secret_key="alice-secret")
ROOT = Account(name="root", secret_key="root-secret", is_admin=True)


def signed(fields: Mapping[str, str], account: Account, body: bytes = b"") -> dict[str, str]:
    """The fields with the signature of an account."""
    found = {**fields, ACCESS_KEY: account.name}
    return {**found, SIGNATURE: signature_of(found, body, account.secret_key)}


@dataclass(eq=False)
class FakeConnection:
    """A connection as the gate sees it."""

    remote_address: str = "10.0.0.1:4711"
    certificate_user: str | None = None
    closed: bool = False


@dataclass
class FakeRequest:
    """A request as the gate sees it."""

    def signed_send(self) -> None:
        """Its fields are no JSON."""

    code: int
    ext_fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    version: int = 493
    is_oneway: bool = False
    meter: Any = None
    connection: FakeConnection = field(default_factory=FakeConnection)


class Rules:
    """alice may use the topics that are granted, root everything; 10.9.9.9 is exempt."""

    def __init__(self, *granted: str) -> None:
        self.granted = set(granted)
        self.calls: list[AccessCall] = []
        self.version: object = self

    def check(self, call: AccessCall) -> Account | None:
        self.calls.append(call)
        if call.address == "10.9.9.9":
            return None
        account = {each.name: each for each in (ALICE, ROOT)}.get(call.access_key)
        if not call.access_key:
            raise AccessRefusedError(RefusalKind.NO_CREDENTIALS, 16, "username cannot be null.")
        if account is None:
            raise AccessRefusedError(RefusalKind.UNKNOWN_USER, 16, "not found", user=call.access_key)
        if not is_signed_by(call, account.secret_key):
            raise AccessRefusedError(RefusalKind.WRONG_SIGNATURE, 16, "check signature failed.", user="alice")
        names = {need.resource.name for need in call.needs.auth}
        if not account.is_admin and (call.needs.is_admin_only or not names <= self.granted):
            raise AccessRefusedError(RefusalKind.NO_PERMISSION, 16, "no permission", user=account.name)
        return account

    def has_everywhere(self, access_key: str, needs: Needs) -> bool:
        return {need.resource.name for need in needs.auth} <= self.granted

    def sender(self, access_key: str, topic: str) -> Account | None:
        return ALICE if access_key == "alice" and topic in self.granted else None
