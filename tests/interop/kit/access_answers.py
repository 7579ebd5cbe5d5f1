"""Access answers: which calls of which identity a broker refuses, and with which words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, TypeAlias

from kourou.protocol.command import RemotingCommand
from tests.interop.kit.access_accounts import IDENTITIES, Identity
from tests.interop.kit.access_calls import AccessCall, calls
from tests.interop.kit.signed_wire import SignedConnection

_ANSWER_TIMEOUT_S: Final = 2.0
_PLAIN_REFUSAL: Final = re.compile(r"org\.apache\.rocketmq\.acl\.common\.AclException: ")
_AUTH_REFUSAL: Final = re.compile(
    r"username cannot be null|is not found\.|is disabled\.|check signature failed|has no permission "
    r"|User:.* not found|Authentication failed|Authorization failed|authorization context"
    r"|The super user can only be|(topic|group) is null"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """Code and remark of a response; code None: none came."""

    code: int | None
    remark: str | None = None

    @property
    def is_refusal(self) -> bool:
        """Whether access control refused the call."""
        remark = self.remark or ""
        if self.code == 1:
            return _PLAIN_REFUSAL.match(remark) is not None
        return self.code == 16 and _AUTH_REFUSAL.search(remark) is not None


PASSED: Final = Answer(0)
"""Stands for every answer that is no refusal."""
Answers: TypeAlias = dict[str, dict[str, Answer]]
"""Answers by call, then by identity."""


def answer_of(response: RemotingCommand | None) -> Answer:
    """An answer without line numbers of Java; the first line of its remark."""
    if response is None:
        return Answer(None)
    remark = response.remark
    if remark is not None:
        remark = re.sub(r"\.java:\d+", ".java", remark.splitlines()[0] if remark else remark)
    return Answer(response.code, remark)


def all_answers(address: str, identities: Sequence[Identity] = IDENTITIES) -> Answers:
    """The answers of a broker to every call, for each identity."""
    with ExitStack() as connections:
        by_identity = {
            identity.name: connections.enter_context(SignedConnection(address, identity))
            for identity in identities
        }
        return {
            call.name: {name: _answer(connection, call) for name, connection in by_identity.items()}
            for call in calls()
        }


def _answer(connection: SignedConnection, call: AccessCall) -> Answer:
    return answer_of(connection.call(call.code, call.fields, call.body, timeout_s=_ANSWER_TIMEOUT_S))


def refusals(answers: Answers) -> Answers:
    """Answers that are refusals; all others are PASSED."""
    return {
        call: {name: answer if answer.is_refusal else PASSED for name, answer in by_identity.items()}
        for call, by_identity in answers.items()
    }
