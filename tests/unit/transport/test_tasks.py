from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from kourou.transport.tasks import TaskOwner


async def dies() -> None:
    raise OSError("gone")


async def waits() -> None:
    await asyncio.Event().wait()


async def test_the_death_of_a_task_reaches_who_waits() -> None:
    owner = TaskOwner("service")
    owner.start(dies(), "reader")
    with pytest.raises(OSError, match="gone"):
        await owner.wait_failed()
    await owner.stop()


async def test_stop_cancels_tasks_and_releases_who_waits() -> None:
    owner = TaskOwner("service")
    task = owner.start(waits(), "reader")
    waiter = asyncio.create_task(owner.wait_failed())
    await owner.stop()
    await waiter
    assert task.cancelled()
    assert task.get_name() == "service:reader"


async def test_a_failure_without_a_waiter_does_not_outlive_stop() -> None:
    owner = TaskOwner("service")
    owner.fail(OSError("first"))
    owner.fail(OSError("second, logged"))
    await owner.stop()
    with pytest.raises(OSError, match="first"):
        await owner.wait_failed()


async def test_wait_idle_is_bounded() -> None:
    owner = TaskOwner("service")
    task = owner.start(waits(), "reader")
    await owner.wait_idle(0.01)
    assert not task.done()
    await owner.stop()


async def test_a_parent_is_notified_of_its_children() -> None:
    parent = TaskOwner("server")
    child = TaskOwner("service", parent=parent)
    child.start(dies(), "reader")
    with pytest.raises(OSError, match="gone"):
        await parent.wait_failed()
    with pytest.raises(OSError, match="gone"):
        await child.wait_failed()
    await child.stop()
    await parent.stop()


async def test_a_task_that_is_cancelled_from_outside_is_noticed() -> None:
    owner = TaskOwner("test")
    task = owner.start(asyncio.sleep(60), "sleeper")
    await asyncio.sleep(0)
    task.cancel()
    async with asyncio.timeout(5):
        with pytest.raises(RuntimeError, match="sleeper"):
            await owner.wait_failed()
    await owner.stop()


async def test_what_fails_at_the_end_of_the_program_is_no_error(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its main thread has ended: executors take no more work, which left-over clients try to give them."""
    monkeypatch.setattr(threading, "main_thread", threading.Thread)  # one that does not run
    owner = TaskOwner("client", is_logged=True)
    owner.start(dies(), "reader")
    with pytest.raises(OSError, match="gone"):
        await owner.wait_failed()
    await owner.stop()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("is_logged", [False, True])
async def test_a_failure_is_logged_if_it_may_have_no_waiter(
    caplog: pytest.LogCaptureFixture, is_logged: bool
) -> None:
    owner = TaskOwner("client", is_logged=is_logged)
    owner.start(dies(), "reader")
    with pytest.raises(OSError, match="gone"):
        await owner.wait_failed()
    assert [record.getMessage() for record in caplog.records] == ["client failed"] * is_logged
    await owner.stop()


async def test_one_task_cancelled_by_a_stranger_is_not_taken_for_the_end_of_the_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    owner = TaskOwner("client", is_logged=True, title="producer billing")
    owner.start(waits(), "routes")
    heartbeat = owner.start(waits(), "heartbeat")
    await asyncio.sleep(0)
    heartbeat.cancel()
    with pytest.raises(RuntimeError, match="task client:heartbeat was cancelled from outside"):
        await owner.wait_failed()
    assert "not stopped" not in caplog.text
    await owner.stop()
