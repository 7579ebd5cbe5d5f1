"""LoginBackoff: after a server has rejected a login, a client repeats its requests less and less often.

Servers lock out an address and user after some wrong logins. The loops of one client (heartbeats, pulls,
routes, offsets) share an account: with a pause for each loop they would still lock out the other clients of
that user at the same address. So there is one pause for each server. As long as it lasts, requests with a
code that was rejected fail at once with the server's last answer and are not sent; sends, too, as an
application may repeat them in a loop. Then a single request checks whether the login is accepted now.
Other codes are sent: a name server may serve routes to unknown users, and reject everything else. A missing
permission is not a wrong login; servers do not count it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kourou.client.core.refusals import is_rejected_login
from kourou.clock import Clock
from kourou.errors import AccessDeniedError, ResponseError

FIRST_PAUSE_MS: Final = 1_000
MAX_PAUSE_MS: Final = 30_000


@dataclass(slots=True)
class _Rejected:
    """The state of one server; its `codes` are not sent until `until_ms`."""

    error: AccessDeniedError
    until_ms: int
    pause_ms: int = FIRST_PAUSE_MS
    is_probing: bool = False
    codes: set[int] = field(default_factory=set)


class LoginBackoff:
    """The servers that have rejected the login of one client, by address."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or Clock()
        self._rejected: dict[str, _Rejected] = {}

    @property
    def has_rejected(self) -> bool:
        """Whether any server has rejected the login; otherwise neither requests nor successes matter here."""
        return bool(self._rejected)

    def check(self, address: str, code: int) -> None:
        """Called before a request: AccessDeniedError if it must not be sent now."""
        rejected = self._rejected.get(address)
        if rejected is None or code not in rejected.codes:
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms < rejected.until_ms:
            last = rejected.error
            raise AccessDeniedError(
                last.code,
                last.remark,
                last.address,
                user=last.user,
                remedy=last.remedy,
                wait_ms=rejected.until_ms - now_ms,
            )
        # If this request gets no answer, another one is sent after the same pause.
        rejected.is_probing = True
        rejected.until_ms = now_ms + rejected.pause_ms

    def answered(self, address: str, code: int, error: ResponseError | None = None) -> None:
        """A server has answered a request, with an error or without one."""
        rejected = self._rejected.get(address)
        if not is_rejected_login(error):
            if rejected is not None and code in rejected.codes:
                del self._rejected[address]
            return
        now_ms = self._clock.monotonic_ms()
        if rejected is None:
            rejected = self._rejected[address] = _Rejected(error, now_ms + FIRST_PAUSE_MS)
        elif rejected.is_probing:
            rejected.is_probing = False
            rejected.error = error
            rejected.pause_ms = min(2 * rejected.pause_ms, MAX_PAUSE_MS)
            rejected.until_ms = now_ms + rejected.pause_ms
        rejected.codes.add(code)
