"""Standard input beside an event loop: read in a thread that does not delay Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from typing import Final

_CHUNK_BYTES: Final = 64 * 1024
_AHEAD: Final = 4


async def stdin_chunks(descriptor: int | None = None) -> AsyncIterator[bytes]:
    """Chunks of standard input until its end. OSErrors propagate."""
    source = sys.stdin.fileno() if descriptor is None else descriptor
    loop = asyncio.get_running_loop()
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    room = threading.Semaphore(_AHEAD)

    def read() -> None:
        # os.read, not sys.stdin: a blocked reader would hold the buffer's lock when Python exits.
        chunk: bytes | OSError = b"more"
        while chunk and not isinstance(chunk, OSError):
            room.acquire()
            try:
                chunk = os.read(source, _CHUNK_BYTES)
            except OSError as error:
                chunk = error
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            except RuntimeError:
                return  # the loop has ended

    # A daemon thread, as input may never come.
    threading.Thread(target=read, name="standard-input", daemon=True).start()
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise chunk
        room.release()
        yield chunk


async def lines_of(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of chunks, without line ends, including an unterminated last line."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest.removesuffix(b"\r")


async def all_of(chunks: AsyncIterator[bytes]) -> bytes:
    """All chunks as one."""
    return b"".join([chunk async for chunk in chunks])
