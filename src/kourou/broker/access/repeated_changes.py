"""RepeatedChanges: the same change of users or policies, which reaches a master twice.

An operator's tool writes to every replica of a cluster. A slave of ours passes the request on to its master
(auth_following.py), which gets it from the tool, too, before or after; the second one would be refused, as
the user is there already, and the tool would stop. It is the same request if it has the same signature; it
is not repeated by the operator if one of the two was passed on. Only the last change of each user is
remembered, for some seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kourou.protocol.signature import ACCESS_KEY, SIGNATURE

if TYPE_CHECKING:
    from kourou.transport.request import Request

PASSED_ON: Final = "kourouPassedOn"
"""The remark of a request that a slave passes on. It is not signed: fields would be."""

_REMEMBERED_S: Final = 10.0


@dataclass(slots=True)
class _Change:
    code: int
    signature: str
    done_s: float
    is_from_tool: bool


class RepeatedChanges:
    """The last change of each user."""

    def __init__(self, monotonic_s: Callable[[], float]) -> None:
        self._monotonic_s = monotonic_s
        self._last: dict[str, _Change] = {}

    def is_repeated(self, request: Request) -> bool:
        """Whether a request was done already, when it came on the other way."""
        fields = request.ext_fields
        last = self._last.get(fields.get(ACCESS_KEY, ""))
        if (
            last is None
            or (last.code, last.signature) != (request.code, fields.get(SIGNATURE))
            or self._monotonic_s() - last.done_s > _REMEMBERED_S
        ):
            return False
        if request.head.remark == PASSED_ON:
            return True
        was_from_tool, last.is_from_tool = last.is_from_tool, True
        return not was_from_tool

    def done(self, request: Request) -> None:
        """A request was done."""
        fields = request.ext_fields
        user, signature = fields.get(ACCESS_KEY), fields.get(SIGNATURE)
        if user and signature:
            is_from_tool = request.head.remark != PASSED_ON
            self._last[user] = _Change(request.code, signature, self._monotonic_s(), is_from_tool)
