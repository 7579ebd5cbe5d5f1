"""FilterProcess: the process that one filter runs in, from its start to its end.

A call has a time limit. A process that exceeds it, or breaks the protocol, is killed; the next call starts
another. What it prints is logged.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from kourou.filters.calls import LENGTH_BYTES, MAX_MESSAGE_BYTES, Call, Reply, decode_reply, framed

_START_TIMEOUT_S: Final = 30.0
_END_TIMEOUT_S: Final = 5.0
_MAX_LOGGED_LINES: Final = 100
_LINE_BYTES: Final = 4096
_STOPPED: Final = "the broker stops"
_PROGRAM: Final = "kourou.filters.worker"
_log = logging.getLogger(__name__)


class FilterProcessError(Exception):
    """The process did not answer; the message says why."""


class FilterStartError(FilterProcessError):
    """There is no process: it does not start, whatever it is asked."""


class FilterProcess:
    """The process of the filter `name`, whose factory is `module:name`. One call at a time."""

    def __init__(self, name: str, factory: str, memory_mb: int) -> None:
        self._name = name
        self._words = (factory, str(memory_mb))
        self._process: asyncio.subprocess.Process | None = None
        self._log_task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._is_stopped = False

    @property
    def pid(self) -> int | None:
        """Of the process, if there is one."""
        return None if self._process is None else self._process.pid

    async def call(self, parameters: str, records: Sequence[bytes], timeout_s: float) -> Reply:
        """Have records judged. FilterProcessError: there is no answer within the time, or no process."""
        # A consumer that goes away meanwhile does not cost the others the process.
        call = asyncio.ensure_future(self._call(parameters, records, timeout_s))
        call.add_done_callback(_retrieve)
        return await asyncio.shield(call)

    async def _call(self, parameters: str, records: Sequence[bytes], timeout_s: float) -> Reply:
        async with self._turn:
            process = self._process or await self._start()
            try:
                async with asyncio.timeout(timeout_s):
                    return await _exchange(process, Call(parameters, list(records)))
            except TimeoutError:
                await self._kill()
                raise FilterProcessError(
                    f"it took longer than {timeout_s * 1000:.0f} ms (filterPluginTimeoutMillis) for "
                    f"{len(records)} messages"
                ) from None
            except (OSError, EOFError, msgspec.DecodeError) as error:
                await self._kill()
                if self._is_stopped:
                    raise FilterStartError(_STOPPED) from None
                raise FilterProcessError(f"its process ended: {_status(process, error)}") from None
            except BaseException:  # the answer that comes would be taken for that of the next call
                await self._kill()
                raise

    async def stop(self) -> None:
        """End the process, and the calls with it."""
        self._is_stopped = True
        await self._kill()
        async with self._turn:  # of a process that was just being started
            await self._kill()

    async def _start(self) -> asyncio.subprocess.Process:
        if self._is_stopped:
            raise FilterStartError(_STOPPED)
        try:
            process = self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", _PROGRAM, *self._words),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise FilterStartError(f"its process cannot be created: {error.strerror or error}") from None
        self._log_task = asyncio.create_task(self._log_lines(process), name=f"filter-log-{self._name}")
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                ready = await _receive(process)
        except TimeoutError:
            await self._kill()
            raise FilterStartError(f"it was not ready within {_START_TIMEOUT_S:.0f} s") from None
        except (OSError, EOFError, msgspec.DecodeError) as error:
            await self._kill()
            raise FilterStartError(f"its process did not start: {_status(process, error)}") from None
        except BaseException:
            await self._kill()
            raise
        if ready.failure is not None:
            await self._kill()
            raise FilterStartError(ready.failure)
        _log.info("filter %s runs in process %d", self._name, process.pid)
        return process

    async def _kill(self) -> None:
        process, self._process = self._process, None
        log_task, self._log_task = self._log_task, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        if process.stdin is not None:
            process.stdin.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _END_TIMEOUT_S)
        if log_task is not None:
            await asyncio.wait({log_task}, timeout=_END_TIMEOUT_S)

    async def _log_lines(self, process: asyncio.subprocess.Process) -> None:
        """Log what it prints, a bounded number of lines; the rest is read and dropped."""
        assert process.stderr is not None
        count, rest = 0, b""
        with suppress(OSError):
            while chunk := await process.stderr.read(_LINE_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                if len(rest) > _LINE_BYTES:
                    lines, rest = [*lines, rest], b""
                for line in lines:
                    count += 1
                    if count <= _MAX_LOGGED_LINES:
                        _log.warning("filter %s prints: %s", self._name, line.decode("utf-8", "replace"))
                    if count == _MAX_LOGGED_LINES:
                        _log.warning("filter %s prints more, which is not logged", self._name)


async def _exchange(process: asyncio.subprocess.Process, call: Call) -> Reply:
    assert process.stdin is not None
    process.stdin.writelines(framed(call))
    await process.stdin.drain()
    reply = await _receive(process)
    if reply.bad_parameters is None and len(reply.verdicts) != len(call.records):
        raise EOFError(f"{len(reply.verdicts)} verdicts for {len(call.records)} messages")
    return reply


async def _receive(process: asyncio.subprocess.Process) -> Reply:
    assert process.stdout is not None
    length = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES), "big")
    if length > MAX_MESSAGE_BYTES:
        raise EOFError(f"an answer of {length} bytes")
    return decode_reply(await process.stdout.readexactly(length))


def _retrieve(call: asyncio.Future[Reply]) -> None:
    if not call.cancelled():
        call.exception()  # of a call that nothing waits for any more


def _status(process: asyncio.subprocess.Process, error: BaseException) -> str:
    code = process.returncode
    return f"exit status {code}" if code is not None else str(error) or type(error).__name__
