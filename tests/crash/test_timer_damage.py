"""The files of the timers, lost and damaged in each way: every message is delivered once all the same.

They are derived from the CommitLog. What does not fit is noticed at the start, named in the log, and made
anew; what was delivered before is found in the CommitLog and not delivered again.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kourou.protocol.names import TIMER_TOPIC
from kourou.testing.clock import FakeClock
from tests.e2e.broker.broker_kit import Peer
from tests.e2e.broker.delay_kit import clocked, count_in, pulled

LOG_FILE_BYTES = 1040  # 19 units
DELIVERED, WAITING = 20, 30
SEND_MS = 1_800_000_000_000


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def garbled(path: Path) -> None:
    path.write_bytes(random.Random(7).randbytes(path.stat().st_size))


def cut_short(path: Path) -> None:
    """In the midst of what was written."""
    path.write_bytes(path.read_bytes()[:90])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def removed(path: Path) -> None:
    path.unlink()


def used_byte(path: Path, raw: bytes) -> int:
    """One that matters: of a unit that waits, of the last slot, of a checkpoint's time."""
    if path.name == "timerwheel":
        return len(raw.rstrip(b"\0")) - 1
    return 5 if path.name == "timercheck" else 60


def flipped(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[used_byte(path, raw)] ^= 0x10
    path.write_bytes(raw)


def partly_zeroed(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    begin = max(0, used_byte(path, raw) - 20)
    raw[begin : begin + 52] = bytes(52)
    path.write_bytes(raw[: path.stat().st_size])


DAMAGES = (zeroed, garbled, cut_short, emptied, removed, flipped, partly_zeroed)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a broker that has delivered some messages, and was stopped while others wait."""
    root = tmp_path_factory.mktemp("timers")
    asyncio.run(fill(root))
    return root


async def fill(root: Path) -> None:
    clock = FakeClock(SEND_MS)
    async with clocked(root, clock, mapped_file_size_timer_log=LOG_FILE_BYTES) as peer:
        for number in range(DELIVERED + WAITING):
            delay_ms = 5_000 if number % 5 > 2 else 60_000 + 1_000 * (number % 7)
            await peer.send(properties=f"UNIQ_KEY\x01ID{number}\x02TIMER_DELAY_MS\x01{delay_ms}\x02")
        await until_wheel_is_at(peer, clock())
        clock.advance(8_000)
        await pulled(peer, DELIVERED)


def paths(root: Path, which: str) -> list[Path]:
    store = root / "store"
    log = sorted((store / "timerlog").iterdir())
    assert len(log) == 3
    check, wheel = store / "config" / "timercheck", store / "timerwheel"
    return {
        "timerlog": log,
        **{f"file {number} of timerlog": [path] for number, path in enumerate(log)},
        "timerwheel": [wheel],
        "timercheck": [check],
        "timercheck and timerwheel": [check, wheel],
        "all": [check, wheel, *log],
    }[which]


FAST_CASES = [
    *(("timerlog", damage) for damage in DAMAGES),
    *((which, damage) for which in ("timerwheel", "timercheck") for damage in (removed, flipped)),
    ("all", removed),
]
SLOW_CASES = [
    *((which, damage) for which in ("timerwheel", "timercheck") for damage in DAMAGES),
    *((f"file {number} of timerlog", damage) for number in range(3) for damage in (removed, flipped)),
    ("timercheck and timerwheel", removed),
]
CASES = [
    *((case, ()) for case in FAST_CASES),
    *((case, pytest.mark.slow) for case in SLOW_CASES if case not in FAST_CASES),
]


async def until_wheel_is_at(peer: Peer, now_ms: int) -> None:
    """Wait until every message is entered, and every slot taken out that is over."""
    services = peer.controller.services
    end = services.store.max_offset_in_queue(TIMER_TOPIC, 0)
    assert services.timers is not None
    async with asyncio.timeout(10):
        while services.timers.queue_offset < end or services.timers.read_ms < now_ms // 1000 * 1000:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def assert_each_once(root: Path, clock: FakeClock, **keys: object) -> None:
    """Nothing is delivered before its time, and everything once when it is over."""
    async with clocked(root, clock, mapped_file_size_timer_log=LOG_FILE_BYTES, **keys) as peer:
        await until_wheel_is_at(peer, clock())
        assert count_in(peer) == DELIVERED
        clock.advance(70_000)
        found = await pulled(peer, DELIVERED + WAITING)
        await until_wheel_is_at(peer, clock())
        assert count_in(peer) == DELIVERED + WAITING
        assert {message.properties["UNIQ_KEY"] for message in found} == {
            f"ID{number}" for number in range(DELIVERED + WAITING)
        }


@pytest.mark.parametrize(
    ("which", "damage"),
    [pytest.param(*case, id=f"{case[0]} {case[1].__name__}", marks=marks) for case, marks in CASES],
)
async def test_damaged_files_lose_no_message_and_repeat_none(
    stopped: Path, folder: Path, which: str, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(stopped, folder, dirs_exist_ok=True)
    for path in paths(folder, which):
        damage(path)
    with caplog.at_level(logging.WARNING):
        await assert_each_once(folder, FakeClock(SEND_MS + 9_000))
    said = [
        record.getMessage()
        for record in caplog.records
        if "derived" in record.getMessage() or "rebuilt" in record.getMessage()
    ]
    assert len(said) == 1, said
    assert any(name in said[0] for name in ("timerlog", "timerwheel", "timercheck"))


async def test_a_second_start_after_the_damage_finds_sound_files(
    stopped: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(stopped, folder, dirs_exist_ok=True)
    for path in paths(folder, "timerlog"):
        garbled(path)
    clock = FakeClock(SEND_MS + 9_000)
    async with clocked(folder, clock, mapped_file_size_timer_log=LOG_FILE_BYTES) as peer:
        await until_wheel_is_at(peer, clock())
        timers = peer.controller.services.timers
        assert timers is not None and timers.damage_count == 1
    caplog.clear()
    await assert_each_once(folder, clock)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_sound_files_are_not_reported(
    stopped: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(stopped, folder, dirs_exist_ok=True)
    await assert_each_once(folder, FakeClock(SEND_MS + 9_000))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_files_damaged_under_a_running_broker_are_rebuilt(
    stopped: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(stopped, folder, dirs_exist_ok=True)
    clock = FakeClock(SEND_MS + 9_000)
    async with clocked(folder, clock, mapped_file_size_timer_log=LOG_FILE_BYTES) as peer:
        await until_wheel_is_at(peer, clock())
        for path in paths(folder, "timerlog"):
            with path.open("r+b") as file:
                file.write(bytes(LOG_FILE_BYTES))
        timers = peer.controller.services.timers
        assert timers is not None
        timers._log._blocks.clear()  # as when others have been read since
        clock.advance(53_000)  # the first of those that wait are due, and are late by a slot after this
        await until_wheel_is_at(peer, clock())
        clock.advance(1_000)
        await until_wheel_is_at(peer, clock())
        assert DELIVERED < count_in(peer) < DELIVERED + WAITING
        clock.advance(16_000)
        assert len(await pulled(peer, DELIVERED + WAITING)) == DELIVERED + WAITING
        await until_wheel_is_at(peer, clock())
        assert count_in(peer) == DELIVERED + WAITING
        assert timers.damage_count == 1
        assert len([record for record in caplog.records if "rebuilt" in record.getMessage()]) == 1


@pytest.mark.parametrize("is_stopped_halfway", [False, True])
async def test_what_apache_delivered_is_not_delivered_again(
    folder: Path, is_stopped_halfway: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its deliveries do not name the record they were made from."""
    with monkeypatch.context() as patch:
        patch.setattr("kourou.broker.delay.deliveries.mark_of", lambda _: 0)
        await fill(folder)
    removed(folder / "store" / "config" / "timercheck")
    clock = FakeClock(SEND_MS + 9_000)
    if is_stopped_halfway:
        async with clocked(
            folder, clock, mapped_file_size_timer_log=LOG_FILE_BYTES, timer_stop_enqueue=True
        ) as peer:
            assert count_in(peer) == DELIVERED
    await assert_each_once(folder, clock)
