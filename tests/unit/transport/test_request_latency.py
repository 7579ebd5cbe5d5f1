"""RequestLatency: labels and ranges of what requests took."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from kourou.metrics.families import Distribution
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.transport.request_latency import RPC_BOUNDS_MS, RequestLatency


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def request(code: int, *, is_oneway: bool = False) -> Any:
    connection = SimpleNamespace(last_heard=100.0)
    return SimpleNamespace(code=code, connection=connection, is_oneway=is_oneway, meter=None, arrived_s=0.0)


def answered(latency: RequestLatency, clock: Clock, code: int, response: int, ms: float, **how: Any) -> None:
    asked = request(code, **how)
    latency.begin(asked)
    assert asked.meter is latency
    clock.now_s = 100.0 + ms / 1000
    latency.answered(cast(Any, asked), response)


def test_labels_are_apaches_names_and_unknown_codes_are_numbers() -> None:
    clock = Clock()
    latency = RequestLatency(clock)
    answered(latency, clock, RequestCode.HEART_BEAT, ResponseCode.SUCCESS, 0.5)
    answered(latency, clock, RequestCode.PULL_MESSAGE, ResponseCode.PULL_NOT_FOUND, 15_000)
    answered(latency, clock, RequestCode.PULL_MESSAGE, ResponseCode.SUCCESS, 1)
    answered(latency, clock, 31_234, 4_321, 0, is_oneway=True)
    latency.sends(64, ResponseCode.SUCCESS, 4)
    found = dict(latency.samples())
    assert list(found) == [
        ("heart_beat", "success", "false", "success", "remoting"),
        ("pull_message", "pull_not_found", "true", "success", "remoting"),
        ("pull_message", "success", "false", "success", "remoting"),
        ("31234", "4321", "false", "oneway", "remoting"),
        ("send_message_v2", "success", "false", "success", "remoting"),
    ]
    sends = found["send_message_v2", "success", "false", "success", "remoting"]
    assert isinstance(sends, Distribution)
    assert dict(zip(RPC_BOUNDS_MS, sends.counts, strict=False))[5.0] == sum(sends.counts) == 64
    assert sends.total == 256
    held = found["pull_message", "pull_not_found", "true", "success", "remoting"]
    assert isinstance(held, Distribution)
    assert held.counts[-1] == 1
