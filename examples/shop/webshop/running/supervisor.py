"""Supervisor: the processes of the shop, started in order, restarted when they die, ended together.

Each process has a session of its own, so that Ctrl-C reaches the launcher alone, and is killed by the kernel
when the launcher dies. Signals go to a process and all below it: PostgreSQL's backends, Spark's JVM.
Not here: which processes there are (shop.py).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from webshop.running.fork_server import ForkedProcess, ForkServer
from webshop.running.linux import die_with

_LOOK_S: Final = 0.05
_MAX_PAUSE_S: Final = 10.0
_MAX_EVENTS: Final = 200
_SHOWN_LINES: Final = 12


def say(text: str) -> None:
    """Print a line for the user. A terminal that was closed, or a `tee` that ended with the same Ctrl-C, must
    not keep the shop from ending."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


class State(StrEnum):
    """What a process does."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"
    """By SIGSTOP: it exists and does nothing."""
    RESTARTING = "restarting"
    """Ended; it is started again after a pause."""
    DOWN = "down"
    """Ended on request; it stays down until it is started."""
    FINISHED = "finished"
    """Ended by itself when its work was done."""


class SupervisorError(Exception):
    """A process does not start, or the action does not fit its state; the text says what to do."""


@dataclass(frozen=True)
class Program:
    """How a process is started, and when it is ready."""

    name: str
    words: Sequence[str]
    """The command line; of a module that is started by fork, its name and arguments."""
    is_ready: Callable[[int], Awaitable[bool]]
    """Asked with the process id until it is true."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """On top of the launcher's environment."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of `subprocess`: user, folder."""
    stop_signal: signal.Signals = signal.SIGTERM
    stop_s: float = 10.0
    has_end: bool = False
    """Whether it ends by itself when its work is done; then only one that was killed is started again."""
    start_s: float = 60.0
    is_forked: bool = False
    """Whether it is a module that the fork server starts."""


@dataclass(frozen=True)
class Event:
    """Something that happened to a process, for the log and the operator's page."""

    at: datetime
    process: str
    what: str


class Supervised:
    """One process, over all of its restarts."""

    def __init__(
        self,
        program: Program,
        log: Path,
        restart_s: float,
        note: Callable[[str, str], None],
        fork_server: ForkServer,
    ) -> None:
        self.program = program
        self.log = log
        self.state = State.DOWN
        self.since = datetime.now(UTC)
        self.restarts = 0
        self.start_took_s = 0.0
        """How long its last start took until it was ready."""
        self.last_exit: str | None = None
        self._restart_s = restart_s
        self._note = note
        self._fork_server = fork_server
        self._process: asyncio.subprocess.Process | ForkedProcess | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._is_wanted = False
        self._skip_pause = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    def start(self) -> None:
        """Start it, or end its pause before a restart."""
        if self.state is State.RESTARTING:
            self._skip_pause.set()
            return
        if self.state not in (State.DOWN, State.FINISHED):
            raise SupervisorError(f"{self.program.name} is {self.state} already")
        self._is_wanted = True
        self._set(State.STARTING)
        self._keeper = asyncio.create_task(self._keep(), name=f"keep-{self.program.name}")

    async def wait_ready(self) -> None:
        """Wait until it is ready, over restarts. SupervisorError with the end of its log if it takes too
        long."""
        try:
            async with asyncio.timeout(self.program.start_s):
                await self._ready.wait()
        except TimeoutError:
            raise SupervisorError(
                f"{self.program.name} is not ready after {self.program.start_s:g} s; "
                f"the end of {self.log}:\n{self._log_end()}"
            ) from None

    def kill(self) -> None:
        """End it as a crash does. It is started again after a pause."""
        self._signal(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop it where it is: it holds its connections and locks, and answers nothing."""
        self._signal(signal.SIGSTOP)
        self._set(State.STOPPED)

    def unfreeze(self) -> None:
        """Let it go on after `freeze`."""
        if self.state is not State.STOPPED:
            raise SupervisorError(f"{self.program.name} is {self.state}, not stopped")
        self._signal(signal.SIGCONT)
        self._set(State.RUNNING if self._ready.is_set() else State.STARTING)

    async def end(self) -> None:
        """Ask it to end, wait for that, kill it if it takes too long; it stays down."""
        self._is_wanted = False
        self._skip_pause.set()
        if self.pid is not None:
            if self.state is State.STOPPED:
                self._signal(signal.SIGCONT)
            with suppress(ProcessLookupError):
                os.kill(self.pid, self.program.stop_signal)
        if self._keeper is None:
            return
        done, _ = await asyncio.wait((self._keeper,), timeout=self.program.stop_s)
        if not done:
            self._note(self.program.name, f"did not end within {self.program.stop_s:g} s; killing it")
            self.kill_now()
            await self._keeper

    def kill_now(self) -> None:
        """End it, to stay down; returns at once."""
        self._is_wanted = False
        self._skip_pause.set()
        with suppress(SupervisorError):
            self._signal(signal.SIGKILL)

    async def _keep(self) -> None:
        """Run it until it is not wanted any more. The pause grows while it does not become ready."""
        name, pause_s = self.program.name, self._restart_s
        while self._is_wanted:
            try:
                code = await self._run_once()
            except OSError as error:  # no memory, no process left; tried again
                self._note(name, f"cannot be started: {error.strerror or error}")
                code = 1
            self.last_exit = describe_exit(code)
            if not self._is_wanted:
                break
            if code >= 0 and self.program.has_end:
                self._note(name, f"has finished ({self.last_exit})")
                self._set(State.FINISHED)
                return
            pause_s = self._restart_s if self._ready.is_set() else min(pause_s * 2, _MAX_PAUSE_S)
            self._ready.clear()
            self._set(State.RESTARTING)
            hint = "" if code < 0 else f"; see {self.log}"
            self._note(name, f"ended ({self.last_exit}{hint}); restarting it in {pause_s:g} s")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._skip_pause.wait(), pause_s)
            self._skip_pause.clear()
            self.restarts += 1
        self._ready.clear()
        self._set(State.DOWN)

    async def _run_once(self) -> int:
        """Start it and wait for its end; the exit code."""
        self._skip_pause.clear()
        self._set(State.STARTING)
        began = time.monotonic()
        self._process = process = await (self._fork() if self.program.is_forked else self._execute())
        if not self._is_wanted:  # ended meanwhile
            process.kill()
        watch = asyncio.create_task(self._watch(process, began), name=f"watch-{self.program.name}")
        try:
            return await process.wait()
        finally:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

    async def _fork(self) -> ForkedProcess:
        program = self.program
        return await self._fork_server.start(program.name, program.words, program.environ, self.log)

    async def _execute(self) -> asyncio.subprocess.Process:
        launcher = os.getpid()
        with self.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *self.program.words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.program.environ},
                start_new_session=True,
                preexec_fn=lambda: die_with(launcher),
                **self.program.options,
            )

    async def _watch(self, process: asyncio.subprocess.Process | ForkedProcess, began: float) -> None:
        while not await self.program.is_ready(process.pid):  # noqa: ASYNC110  another process
            await asyncio.sleep(_LOOK_S)
        self.start_took_s = time.monotonic() - began
        if self.restarts:
            self._note(self.program.name, f"is ready again after {self.start_took_s:.1f} s")
        self._ready.set()
        if self.state is State.STARTING:
            self._set(State.RUNNING)

    def _signal(self, number: signal.Signals) -> None:
        if self.pid is None:
            raise SupervisorError(f"{self.program.name} is {self.state}: there is no process")
        for pid in [self.pid, *descendants(self.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _set(self, state: State) -> None:
        if state is not self.state:
            self.state, self.since = state, datetime.now(UTC)

    def _log_end(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        return "\n".join(f"  {line}" for line in lines[-_SHOWN_LINES:])


class Supervisor:
    """All processes. Use `async with`: at the end of the block none is left."""

    def __init__(self, logs: Path, *, restart_s: float = 1.0, is_quiet: bool = False) -> None:
        self.processes: dict[str, Supervised] = {}
        self.events: deque[Event] = deque(maxlen=_MAX_EVENTS)
        self._logs = logs
        self._restart_s = restart_s
        self._is_quiet = is_quiet
        self._fork_server = ForkServer()

    async def __aenter__(self) -> Supervisor:
        self._logs.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end_all()
        await self._fork_server.close()

    def add(self, program: Program) -> Supervised:
        """Start a program; `wait_ready` waits for it."""
        log = self._logs / f"{program.name}.log"
        process = Supervised(program, log, self._restart_s, self.note, self._fork_server)
        self.processes[program.name] = process
        process.start()
        return process

    def find(self, name: str) -> Supervised:
        """A process by its name. KeyError: there is none."""
        return self.processes[name]

    def note(self, process: str, what: str) -> None:
        """Print an event as one line, and keep it for the operator's page."""
        event = Event(datetime.now(UTC), process, what)
        self.events.append(event)
        if not self._is_quiet:
            local = event.at.astimezone()
            say(f"{local:%H:%M:%S} {process} {what}")

    async def end_all(self) -> None:
        """End all: first the services, then what they work with."""
        for is_base in (False, True):
            group = [process for name, process in self.processes.items() if (name in BASE) is is_base]
            await asyncio.gather(*(process.end() for process in group))

    def kill_all(self) -> None:
        """End all at once, without order."""
        for process in self.processes.values():
            process.kill_now()


BASE: Final = ("postgres", "broker")
"""What the services work with; ended after them."""


def descendants(pid: int) -> list[int]:
    """The processes below a process."""
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, in parentheses, may have spaces; the parent is the second word after it.
            parent = int(status.read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(status.parent.name))
    found = list(children.get(pid, []))
    for child in found:
        found += children.get(child, [])
    return found


def describe_exit(code: int) -> str:
    """How a process ended.

    >>> describe_exit(1), describe_exit(-9)
    ('exit code 1', 'killed by SIGKILL')
    """
    return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"
