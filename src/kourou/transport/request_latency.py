"""RequestLatency: how long requests take, by request and response code, in Apache's ranges.

Requests are measured from the read that brought them to the response, also if that comes much later, as that
of a held pull. Sends and pulls by the fast paths are counted together, once per run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kourou.metrics.families import Distribution, Sample
from kourou.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from kourou.transport.request import Request

RPC_BOUNDS_MS: Final = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0)
"""Apache's."""
_RANGES: Final = len(RPC_BOUNDS_MS) + 1
_PULLS: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
# A pull that takes longer was held, or waited for the disk.
_LONG_POLLING_MS: Final = 5.0
_PROTOCOL: Final = "remoting"

# Request code, response code, whether the sender wants a response, whether it was a held pull.
_Key = tuple[int, int, bool, bool]


class RequestLatency:
    """Counts per kind of request. `now_s` is the clock of the event loop."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._counts: dict[_Key, list[int]] = {}
        self._total_ms: dict[_Key, float] = {}

    def begin(self, request: Request) -> None:
        """A request is to be handled."""
        request.meter = self
        request.arrived_s = request.connection.last_heard

    def answered(self, request: Request, code: int) -> None:
        """A request has its response."""
        elapsed_ms = (self._now_s() - request.arrived_s) * 1000
        is_held = elapsed_ms > _LONG_POLLING_MS and request.code in _PULLS
        self._add((request.code, code, request.is_oneway, is_held), elapsed_ms, 1)

    def sends(self, requests: int, code: int, elapsed_ms: float) -> None:
        """So many sends were handled together."""
        self._add((RequestCode.SEND_MESSAGE_V2, code, False, False), elapsed_ms, requests)

    def pulls(self, requests: int, elapsed_s: float) -> None:
        """So many pulls, which arrived together, were answered together with messages."""
        elapsed_ms = elapsed_s * 1000
        key = RequestCode.PULL_MESSAGE, ResponseCode.SUCCESS, False, elapsed_ms > _LONG_POLLING_MS
        self._add(key, elapsed_ms, requests)

    def _add(self, key: _Key, elapsed_ms: float, times: int) -> None:
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = [0] * _RANGES
            self._total_ms[key] = 0.0
        counts[bisect_left(RPC_BOUNDS_MS, elapsed_ms)] += times
        self._total_ms[key] += elapsed_ms * times

    def samples(self) -> Iterator[Sample]:
        """What was counted, with the labels of the metric."""
        for key, counts in list(self._counts.items()):
            request_code, response_code, is_oneway, is_held = key
            labels = (
                _name(RequestCode, request_code),
                _name(ResponseCode, response_code),
                "true" if is_held else "false",
                "oneway" if is_oneway else "success",
                _PROTOCOL,
            )
            yield labels, Distribution(RPC_BOUNDS_MS, tuple(counts), self._total_ms[key])


def _name(codes: type[RequestCode] | type[ResponseCode], code: int) -> str:
    """Apache's label: the name of a code, or the number of one that has none."""
    try:
        return codes(code).name.lower()
    except ValueError:
        return str(code)
