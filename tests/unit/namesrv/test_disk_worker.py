"""The thread that writes files: order, bound, and a disk that hangs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, cast

import pytest

from kourou.errors import RequestError
from kourou.namesrv import disk_worker
from kourou.namesrv.disk_worker import MAX_WAITING, DiskWorker
from kourou.protocol.codes import ResponseCode
from kourou.transport.request import Request


class Asked:
    """Stands for a request: only its answer matters here."""

    def __init__(self) -> None:
        self.replies = 0

    def reply(self, *, remark: str | None = None) -> None:
        self.replies += 1


class Desk:
    """Hands requests to a DiskWorker and keeps the tasks they become."""

    def __init__(self) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.worker = DiskWorker(self._start)

    def _start(self, request: Request, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.create_task(work))

    def submit(self, write: Any) -> Asked:
        asked = Asked()
        self.worker.reply_after(cast(Request, asked), write)
        return asked


async def test_writes_happen_in_order_and_before_their_answers() -> None:
    desk = Desk()
    written: list[int] = []
    asked = [desk.submit(lambda number=number: written.append(number)) for number in range(20)]
    assert [each.replies for each in asked] == [0] * 20
    await asyncio.gather(*desk.tasks)
    assert written == list(range(20))
    assert [each.replies for each in asked] == [1] * 20
    desk.worker.stop()


async def test_a_failed_write_is_not_answered_with_success() -> None:
    desk = Desk()
    asked = desk.submit(lambda: 1 / 0)
    (result,) = await asyncio.gather(*desk.tasks, return_exceptions=True)
    assert isinstance(result, ZeroDivisionError) and asked.replies == 0
    desk.worker.stop()


async def test_a_disk_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_worker, "TIMEOUT_S", 0.01)
    desk, released = Desk(), threading.Event()
    asked = [desk.submit(released.wait) for _ in range(MAX_WAITING)]
    with pytest.raises(RequestError, match="100 changes wait for the disk already") as busy:
        desk.submit(released.wait)
    assert busy.value.response_code == ResponseCode.SYSTEM_BUSY
    results = await asyncio.gather(*desk.tasks, return_exceptions=True)
    assert {str(result) for result in results} == {
        "changed in memory, but not on disk: no answer from it within 0.01 s"
    }
    assert sum(each.replies for each in asked) == 0
    released.set()
    desk.tasks.clear()
    monkeypatch.setattr(disk_worker, "TIMEOUT_S", 4.0)
    while True:  # the thread works off what was given up; then there is room again
        try:
            desk.submit(lambda: None)
            break
        except RequestError:
            await asyncio.sleep(0)
    await asyncio.gather(*desk.tasks)
    desk.worker.stop()
