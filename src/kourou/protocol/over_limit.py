"""The remark of an answer to a request that a limit rejects, with the time to wait.

    account billing is over its limit: more than 1000 messages are sent per second, wait 250 ms
    account billing is over its limit: it has 50 connections, and may not have more
    topic orders is over its limit: the backlog of group billing has 1000 of 1000 messages, wait 400 ms

Its code is SYSTEM_BUSY, which has other uses. Where the broker can, the header field `kourouWaitMs` has the
time too.
"""

from __future__ import annotations

import enum
import re
from typing import Final, NamedTuple

WAIT_FIELD: Final = "kourouWaitMs"

_REMARK: Final = re.compile(
    r"(?P<kind>account|topic) (?P<name>.*?) is over its limit: (?P<limit>.*?)"
    r"(?:, wait (?P<wait_ms>[0-9]{1,9}) ms)?",
    re.DOTALL,
)


class Limited(enum.StrEnum):
    """What a limit is of."""

    ACCOUNT = "account"
    TOPIC = "topic"


class OverLimit(NamedTuple):
    """An account or a topic, and the limit that it exceeds. `wait_ms`: when a request may succeed; None: not
    known.

    >>> OverLimit(Limited.ACCOUNT, "billing", "more than 9 messages are sent per second", 250).remark()
    'account billing is over its limit: more than 9 messages are sent per second, wait 250 ms'
    """

    kind: Limited
    name: str
    limit: str
    wait_ms: int | None = None

    def remark(self) -> str:
        """The text of the answer."""
        wait = "" if self.wait_ms is None else f", wait {self.wait_ms} ms"
        return f"{self.kind} {self.name} is over its limit: {self.limit}{wait}"

    @classmethod
    def parse(cls, remark: str) -> OverLimit | None:
        """What `remark` says; None if it is about something else."""
        found = _REMARK.fullmatch(remark)
        if found is None:
            return None
        wait_ms = found["wait_ms"]
        return cls(
            Limited(found["kind"]), found["name"], found["limit"], None if wait_ms is None else int(wait_ms)
        )
