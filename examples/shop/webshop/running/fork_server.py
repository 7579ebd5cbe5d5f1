"""Fork server: starts services by fork, from a process that has imported their packages already.

To import FastAPI, psycopg and Kourou's client takes most of a second of processor time; a fork takes
milliseconds. The shop is open sooner, and what dies is back at once. A service's own modules are imported
after the fork: code that was changed is in force when the service is killed.

One packet of JSON for each message, over a socket that only the two processes have:

    launcher → fork server   {"request": n, "name", "words", "environ", "log"}
    fork server → launcher   {"request": n, "pid"}, and in the end {"pid", "code"}

The fork server dies with the launcher, and the services with the fork server.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import itertools
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from webshop.running.linux import die_with, set_name

_PACKAGES: Final = (
    *("fastapi", "httpx", "kourou", "kourou.client", "msgspec.json", "psycopg.rows"),
    *("psycopg.types.json", "psycopg_pool", "pydantic", "uvicorn", "uvicorn.protocols.http.auto", "uvloop"),
)
_MAX_BYTES: Final = 65_536


class ForkServer:
    """The launcher's side. Started by the first `start`, and again if it has died."""

    def __init__(self) -> None:
        self._requests = itertools.count()
        self._opening = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._socket: socket.socket | None = None
        self._reading: asyncio.Task[None] | None = None
        self._started: dict[int, asyncio.Future[ForkedProcess]] = {}
        self._running: dict[int, ForkedProcess] = {}

    async def start(
        self, name: str, words: Sequence[str], environ: Mapping[str, str], log: Path
    ) -> ForkedProcess:
        """Run a module with its arguments as a process of this name. OSError: it cannot be started."""
        async with self._opening:
            if self._reading is None or self._reading.done():
                await self._open()
        assert self._socket is not None
        loop, request = asyncio.get_running_loop(), next(self._requests)
        started: asyncio.Future[ForkedProcess] = loop.create_future()
        self._started[request] = started
        packet = {"request": request, "name": name, "words": words, "environ": environ, "log": str(log)}
        await loop.sock_sendall(self._socket, json.dumps(packet).encode())
        return await started

    async def close(self) -> None:
        """End the fork server, after its services."""
        if self._process is not None and self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            await self._process.wait()  # it ends when the socket is closed

    async def _open(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        launcher = os.getpid()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", __name__, str(theirs.fileno())),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                preexec_fn=lambda: die_with(launcher),
            )
        self._reading = asyncio.create_task(self._read(self._socket), name="fork-server")

    async def _read(self, ours: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with ours, suppress(ConnectionError):
            while packet := await loop.sock_recv(ours, _MAX_BYTES):
                said = json.loads(packet)
                if "code" in said:
                    self._running.pop(said["pid"]).end(said["code"])
                else:
                    process = self._running[said["pid"]] = ForkedProcess(said["pid"])
                    self._started.pop(said["request"]).set_result(process)
        for process in self._running.values():
            process.end(-signal.SIGKILL)
        for started in self._started.values():
            started.set_exception(OSError("the fork server has died"))
        self._running.clear()
        self._started.clear()


class ForkedProcess:
    """A process of the fork server, with what the supervisor uses of asyncio's."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._ended = asyncio.Event()

    async def wait(self) -> int:
        """Wait for its end; the exit code, or the negative signal."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        """End it now."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def end(self, code: int) -> None:
        """It has ended."""
        self.returncode = code
        self._ended.set()


def serve(theirs: socket.socket) -> None:
    """The fork server, until the launcher closes its side."""
    for name in _PACKAGES:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # the children share these pages
    # SIGCHLD interrupts only a wait.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    while True:
        ready, _, _ = select.select([theirs, woken], [], [])
        if woken in ready:
            with suppress(BlockingIOError):
                os.read(woken, _MAX_BYTES)
            _report_ends(theirs)
        if theirs in ready:
            packet = theirs.recv(_MAX_BYTES)
            if not packet:
                return
            request = json.loads(packet)
            server, pid = os.getpid(), os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                for descriptor in (theirs.fileno(), woken, wake):
                    os.close(descriptor)
                _become(request, server)
            theirs.send(json.dumps({"request": request["request"], "pid": pid}).encode())


def _report_ends(theirs: socket.socket) -> None:
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            pid, status = ended
            theirs.send(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


def _become(request: dict[str, Any], server: int) -> None:
    """In the child: be the module, and never return."""
    code = 1
    try:
        os.setsid()
        die_with(server)
        set_name(f"shop-{request['name']}")
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.environ.update(request["environ"])
        sys.argv = request["words"]
        runpy.run_module(request["words"][0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as given:
        serve(given)
