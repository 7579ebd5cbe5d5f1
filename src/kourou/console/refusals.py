"""Refusals: what access control says to a request, in words for people.

RocketMQ 4 answers with code 1, its exception and a place in its source; RocketMQ 5 with code 16. Kourou's
brokers answer in the way of the version whose accounts they have.

    org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=ada, org.apache.…
    User:ada has no permission to access Topic:orders from 10.0.0.7, no matched policies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kourou.errors import ResponseError
from kourou.protocol.codes import ResponseCode

_PLAIN: Final = re.compile(
    r"org\.apache\.rocketmq\.acl\.common\.AclException: (?P<words>.*?)"
    r"(?:, org\.apache\.rocketmq\.[\w.$]+\([\w.]*:-?\d+\).*)?",
    re.DOTALL,
)
_PERMISSION: Final = re.compile(
    "No default permission for |Need admin permission for |User:[^ ]* has no permission to access "
    "|authorization context is empty|Authorization failed"
)
_LOGIN: Final = re.compile("signature|^User:|accesskey|username|acl config|authentication", re.IGNORECASE)
# With what an AccessDeniedError adds for programs, which is left out here: the page shows the user.
_REFUSAL_IN_TEXT: Final = re.compile(
    r"CODE: (?:16  DESC: (?P<words>[^\n]*?)|1  DESC: org\.apache\.rocketmq\.acl\.common\.AclException: "
    r"(?P<plain>[^\n]*?)(?:, org\.apache\.rocketmq\.[\w.$]+\([\w.]*:-?\d+\))?)"
    r"(?P<where> \(from \S+\)|$)"
    r"(?:; (?:the request was|check access key|an administrator has|wait:) [^\n;]*)?",
    re.MULTILINE,
)


def refusal(error: ResponseError) -> str | None:
    """The words of access control; None if a server answered with another error."""
    return _words(error.code, error.remark)


def is_refusal(problem: str) -> bool:
    """Whether a problem is one, which is a text already: the outcome of one target."""
    return _REFUSAL_IN_TEXT.fullmatch(problem) is not None


def is_about_permission(words: str) -> bool:
    """Whether the sender is known and its signature right, but not allowed to do this."""
    return _PERMISSION.match(words) is not None


def are_about_permission(problems: Sequence[str]) -> bool:
    """Whether each of these problems of servers is a missing permission: the others would pass by themselves,
    or with another login."""
    return bool(problems) and all(_PERMISSION.search(problem) for problem in problems)


def is_about_login(words: str) -> bool:
    """Whether the sender is unknown, or its signature wrong."""
    return not is_about_permission(words) and _LOGIN.search(words) is not None


def readable(text: str) -> str:
    """A text with errors of servers, as lists of problems have them: refusals are reduced to their words."""
    return _REFUSAL_IN_TEXT.sub(_readable, text)


def _readable(found: re.Match[str]) -> str:
    return (found["words"] or found["plain"] or "refused") + found["where"]


def _words(code: int, remark: str) -> str | None:
    if code == ResponseCode.NO_PERMISSION:
        return remark
    found = _PLAIN.fullmatch(remark) if code == ResponseCode.SYSTEM_ERROR else None
    return found["words"] if found else None
