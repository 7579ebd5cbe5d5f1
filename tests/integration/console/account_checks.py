"""Accounts for an embedded broker: a request check that verifies signatures as RocketMQ 5's brokers do.

It notes who sent which request, and refuses what an account may not do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kourou.access.model import AccessCall, Needs
from kourou.access.signatures import is_signed_by
from kourou.errors import RequestError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.transport.request import Request

SECRETS: Final = {"ada": "secret-of-ada", "bob": "secret-of-bob", "watch": "secret-of-watch"}
HIDDEN_FROM_BOB: Final = frozenset(
    {RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.UPDATE_AND_CREATE_TOPIC}
)


@dataclass
class Accounts:
    """`broker.admission.add(RequestCheck(accounts.check))`."""

    secrets: dict[str, str] = field(default_factory=lambda: dict(SECRETS))
    exempts_all: bool = False
    calls: list[tuple[str, int]] = field(default_factory=list)
    """Who sent which request; those with a right signature only."""
    refused: list[str] = field(default_factory=list)

    def check(self, request: Request) -> None:
        """RequestError as by RocketMQ 5."""
        call = AccessCall(
            code=request.code,
            version=request.version,
            fields=request.ext_fields,
            body=bytes(request.body or b""),
            address="127.0.0.1",
            needs=Needs(),
        )
        if not self.exempts_all:
            self._check(call)
        self.calls.append((call.access_key, call.code))

    def _check(self, call: AccessCall) -> None:
        user = call.access_key
        if not user:
            self._refuse("username cannot be null.")
        if user not in self.secrets:
            self._refuse(f"User:{user} is not found.")
        if not is_signed_by(call, self.secrets[user]):
            self._refuse("check signature failed.")
        if user == "bob" and call.code in HIDDEN_FROM_BOB:
            self._refuse(
                "User:bob has no permission to access Cluster:DefaultCluster from 127.0.0.1, "
                "no matched policies."
            )

    def _refuse(self, words: str) -> None:
        self.refused.append(words)
        raise RequestError(ResponseCode.NO_PERMISSION, words)

    def users(self) -> set[str]:
        """Everybody whose requests were accepted."""
        return {user for user, _ in self.calls}
