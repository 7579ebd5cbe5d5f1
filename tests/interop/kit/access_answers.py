"""Access answers: which calls of which identity a broker refuses, and with which words.

Recorded from Apache's brokers they are in tests/golden/access-<version>.json. To record them again:

    python -m tests.interop.kit.access_answers
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from kourou.protocol.command import RemotingCommand
from tests.interop.kit import apache
from tests.interop.kit.access_accounts import IDENTITIES, Identity
from tests.interop.kit.access_calls import AccessCall, calls
from tests.interop.kit.access_servers import AUTH, PLAIN, create_accounts, launch_with_accounts
from tests.interop.kit.signed_wire import SignedConnection

_ANSWER_TIMEOUT_S: Final = 2.0
_GOLDEN: Final = Path(__file__).parents[2] / "golden"
_PLAIN_REFUSAL: Final = re.compile(r"org\.apache\.rocketmq\.acl\.common\.AclException: ")
_AUTH_REFUSAL: Final = re.compile(
    r"username cannot be null|is not found\.|is disabled\.|check signature failed|has no permission to access"
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


def recorded(version: str) -> Answers:
    """What Apache's broker of a version answered; of a call that it did not refuse only that: PASSED."""
    raw = json.loads(_golden(version).read_text())
    always = {name: Answer(*answer) for name, answer in raw["always"].items()}
    return {
        call: {
            **always,
            **{name: Answer(*answer) if answer else PASSED for name, answer in by_identity.items()},
        }
        for call, by_identity in raw["calls"].items()
    }


def refusals(answers: Answers) -> Answers:
    """Answers that are refusals; all others are PASSED."""
    return {
        call: {name: answer if answer.is_refusal else PASSED for name, answer in by_identity.items()}
        for call, by_identity in answers.items()
    }


def _golden(version: str) -> Path:
    return _GOLDEN / f"access-{version}.json"


def record(version: str, work_dir: Path) -> dict[str, Any]:
    """Start Apache's broker of a version and ask it everything; who has no account always gets one answer."""
    with (
        apache.start_namesrv(version, work_dir) as namesrv,
        launch_with_accounts(version, version, work_dir, [namesrv.address]) as broker,
    ):
        broker.wait_ready()
        create_accounts(broker.address, version)
        answers = refusals(all_answers(broker.address))
    first = next(iter(answers.values()))
    always = {
        name: _list(first[name])
        for name in (identity.name for identity in IDENTITIES)
        if first[name] != PASSED and all(answer[name] == first[name] for answer in answers.values())
    }
    return {
        "server": f"Apache RocketMQ {version}",
        "always": always,
        "calls": {
            call: {name: _list(answer) for name, answer in by_identity.items() if name not in always}
            for call, by_identity in answers.items()
        },
    }


def _list(answer: Answer) -> list[int | str | None] | None:
    return None if answer == PASSED else [answer.code, answer.remark]


def main() -> None:
    """Record the answers of both versions, or of those that are named."""
    for version in sys.argv[1:] or (PLAIN, AUTH):
        with tempfile.TemporaryDirectory() as work_dir:
            answers = record(version, Path(work_dir))
        text = json.dumps(answers, indent=1, ensure_ascii=False)
        # One line an identity.
        text = re.sub(r"\[\s+(null|-?\d+),\s+(.*)\s+\]", r"[\1, \2]", text)
        _golden(version).write_text(text + "\n")


if __name__ == "__main__":
    main()
