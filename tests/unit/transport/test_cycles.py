"""A pass opens once per loop iteration, ends once, and flushes what it touched."""

from __future__ import annotations

import asyncio

import pytest

from kourou.transport.cycles import Cycles


class Recorder:
    """Something to flush, writing its name into a shared list."""

    def __init__(self, name: str, events: list[str]) -> None:
        self.name = name
        self.events = events

    def flush(self) -> None:
        self.events.append(f"flush {self.name}")


async def test_all_work_of_one_iteration_ends_in_one_pass() -> None:
    events: list[str] = []
    cycles = Cycles(
        begin=lambda: events.append("begin"),
        end=lambda: events.append("end"),
        after=lambda: events.append("after"),
    )
    cycles.mark_dirty(Recorder("a", events))
    cycles.open()
    cycles.mark_dirty(Recorder("b", events))
    await asyncio.sleep(0)
    assert events == ["begin", "end", "flush a", "flush b", "after"]


async def test_what_the_end_marks_goes_out_in_the_same_pass() -> None:
    events: list[str] = []
    cycles = Cycles(end=lambda: cycles.mark_dirty(Recorder("late", events)))
    cycles.open()
    cycles.close()
    assert events == ["flush late"]


async def test_an_early_close_leaves_later_work_to_a_new_pass() -> None:
    events: list[str] = []
    cycles = Cycles(begin=lambda: events.append("begin"), end=lambda: events.append("end"))
    cycles.open()
    cycles.close()
    cycles.open()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert events == ["begin", "end", "begin", "end"]


async def test_responses_of_urgent_work_leave_at_once() -> None:
    events: list[str] = []
    cycles = Cycles(begin=lambda: events.append("begin"), end=lambda: events.append("end"))
    cycles.run_now(lambda: cycles.mark_dirty(Recorder("alone", events)))
    assert events == ["begin", "end", "flush alone"]
    events.clear()
    cycles.open()
    cycles.run_now(lambda: cycles.mark_dirty(Recorder("first", events)))
    assert events == ["begin", "flush first"]
    cycles.mark_dirty(Recorder("second", events))
    await asyncio.sleep(0)
    assert events == ["begin", "flush first", "end", "flush second"]


async def test_urgent_work_that_fails_leaves_no_pass_open() -> None:
    events: list[str] = []
    cycles = Cycles(begin=lambda: events.append("begin"), end=lambda: events.append("end"))

    def fail() -> None:
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        cycles.run_now(fail)
    cycles.open()
    await asyncio.sleep(0)
    assert events == ["begin", "end", "begin", "end"]


async def test_closing_twice_does_nothing() -> None:
    events: list[str] = []
    cycles = Cycles(end=lambda: events.append("end"))
    cycles.close()
    assert events == []


async def test_a_failing_end_is_noticed_and_ready_responses_still_go_out() -> None:
    events: list[str] = []
    failures: list[BaseException] = []

    def end() -> None:
        raise OSError("disk")

    cycles = Cycles(end=end, failed=failures.append)
    cycles.mark_dirty(Recorder("a", events))
    cycles.close()
    assert events == ["flush a"]
    assert [str(failure) for failure in failures] == ["disk"]


async def test_a_failing_end_without_an_owner_is_raised() -> None:
    def end() -> None:
        raise OSError("disk")

    cycles = Cycles(end=end)
    cycles.open()
    with pytest.raises(OSError, match="disk"):
        cycles.close()
