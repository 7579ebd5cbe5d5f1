"""The compiled kernel, built for tests, and brokers that use it or do not."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final, cast

import pytest

from kourou.broker import send_wiring, wiring
from kourou.broker.connection_state import ConnectionState, record_born_host
from kourou.broker.controller import BrokerController
from kourou.broker.send.fast_send_path import FastSendPath, Sender
from kourou.broker.transactions.half_message_states import HalfMessageCache
from kourou.protocol.frame import FrameDecoder
from kourou.store.disk.files import Files
from kourou.store.kernel import (
    MODULE,
    VARIABLE,
    AnsweredPulls,
    EncodedSends,
    Kernel,
    NewQueue,
    SendsEnd,
    choose_kernel,
)
from kourou.store.log.put_batch import GrownQueue, RunRoom
from kourou.testing.clock import FakeClock
from kourou.testing.memory_transport import MemoryTransport
from kourou.transport.connection import Connection, InboundBudget
from kourou.transport.dispatcher import Dispatcher
from kourou.transport.settings import ConnectionLimits
from tests.e2e.broker.broker_kit import config

PROJECT = Path(__file__).parents[3]
SOURCES = PROJECT / "src/kourou/store/native"
FLAGS_VARIABLE = "KOUROU_TEST_KERNEL_FLAGS"
"""More flags for the compiler: a nightly suite has the kernel checked by sanitizers (.ci/suites.py)."""
NOW_MS = 1_700_000_000_000
_HOUR_MS = 3_600_000
ROOM: Final[RunRoom] = (0, 1 << 20, NOW_MS, 1 << 20, 1 << 20)


def build_problem() -> str | None:
    """Why the kernel cannot be built here; None when it can."""
    if shutil.which("cc") is None:
        return "a C compiler"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "Python's C headers"
    return None


@functools.cache
def build() -> ModuleType:
    """The kernel, compiled with every warning an error; once for all workers, and again when it changes."""
    flags = os.environ.get(FLAGS_VARIABLE, "").split()
    parts = b"".join(path.read_bytes() for path in sorted(SOURCES.iterdir())) + repr(flags).encode()
    digest = hashlib.sha256(parts).hexdigest()[:16]
    library = PROJECT / "build" / "test-kernel" / digest / f"{MODULE.rpartition('.')[2]}.abi3.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        compiled = library.with_name(f"{os.getpid()}.so")
        _compile(compiled, flags)
        compiled.replace(library)
    spec = importlib.util.spec_from_file_location(MODULE, library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile(library: Path, flags: Sequence[str]) -> None:
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]
    include = f"-I{sysconfig.get_path('include')}"
    command = [
        "cc",
        "-std=c11",
        "-O2",
        "-shared",
        "-fPIC",
        *warnings,
        *flags,
        include,
        str(SOURCES / "module.c"),
        "-o",
        str(library),
    ]
    subprocess.run(command, check=True, capture_output=True, text=True)


class FedBroker:
    """A broker whose clock stands still, and to which requests are fed by hand. `taken` is how many of
    them the kernel took, in so many `calls`, `pulled` how many pulls it answered; `messages` is how many its
    batches say that they have."""

    def __init__(self, controller: BrokerController, *, has_kernel: bool) -> None:
        self.services = controller.services
        self.in_flight = controller.running.in_flight
        self.taken = self.calls = self.messages = self.pulled = 0
        # What the broker adds to the properties of each message.
        self.own_properties = b""
        self.services.store.dispatcher.on_publish.append(self._published)
        kernel = choose_kernel(is_enabled=has_kernel, environ={}).kernel
        counting = None if kernel is None else self._counting(kernel)
        self._sends, self._fast_sends = send_wiring.sends(self.services, HalfMessageCache(), counting)
        self.fast_paths = wiring.fast_paths(self.services, self._fast_sends, counting)

    def _counting(self, kernel: Kernel) -> Kernel:
        def encode_sends(*arguments: Any) -> EncodedSends | None:
            encoded = kernel.encode_sends(*arguments)
            self.calls += 1
            self.taken += 0 if encoded is None else _sends_before(arguments[0], encoded[0])
            return encoded

        def send_setup(properties: bytes, *arguments: Any) -> Any:
            self.own_properties = properties
            return kernel.send_setup(properties, *arguments)

        def answer_pulls(*arguments: Any) -> AnsweredPulls | None:
            answered = kernel.answer_pulls(*arguments)
            data, position = arguments[2:4]
            self.pulled += 0 if answered is None else len(FrameDecoder().feed(data[position : answered[0]]))
            return answered

        functions = {
            "sends_end": kernel.sends_end,
            "send_setup": send_setup,
            "room": kernel.room,
            "signing_state": kernel.signing_state,
            "pulls_end": kernel.pulls_end,
            "pull_is_next": kernel.pull_is_next,
            "answer_pulls": answer_pulls,
            "ColdReader": kernel.ColdReader,
            "SharedSocket": kernel.SharedSocket,
        }
        return cast(Kernel, SimpleNamespace(encode_sends=encode_sends, **functions))

    def _published(self, _: Sequence[GrownQueue], messages: int, __: int) -> None:
        self.messages += messages

    @property
    def has_kernel(self) -> bool:
        """Whether it uses the kernel."""
        return self.fast_paths is not None

    def sender(self, data: bytes) -> Sender:
        connection, _ = self.connect()
        return connection, [(data, 0, len(data))], connection.state.born_host

    async def count_ordinary(self, frames: Sequence[bytes], room: RunRoom = ROOM) -> int:
        """How many of `frames` the kernel would take, whatever they begin with; nothing is put."""
        data = b"".join(frames)
        senders = [self.sender(data)]
        before = self.taken
        cast(FastSendPath, self._fast_sends)._encode(senders, room)
        return self.taken - before

    async def grown(self, frames: Sequence[bytes], new_queue: NewQueue) -> list[GrownQueue]:
        """The queues that would grow by `frames`; nothing is put."""
        data = b"".join(frames)
        bulk = cast(FastSendPath, self._fast_sends)
        setup, bulk._setup = bulk._setup, (*bulk._setup[:-1], new_queue)
        encoded = bulk._encode([self.sender(data)], ROOM)
        bulk._setup = setup
        assert encoded is not None
        return encoded[5]

    def feed(self, reads: Sequence[bytes | Sequence[bytes]]) -> list[bytes]:
        """What it answers to each of them, all within one pass, each on a connection of its own. One that
        comes in parts is read in parts."""
        transports = []
        for data in reads:
            connection, transport = self.connect()
            for part in [data] if isinstance(data, bytes) else data:
                if not connection.closed:
                    transport.bring(part)
            transports.append(transport)
        self.services.cycles.close()
        return [b"".join(transport.written) for transport in transports]

    def connect(self, *, reads: bool = True) -> tuple[Connection, MemoryTransport]:
        """A connection that has sent something before, and its peer, which takes its answers or does not."""
        connection = self.new_connection()
        transport = MemoryTransport(connection, reads=reads, has_socket=True)
        record_born_host(connection)
        return connection, transport

    def new_connection(self) -> Connection:
        """A connection without a transport."""
        return Connection(
            self.services.cycles,
            Dispatcher(
                {**self._sends.processors(), **self.services.pulls.processors()},
                self.services.admission.request_checks,
            ),
            ConnectionLimits(),
            InboundBudget(1 << 30),
            bulk=self.fast_paths,
            new_state=ConnectionState,
        )

    def log_bytes(self, phy_offset: int) -> bytes:
        """The log from there to its end, file by file."""
        log = self.services.store.log
        found = b""
        while phy_offset < log.max_phy_offset:
            log_file = log.file_at(phy_offset)
            assert log_file is not None
            size = min(log_file.end_phy_offset, log.max_phy_offset) - phy_offset
            piece = log.read(phy_offset, size)
            assert piece is not None
            found += piece
            phy_offset += size
        return found

    def units(self) -> dict[tuple[str, int], bytes]:
        """Of every queue, all its units."""
        queues = self.services.store.queues.items()
        return {(queue.topic, queue.queue_id): _units(queue) for queue in queues}


def _sends_before(groups: Sequence[Sender], end: SendsEnd) -> int:
    done, pieces_done, position = end
    whole = [piece for _, pieces, _ in groups[:done] for piece in pieces]
    if done < len(groups):
        pieces = groups[done][1]
        data, start, _ = pieces[pieces_done]
        whole += [*pieces[:pieces_done], (data, start, position)]
    return sum(len(FrameDecoder().feed(bytes(data[start:end]))) for data, start, end in whole)


def _units(queue: Any) -> bytes:
    found = b""
    while len(found) < queue.max_queue_offset * 20:
        found += queue.read_units(len(found) // 20, 10_000)
    return found


@asynccontextmanager
async def fed_broker(
    root: Path, *, host: str, port: int, kernel: bool, **keys: Any
) -> AsyncIterator[FedBroker]:
    """A broker that listens on `host`, and says that it is at 127.0.0.1, as its twin does."""
    files: Files | None = keys.pop("files", None)
    keys |= {"bind_address": host, "listen_port": port, "compiled_kernel_enable": kernel}
    # A check puts half messages again: at another time for each of the two, in a run of minutes.
    keys |= {"transaction_check_interval": _HOUR_MS}
    settings = config(root, **keys)
    controller = BrokerController(settings, files=files, clock=FakeClock(NOW_MS))
    await controller.start()
    broker = FedBroker(controller, has_kernel=kernel)
    try:
        yield broker
    finally:
        if broker.fast_paths is not None:
            await broker.fast_paths.pulls.stop()
        await controller.stop()


def install(module: ModuleType, patch: pytest.MonkeyPatch) -> None:
    """Have it imported by its name, and used."""
    patch.setitem(sys.modules, MODULE, module)
    patch.delenv(VARIABLE, raising=False)
