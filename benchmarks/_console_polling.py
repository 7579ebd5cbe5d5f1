"""Consoles that are open, without their browsers: each repeats the requests that a page was seen to make."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Poll:
    """One request of a page: its target, and when it was made, from the beginning of the recording."""

    target: str
    at_s: float


class Consoles:
    """Open consoles, one for each recording, which repeats itself every `period_s`. Use it in a `with`
    statement; `requests` is the number of answers."""

    def __init__(self, url: str, recordings: Sequence[Sequence[Poll]], period_s: float) -> None:
        self._address = urlsplit(url)
        self._recordings = recordings
        self._period_s = period_s
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="consoles")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._failure: BaseException | None = None
        self._is_started = threading.Event()
        self.requests = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_started.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._loop is not None and self._stopping is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        if self._failure is not None:
            raise RuntimeError("a console got no answer") from self._failure

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        count = len(self._recordings)
        tasks = [
            asyncio.create_task(self._repeat(polls, self._period_s * number / count))
            for number, polls in enumerate(self._recordings)
        ]
        self._is_started.set()
        await self._stopping.wait()
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                self._failure = result

    async def _repeat(self, polls: Sequence[Poll], delay_s: float) -> None:
        assert self._address.hostname is not None
        # Browsers do not start at the same moment.
        await asyncio.sleep(delay_s)
        reader, writer = await asyncio.open_connection(self._address.hostname, self._address.port)
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                for poll in polls:
                    await asyncio.sleep(max(0.0, began + poll.at_s - loop.time()))
                    await self._get(poll.target, reader, writer)
                await asyncio.sleep(max(0.0, began + self._period_s - loop.time()))
        finally:
            writer.close()

    async def _get(self, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (f"GET {target} HTTP/1.1", f"Host: {self._address.netloc}", "Accept: application/json")
        writer.write("\r\n".join([*lines, "Accept-Encoding: gzip", "", ""]).encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        status = head.split(" ", 2)[1]
        if status != "200":
            raise RuntimeError(f"{status} for {target}")
        length = next(
            int(line.partition(":")[2]) for line in head.split("\r\n") if line.startswith("content-length:")
        )
        await reader.readexactly(length)
        self.requests += 1
