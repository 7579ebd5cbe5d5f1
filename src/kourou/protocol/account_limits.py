"""The remark of an answer to an account that is over a limit, with the time to wait.

    account billing is over its limit: more than 1000 messages are sent per second, wait 250 ms
    account billing is over its limit: it has 50 connections, and may not have more

Its code is SYSTEM_BUSY, which has other uses.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_REMARK: Final = re.compile(
    r"account (?P<account>.*?) is over its limit: (?P<limit>.*?)(?:, wait (?P<wait_ms>[0-9]{1,9}) ms)?",
    re.DOTALL,
)


class OverLimit(NamedTuple):
    """An account and the limit that it exceeds. `wait_ms`: when a request may succeed; None: not known.

    >>> OverLimit("billing", "more than 9 messages are sent per second", 250).remark()
    'account billing is over its limit: more than 9 messages are sent per second, wait 250 ms'
    """

    account: str
    limit: str
    wait_ms: int | None = None

    def remark(self) -> str:
        """The text of the answer."""
        wait = "" if self.wait_ms is None else f", wait {self.wait_ms} ms"
        return f"account {self.account} is over its limit: {self.limit}{wait}"

    @classmethod
    def parse(cls, remark: str) -> OverLimit | None:
        """What `remark` says; None if it is about something else."""
        found = _REMARK.fullmatch(remark)
        if found is None:
            return None
        wait_ms = found["wait_ms"]
        return cls(found["account"], found["limit"], None if wait_ms is None else int(wait_ms))
