"""HandOverTurns: pulls of old messages are handed over between commit cycles, in a share of the time."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace

import pytest

from kourou.broker.pull.hand_over_turns import MAX_CREDIT_S, MAX_DEBT_S, MAX_WAITING, SHARE, HandOverTurns
from kourou.transport.cycles import Cycles


class Bench:
    """Turns whose clocks stand still, beside a sender."""

    def __init__(self) -> None:
        self.now_s = self.cpu_s = 0.0
        self.is_sending = True
        self.cycles = Cycles()
        self.turns = HandOverTurns(
            self.cycles, lambda: self.is_sending, lambda: self.now_s, lambda: self.cpu_s
        )
        self.done: list[int] = []

    def hand_over(self, number: int, cost_s: float = MAX_CREDIT_S) -> None:
        self.done.append(number)
        self.cpu_s += cost_s

    def wait(self, *numbers: int) -> None:
        for number in numbers:
            assert self.turns.later(partial(self.hand_over, number))


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_they_get_their_share(bench: Bench) -> None:
    assert bench.turns.is_free
    bench.hand_over(0)
    bench.turns.spend()
    assert not bench.turns.is_free
    bench.now_s += MAX_CREDIT_S / SHARE
    assert bench.turns.is_free


async def test_none_is_handed_over_while_a_cycle_is_open(bench: Bench) -> None:
    bench.cycles.open()
    assert not bench.turns.is_free
    bench.wait(1, 2)
    bench.cycles.close()
    assert bench.done == [], "the answers of the cycle are written first"
    await asyncio.sleep(0)
    assert bench.done == [1], "the second has no time left"
    bench.now_s += MAX_CREDIT_S / SHARE
    bench.cycles.open()
    bench.cycles.close()
    await asyncio.sleep(0)
    assert bench.done == [1, 2]


async def test_messages_that_have_come_go_first(bench: Bench) -> None:
    bench.cycles._loop = SimpleNamespace(call_soon=lambda _: None)  # no cycle ends by itself
    bench.cycles.open()
    bench.wait(1)
    for _ in range(2):
        bench.cycles.close()
        bench.cycles.open()
        await asyncio.sleep(0)
        assert bench.done == []
    bench.cycles.close()
    await asyncio.sleep(0)
    assert bench.done == [1]


async def test_nothing_is_asked_of_cycles_when_none_wait(bench: Bench) -> None:
    bench.cycles._loop = SimpleNamespace(call_soon=lambda _: None)
    bench.cycles.open()
    bench.wait(1)
    bench.turns._tick()
    bench.cycles.close()
    bench.cycles.open()
    await asyncio.sleep(0)
    assert bench.cycles._when_closed is None


async def test_debt_is_limited(bench: Bench) -> None:
    assert bench.turns.is_free
    bench.cpu_s += 100.0
    bench.turns.spend()
    assert not bench.turns.is_free
    bench.now_s += 1.1 * MAX_DEBT_S / SHARE
    assert bench.turns.is_free


async def test_a_turn_in_which_nothing_is_handed_over_is_charged(bench: Bench) -> None:
    def handle_singly() -> None:
        bench.cpu_s += MAX_CREDIT_S

    assert bench.turns.later(handle_singly)
    bench.wait(2)
    bench.turns._tick()
    assert bench.done == []


async def test_a_loop_that_is_never_idle_has_turns_too(bench: Bench) -> None:
    bench.cycles.open()
    bench.wait(1)
    bench.turns._tick()
    assert bench.done == [1]


async def test_those_that_wait_go_first_and_do_not_depend_on_cycles(bench: Bench) -> None:
    bench.wait(1)
    assert not bench.turns.is_free
    bench.turns._tick()
    assert bench.done == [1]


async def test_without_sends_none_waits_for_time(bench: Bench) -> None:
    bench.wait(1, 2, 3)
    bench.is_sending = False
    bench.turns._tick()
    assert bench.done == [1, 2, 3]


async def test_a_broker_that_stops_hands_all_over(bench: Bench) -> None:
    bench.wait(1, 2, 3)
    assert bench.turns.is_waited_for
    bench.turns.hurry()
    assert bench.done == [1, 2, 3]
    assert not bench.turns.is_waited_for


async def test_one_that_fails_does_not_hold_up_others(bench: Bench) -> None:
    assert bench.turns.later(partial(int, "no number"))
    bench.wait(2)
    bench.turns.hurry()
    assert bench.done == [2]


async def test_only_so_many_wait(bench: Bench) -> None:
    bench.wait(*range(MAX_WAITING))
    assert not bench.turns.later(lambda: None)
