"""The compiled kernel: the fast path of a broker in C (`native/`), an optional part of the package.

Without it Python code does the same, with the same bytes: it only saves time. The broker's controller
chooses once, by `choose_kernel`, and passes the result on.
"""

from __future__ import annotations

import enum
import importlib
import os
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

if TYPE_CHECKING:
    # `kourou version` imports this module, and need not load numpy.
    from kourou.protocol.layout import Buffer
    from kourou.store.log.log_file import LogFile
    from kourou.store.log.put_batch import GrownQueue
    from kourou.store.queue.consume_queue import ConsumeQueue

MODULE: Final = "kourou.store._kernel"
VARIABLE: Final = "KOUROU_KERNEL"
"""The environment variable that switches the kernel off when it is 0; `setup.py` reads it too."""
_INTERFACE: Final = 24
_BUILD: Final = (
    "install a C compiler and Python's headers (Debian, Ubuntu: gcc, libc6-dev, python3-dev), then run "
    "pip install --force-reinstall --no-deps . in Kourou's source folder (make kernel for its .venv)"
)

ResponseTemplates: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""Of responses: JSON for a batch without an id, and for messages with one; the same for binary headers."""
NewQueue: TypeAlias = "Callable[[str, int], ConsumeQueue | None]"
"""Creates or prepares a queue without messages; None if it cannot be used."""
SendSetup: TypeAlias = tuple[Any, NewQueue]
"""What all sends of a broker share: the result of `send_setup`, and the function that creates queues."""
SentPiece: TypeAlias = "tuple[bytes | memoryview, int, int]"
"""Bytes, and the start and end of the complete frames in them."""
SendsEnd: TypeAlias = tuple[int, int, int]
"""The end of the encoded sends: number of groups, of pieces of the next group, position in the next piece."""
EncodedSends: TypeAlias = (
    "tuple[SendsEnd, int, list[Buffer], bytes, list[tuple[Any, bytes]], list[GrownQueue], bytes]"
)
"""Their end, the number of messages, their records in parts, the index entries (rows of `HASHED_KEYS`), the
connections that get responses, each with its own, the queues with new messages, and the windows of sequences
as they were before."""
SequenceState: TypeAlias = tuple[Mapping[str, Mapping[int, Mapping[str, int]]], list[bytearray], int]
"""The slots of a ProducerTable, the blocks of its windows, and the number of the run."""
SigningAccounts: TypeAlias = "Mapping[str, tuple[Any, bytes, set[str], set[str]]]"
"""By access key: the ruling under which this holds, the signing state, the topics that the account may send
to, and the identities of idempotent producers that it may send as."""

PullTargetFields: TypeAlias = tuple[str, str, int, int, int, int, tuple[int, ...] | None, bytearray]
"""Group, topic, number of queues, flags of the topic, the broker to ask next, the same for a slow consumer,
the codes of the wanted tags, or None: all messages are wanted; and the rows (PULL_NOTE) of answered pulls."""
KnownPullTarget: TypeAlias = tuple[PullTargetFields, tuple[tuple[Any, str, object], ...]]
"""A target, and its guards: owner (a dict, or an object), key or attribute, and the object that is there as
long as the target holds."""
PullLimits: TypeAlias = tuple[int, int, int, int, int, int]
"""Messages and bytes of a pull in memory, and on disk; how many bytes of the log count as in memory; the most
messages."""
KeptWindow: TypeAlias = "tuple[LogFile, int, int, int, bool]"
"""A part of a file of the log that is in memory: the file, its start, first and last byte, whether it is
old."""
PullSetup: TypeAlias = tuple[
    bytes,
    bytes,
    bytes,
    Mapping[str, Any],
    dict[int, KeptWindow],
    list[Any],
    Callable[..., KnownPullTarget | None],
    "Callable[[Any, int, int, int, bool], ColdPlace | bool | None]",
    Callable[[], bool],
    "ColdThread | None",
]
"""What all pulls of a broker share: headers of answers in JSON and binary, `pull_numbers`, queues by topic
and id, windows of the log by region, a list of the targets that have rows, the functions that find a target
and a part of the log, and that tell whether old messages may be read; and the thread that answers pulls for
which there is a file, but no window."""
AnsweredPulls: TypeAlias = tuple[int, int, int, bytes | None, list[tuple[PullTargetFields, int, int]] | None]
"""The position behind the pulls, the number of those that are answered, the size of their answers, what is
left to write of these, and target, queue id and offset of each commit."""


class SocketShare(Protocol):
    """SharedSocket: a socket that a ColdReader writes to, beside the event loop."""

    def claim(self) -> bool: ...

    def claim_rest(self) -> None: ...

    def release(self) -> None: ...

    def close(self) -> None: ...


class ColdOutcome(enum.IntEnum):
    """What came of a pull that was handed over to a ColdReader."""

    UNREAD = 0
    SENT = 1
    PARTIAL = 2
    """The loop has to write the rest, before anything else."""
    BUILT = 3
    """The loop has to decide again, and to send."""


ColdPlace: TypeAlias = tuple[SocketShare, int, int, int, int, Any]
"""Of a connection, the descriptor of a file, start and end of that in the log, the end of what is old in the
log, and what comes back with the outcome."""
ColdReport: TypeAlias = tuple[int, Any, bytes, bytes, PullTargetFields, int, bytes]
"""Of a pull that is not answered: the outcome, what came with the place, the frame of the pull, what is to be
sent, the target, the queue id, and the row (PULL_NOTE) to add to the target's when it is sent."""


class ColdThread(Protocol):
    """ColdReader: a thread that answers pulls of old messages."""

    def collect(self, noted: list[Any], now_ms: int, /) -> tuple[int, int, list[ColdReport]]: ...

    def stop(self) -> None: ...

    def fileno(self) -> int: ...

    def under_way(self) -> int: ...


EncodedStaged: TypeAlias = "tuple[int, int, bytearray, bytes, list[GrownQueue]]"
"""The position behind the entries, their number, their records, the index entries, and the queue."""

EncodedAgain: TypeAlias = "tuple[int, bytearray, bytes, list[GrownQueue]]"
"""The number of messages, their records, the index entries, and the queue."""

ReadQueue: TypeAlias = tuple[str, int, int, bytes]
"""Topic, queue id, the first queue_offset, and units from there on."""
ReadRecords: TypeAlias = tuple[int, int, bytes, list[ReadQueue], bool]
"""The end of the records in the log, the store time of the last, the index entries (rows of `HASHED_KEYS`),
the queues they belong to, and whether one of them has a sequence of an idempotent producer."""


class Kernel(Protocol):
    """The functions of the compiled module, which has their documentation."""

    INTERFACE: int
    ColdReader: Callable[[int, int], ColdThread]
    SharedSocket: Callable[[int], SocketShare]

    def sends_end(self, data: bytes | memoryview, position: int, max_frame_bytes: int, /) -> int: ...

    def room(self, size: int, /) -> bytearray: ...

    def send_setup(
        self,
        properties: bytes,
        names: tuple[bytes, ...],
        templates: ResponseTemplates,
        store_host: bytes,
        /,
    ) -> Any: ...

    def encode_sends(
        self,
        groups: Sequence[tuple[Any, list[SentPiece], bytes]],
        setup: SendSetup,
        targets: Mapping[str, Any],
        configs: Mapping[str, Any],
        broker_config: Any,
        accounts: SigningAccounts | None,
        topics: Mapping[str, Any],
        sequences: SequenceState,
        phy_offset: int,
        last_phy_offset: int,
        now_ms: int,
        max_body: int,
        max_record: int,
        /,
    ) -> EncodedSends | None: ...

    def check_entries(
        self, entries: bytes, max_body: int, max_properties: int, names: tuple[bytes, ...], /
    ) -> int: ...

    def encode_staged(
        self,
        entries: bytes,
        position: int,
        limits: tuple[int, int],
        mark: bytes,
        number: int,
        queue: ConsumeQueue,
        send: tuple[int, bytes, int],
        store_host: bytes,
        phy_offset: int,
        last_phy_offset: int,
        now_ms: int,
        max_body: int,
        max_record: int,
        /,
    ) -> EncodedStaged | None: ...

    def gather(
        self,
        view: Buffer,
        start: int,
        low: int,
        end: int,
        units: bytes,
        max_messages: int,
        max_bytes: int,
        max_copied: int,
        /,
    ) -> tuple[int, int, bytes] | None: ...

    def pulls_end(self, data: bytes, position: int, max_frame_bytes: int, /) -> int: ...

    def pull_is_next(self, data: bytes, position: int, /) -> bool: ...

    def answer_pulls(
        self,
        connection: Any,
        known: dict[bytes, KnownPullTarget],
        data: bytes,
        position: int,
        max_frame_bytes: int,
        fd: int,
        setup: PullSetup,
        max_phy_offset: int,
        now_ms: int,
        /,
    ) -> AnsweredPulls | None: ...

    def link_entries(
        self, hashes: Buffer, values: Buffer, dirty: Buffer, first_index: int, shift: int, block: int, /
    ) -> bytes: ...

    def read_records(
        self, data: Buffer, phy_offset: int, max_record_bytes: int, slow_path_topic: bytes, /
    ) -> ReadRecords | None: ...

    def encode_again(
        self,
        records: list[Buffer],
        units: bytes,
        source: tuple[bytes, int, int],
        properties: tuple[bytes, bytes],
        queue: ConsumeQueue,
        store_host: bytes,
        phy_offset: int,
        last_phy_offset: int,
        now_ms: int,
        max_body: int,
        max_record: int,
        /,
    ) -> EncodedAgain | None: ...

    def units_fit(
        self,
        data: Buffer,
        start: int,
        units: bytes,
        queue_offset: int,
        topic: bytes,
        queue_id: int,
        has_codes: bool,
        /,
    ) -> bool: ...

    def checksums(self, data: Buffer, begins: Buffer, ends: Buffer, /) -> bytes | None: ...

    def units_fit_in_file(
        self,
        fd: int,
        start: int,
        end: int,
        units: bytes,
        queue_offset: int,
        topic: bytes,
        queue_id: int,
        has_codes: bool,
        ahead: int,
        /,
    ) -> bool: ...

    def signing_state(self, secret_key: bytes, /) -> bytes: ...

    def signatures(self, secret_key: bytes, texts: list[bytes], form: int, /) -> list[str] | None: ...


def pull_numbers(
    limits: PullLimits,
    large_limits: PullLimits,
    *,
    max_filter_units: int,
    run_bytes: int,
    region_bytes: int,
    block_units: int,
    chunk_units: int,
) -> bytes:
    """What a run of pulls has to know, as `answer_pulls` takes it: Apache's limits and the negotiated ones,
    how many units a pull by tags looks at, how many bytes of answers end a run; how large the regions of the
    log are that windows are kept by, the blocks of units, and the chunks that are verified."""
    sizes = (run_bytes, region_bytes, block_units, chunk_units)
    numbers = (*limits, *large_limits, max_filter_units, *sizes)
    return struct.pack(f"={len(numbers)}q", *numbers)


@dataclass(frozen=True, slots=True)
class KernelChoice:
    """The kernel to use, or why there is none: `problem`, and what to do about it, `cure`."""

    kernel: Kernel | None
    problem: str = ""
    cure: str = ""
    is_fault: bool = False
    """Whether there is one that cannot be used."""

    @property
    def status(self) -> str:
        """Whether it is in use, for tables and runtime info."""
        return "in use" if self.kernel is not None else f"not in use: {self.problem}"

    def __str__(self) -> str:
        return f"compiled kernel {self.status}" + (f"; {self.cure}" if self.cure else "")


def choose_kernel(*, is_enabled: bool = True, environ: Mapping[str, str] = os.environ) -> KernelChoice:
    """The kernel, if it may be used, is installed and fits; `is_enabled` is the key compiledKernelEnable."""
    if not is_enabled:
        return KernelChoice(None, "compiledKernelEnable=false", "set it to true and restart the broker")
    if environ.get(VARIABLE) == "0":
        return KernelChoice(None, f"{VARIABLE}=0 in the environment", "unset it and restart the broker")
    try:
        kernel = cast(Kernel, importlib.import_module(MODULE))
    except ModuleNotFoundError:
        return KernelChoice(None, "it was not built", _BUILD)
    except ImportError as error:
        return KernelChoice(None, f"it cannot be loaded: {error}", _BUILD, is_fault=True)
    interface = getattr(kernel, "INTERFACE", None)
    if interface != _INTERFACE:
        problem = f"it is of another version of Kourou (interface {interface}, not {_INTERFACE})"
        return KernelChoice(None, problem, _BUILD, is_fault=True)
    return KernelChoice(kernel)
