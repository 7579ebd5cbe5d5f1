"""DiskWorker: the thread that writes files, so that the event loop never waits on a disk.

One thread, so writes happen in the order of their requests. At most `MAX_WAITING` requests wait
for it; one more is answered SYSTEM_BUSY.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kourou.errors import ConfigError, RequestError
from kourou.protocol.codes import ResponseCode
from kourou.transport.request import Request

# Administrators change something now and then; a hundred at once is a loop gone wrong.
MAX_WAITING = 100
# Longer than any healthy disk takes, shorter than the 5 s that Apache's tools wait.
TIMEOUT_S = 4.0

StartRequest = Callable[[Request, Coroutine[Any, Any, None]], None]


class DiskWorker:
    """Writes to disk for requests; each is answered when its write has ended."""

    def __init__(self, start: StartRequest) -> None:
        self._start = start
        self._threads = ThreadPoolExecutor(max_workers=1, thread_name_prefix="namesrv-disk")
        self._waiting = 0

    def reply_after(self, request: Request, write: Callable[[], None], remark: str | None = None) -> None:
        """Run `write` in the thread and answer success with `remark`, or with what went wrong."""
        if self._waiting >= MAX_WAITING:
            raise RequestError(ResponseCode.SYSTEM_BUSY, f"{MAX_WAITING} changes wait for the disk already")
        self._waiting += 1
        self._start(request, self._write_and_reply(request, write, remark))

    async def _write_and_reply(self, request: Request, write: Callable[[], None], remark: str | None) -> None:
        loop = asyncio.get_running_loop()
        written = loop.run_in_executor(self._threads, write)
        # Counted by the write, not by the wait: a write that outlasts its request still holds the thread.
        written.add_done_callback(self._written)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await asyncio.shield(written)
        except TimeoutError:
            raise _not_on_disk(f"no answer from it within {TIMEOUT_S} s") from None
        except ConfigError as error:
            raise _not_on_disk(str(error)) from error
        request.reply(remark=remark)

    def _written(self, written: asyncio.Future[None]) -> None:
        self._waiting -= 1
        if not written.cancelled():
            written.exception()  # seen, even when its request was answered by the timeout

    def stop(self) -> None:
        """Let the thread end with the write it is at."""
        self._threads.shutdown(wait=False)


def _not_on_disk(reason: str) -> RequestError:
    return RequestError(ResponseCode.SYSTEM_ERROR, f"changed in memory, but not on disk: {reason}")
