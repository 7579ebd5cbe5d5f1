"""RetentionService: under pressure only what live groups have read goes, and the loop never waits for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest

from kourou.broker.storage.retention_service import RetentionService
from kourou.store.disk.files import DiskUsage
from kourou.store.log.log_file import LogFile
from kourou.testing.faulty_files import FaultyFiles
from tests.unit.broker.admin_kit import AdminBroker, admin_broker
from tests.unit.broker.tables_kit import consumer
from tests.unit.store.message_stores import faulty

DAY_MS = 24 * 3_600_000
PER_FILE = 3  # messages of 20,000 bytes in a file of the log


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[AdminBroker]:
    async with admin_broker(tmp_path) as made:
        yield made


def full_log(broker: AdminBroker, files: int = 4) -> None:
    """Messages of topic T, queue 0, on disk, while the disk is 86 % full."""
    broker.put(*[b"x" * 20_000] * (PER_FILE * files))
    broker.store.flush()
    faulty(broker.store_kit).usage = DiskUsage(100, 14, 14)


def service(broker: AdminBroker) -> RetentionService:
    return broker.retention


async def deleted(keeper: RetentionService, *, manual: bool = False) -> int:
    done = await keeper.run(manual=manual)
    assert done is not None
    return len(done.deleted)


def look(broker: AdminBroker, keeper: RetentionService) -> None:
    broker.live_groups.look()


# -- who counts ----------------------------------------------------------------------------------


async def test_without_any_group_nothing_goes_before_its_time(broker: AdminBroker) -> None:
    full_log(broker)
    assert await deleted(service(broker)) == 0


@pytest.mark.parametrize(("read", "files"), [(0, 0), (PER_FILE - 1, 0), (PER_FILE, 1), (2 * PER_FILE + 1, 2)])
@pytest.mark.parametrize("is_cold", [False, True])
async def test_what_the_slowest_group_has_read_goes(
    broker: AdminBroker, read: int, files: int, is_cold: bool
) -> None:
    full_log(broker)
    broker.offsets.commit("slow", "T", 0, read, "")
    broker.offsets.commit("fast", "T", 0, 4 * PER_FILE, "")
    if is_cold:
        broker.go_cold()
    assert await deleted(service(broker)) == files


async def test_a_group_that_is_away_for_long_counts_no_more(broker: AdminBroker) -> None:
    full_log(broker)
    keeper = service(broker)
    broker.offsets.commit("away", "T", 0, 0, "")
    broker.offsets.commit("CG", "T", 0, 0, "")
    look(broker, keeper)
    broker.clock.advance(broker.config.unread_group_reserved_time * 3_600_000)
    broker.offsets.commit("CG", "T", 0, 2 * PER_FILE, "")
    look(broker, keeper)
    assert await deleted(keeper) == 0
    broker.clock.advance(1)
    assert await deleted(keeper) == 2


async def test_a_group_with_members_counts_however_long_its_offsets_stand(broker: AdminBroker) -> None:
    full_log(broker)
    keeper = service(broker)
    for group, offset in (("away", 4 * PER_FILE), ("CG", 0)):
        broker.offsets.commit(group, "T", 0, offset, "")
    look(broker, keeper)
    broker.clock.advance(400 * DAY_MS)
    await broker.connect().heartbeat(consumer("CG"))
    broker.offsets.commit("away", "T", 0, 4 * PER_FILE - 1, "")
    look(broker, keeper)
    assert await deleted(keeper) == 0


async def test_a_delayed_message_that_waits_is_not_read_yet(broker: AdminBroker) -> None:
    broker.put(b"in an hour", topic="SCHEDULE_TOPIC_XXXX", queue_id=17)
    full_log(broker)
    broker.offsets.commit("CG", "T", 0, 4 * PER_FILE, "")
    assert await deleted(service(broker)) == 0


async def test_after_a_clock_was_set_right_files_still_go_in_time(broker: AdminBroker) -> None:
    """A machine without a clock of its own starts in 1970: nothing went until the next start."""
    broker.clock.step(50 * 365 * DAY_MS)
    broker.clock_watch.look()
    full_log(broker)
    faulty(broker.store_kit).usage = DiskUsage(100, 90, 90)
    for log_file in broker.store.log.log_files:
        os.utime(log_file.path, (broker.clock() / 1000,) * 2)
    keeper = service(broker)
    assert await deleted(keeper, manual=True) == 0
    broker.clock.advance(4 * DAY_MS)
    assert await deleted(keeper, manual=True) == 3


async def test_a_disk_that_lets_nothing_go_is_tried_again(broker: AdminBroker) -> None:
    full_log(broker)
    broker.offsets.commit("CG", "T", 0, PER_FILE, "")
    keeper = service(broker)
    faulty(broker.store_kit).fail("remove")
    assert await keeper.run() is None
    assert await deleted(keeper) == 1


# -- where the waiting is done -------------------------------------------------------------------


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What waits for the disk, and in which thread."""
    seen: list[tuple[str, int]] = []

    def watch(owner: type, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            seen.append((name, get_ident()))
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, watched)

    for name in ("remove", "sync_folder", "replace"):
        watch(FaultyFiles, name)
    watch(LogFile, "close")
    return seen


async def test_the_loop_never_waits_while_files_go(
    broker: AdminBroker, waits: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    full_log(broker)
    broker.offsets.commit("CG", "T", 0, 4 * PER_FILE, "")
    waits.clear()
    assert await deleted(service(broker)) >= 3
    assert {name for name, _ in waits} == {"remove", "sync_folder", "replace", "close"}
    assert get_ident() not in {thread for _, thread in waits}


async def test_a_file_that_is_still_read_is_closed_in_a_thread_later(
    broker: AdminBroker, waits: list[tuple[str, int]]
) -> None:
    full_log(broker)
    broker.offsets.commit("CG", "T", 0, PER_FILE, "")
    oldest = broker.store.log.log_files[0]
    oldest.pin()
    keeper = service(broker)
    waits.clear()
    assert await deleted(keeper) == 1
    assert oldest.file.pread(4, 0) != b""
    oldest.unpin()
    await keeper.run()
    assert [thread == get_ident() for name, thread in waits if name == "close"] == [False]


async def test_a_round_that_is_given_up_half_way_leaves_a_log_that_goes_on(broker: AdminBroker) -> None:
    full_log(broker)
    broker.offsets.commit("CG", "T", 0, 4 * PER_FILE, "")
    keeper = service(broker)
    before = len(broker.store.log.log_files)
    for _ in range(40):
        work = asyncio.ensure_future(keeper.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        work.cancel()
        await asyncio.wait([work])
    assert len(broker.store.log.log_files) <= before
    assert await keeper.run() is not None
    broker.put(b"after")
    on_disk = sorted(name for name in os.listdir(broker.store.log.folders[0]))
    assert on_disk[: len(broker.store.log.log_files)] == [f.path.name for f in broker.store.log.log_files]
