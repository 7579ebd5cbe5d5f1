"""Refusals of access control: recognised by code and words, explained with the user, logged once.

RocketMQ 4 refuses with code 1 and the name of a Java class, RocketMQ 5 with code 16; both codes have other
uses. Not here: the refusing (access/), retries (producer/, push/, pull/).
"""

from __future__ import annotations

import logging
import re
from typing import Final, TypeGuard

from kourou.client.core.credentials import Credentials
from kourou.clock import Clock
from kourou.errors import (
    AccessDeniedError,
    AccountLimitError,
    KourouError,
    LimitError,
    ResponseError,
    TopicLimitError,
)
from kourou.protocol.codes import ResponseCode
from kourou.protocol.over_limit import Limited, OverLimit

_log = logging.getLogger(__name__)

_PLAIN: Final = "AclException"
# Of authentication and of authorization, in RocketMQ 5.
_AUTH: Final = re.compile(
    r"username cannot be null|User:\S* ?(is )?not found|User:\S+ is disabled|check signature failed"
    r"|has no permission (to access|for)|is not the user of the client's certificate"
    r"|Authentication failed|Authorization failed|too many wrong logins"
)
_IDENTITY: Final = re.compile(
    r"No acl config|[Cc]heck signature failed|not found|is disabled|is not the user of|Authentication failed"
    r"|too many wrong logins"
)
_AGAIN_MS: Final = 3_600_000
_MAX_KNOWN: Final = 1_000


def response_error(code: int, remark: str, address: str, credentials: Credentials | None) -> ResponseError:
    """The error for a response; AccessDeniedError for a refusal, with the user and what to do;
    AccountLimitError or TopicLimitError for an account or a topic that is over a limit."""
    if code == ResponseCode.SYSTEM_BUSY and (over := OverLimit.parse(remark)) is not None:
        return _limit_error(over, code, remark, address)
    if not is_access_refusal(code, remark):
        return ResponseError(code, remark, address)
    user = credentials.access_key if credentials is not None else ""
    return AccessDeniedError(code, remark, address, user=user, remedy=_remedy(remark, user))


def _limit_error(over: OverLimit, code: int, remark: str, address: str) -> LimitError:
    _, name, limit, wait_ms = over
    if over.kind is Limited.TOPIC:
        return TopicLimitError(code, remark, address, topic=name, limit=limit, wait_ms=wait_ms)
    return AccountLimitError(code, remark, address, account=name, limit=limit, wait_ms=wait_ms)


def is_access_refusal(code: int, remark: str) -> bool:
    """Whether access control has refused the request, rather than a broker that may not be written to."""
    if code == ResponseCode.SYSTEM_ERROR:
        return _PLAIN in remark
    return code == ResponseCode.NO_PERMISSION and _AUTH.search(remark) is not None


def is_wrong_login(remark: str) -> bool:
    """Whether a refusal says that user and key are not those of an account, rather than what it may do."""
    return _IDENTITY.search(remark) is not None or "cannot be null" in remark


def is_rejected_login(error: Exception | None) -> TypeGuard[AccessDeniedError]:
    """Whether a server has refused a request because of its user or key."""
    return isinstance(error, AccessDeniedError) and is_wrong_login(error.remark)


def _remedy(remark: str, user: str) -> str:
    if not user:
        return (
            "the request was not signed: give the client an access key and its secret key "
            "(in a program credentials=, on a command line --acl FILE)"
        )
    if "too many wrong logins" in remark:
        return (
            f"wait: a client at that address signs with wrong keys, as user '{user}' or as others, "
            "and the audit log of the server names them"
        )
    if "is disabled" in remark:
        return f"an administrator has to enable user '{user}'"
    if _IDENTITY.search(remark):
        return f"check access key and secret key of user '{user}'"
    return f"the request was signed by user '{user}': an administrator has to permit it"


class RefusalLog:
    """Logs each refusal of one client once, as an error: a consumer repeats its requests every few seconds,
    and without a permission looks like one without messages. After an hour it is logged again."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._logged_ms: dict[str, int] = {}

    def report(self, whose: str, error: KourouError) -> bool:
        """Whether `error` is a refusal: then it is logged here, unless it was."""
        if isinstance(error, AccountLimitError):
            # Without the time to wait, which differs.
            if self._is_new(f"{error.account} {error.limit}"):
                _log.warning("%s: waits as long as the broker says, also later: %s", whose, error)
            return True
        if not isinstance(error, AccessDeniedError):
            return False
        if self._is_new(error.remark):
            _log.error("%s: refused, and will be until it is permitted: %s", whose, error)
        return True

    def _is_new(self, what: str) -> bool:
        now_ms = self._clock.monotonic_ms()
        logged_ms = self._logged_ms.get(what)
        if logged_ms is not None and now_ms - logged_ms < _AGAIN_MS:
            return False
        if len(self._logged_ms) >= _MAX_KNOWN:
            self._logged_ms.clear()
        self._logged_ms[what] = now_ms
        return True
