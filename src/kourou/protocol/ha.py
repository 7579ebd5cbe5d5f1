"""The HA link: a slave follows its master's CommitLog, byte for byte.

    slave → master    report      the end of the slave's log, 8 bytes; repeated when it has grown
    master → slave    transfer    an offset, a size, so many bytes of the log; size 0 is a heartbeat

That is all that Apache's link has. Between two Kourou brokers a hello of the slave and the answer of the
master come first; both are JSON behind a head whose first byte no offset has, and fields that a side does not
know are ignored. With access control both come twice, the second time with proofs (ha_proof.py).
A master of Apache's must never get a hello: a slave finds out by request (`Feature`).

Decoders take the stream in any pieces. Not here: sockets, and what the bytes of the log mean.
"""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple, TypeVar

import msgspec

from kourou.errors import ProtocolError
from kourou.protocol.layout import I4, I8, Buffer, Kind, Layout

HA_VERSION: Final = 1

_MAGIC: Final = b"\xffKOUROU\x01"

HA_REPORT: Final = Layout("HA_REPORT", ("max_phy_offset", I8))
HA_TRANSFER: Final = Layout("HA_TRANSFER", ("phy_offset", I8), ("size", I4))
HA_HELLO: Final = Layout("HA_HELLO", ("magic", Kind("8s", "S8")), ("size", I4))

MAX_HELLO_BYTES: Final = 64 * 1024
"""A hello that claims to be larger is none."""

TAIL_BYTES: Final = 4 * 1024
"""So much of the end of a slave's log is compared with its master's."""

_Hello = TypeVar("_Hello", "SlaveHello", "MasterHello")

_report = HA_REPORT.struct()
_transfer = HA_TRANSFER.struct()
_hello = HA_HELLO.struct()
_TRANSFER_BYTES: Final = HA_TRANSFER.size


class Epoch(msgspec.Struct, frozen=True, rename="camel"):
    """The reign of one master: its records begin at `start_phy_offset`."""

    epoch: int
    start_phy_offset: int


class LogTail(msgspec.Struct, frozen=True, rename="camel"):
    """The last bytes of a log; equal tails at one place mean equal logs up to their end."""

    phy_offset: int
    size: int
    crc32: int

    @classmethod
    def of(cls, phy_offset: int, raw: Buffer) -> LogTail:
        """The tail that consists of these bytes."""
        return cls(phy_offset, len(raw), zlib.crc32(raw))


class SlaveHello(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a slave opens the link. An empty log has no tail."""

    version: int = HA_VERSION
    software: str = ""
    cluster: str
    broker_name: str
    broker_id: int
    address: str = ""
    epochs: tuple[Epoch, ...] = ()
    min_phy_offset: int
    max_phy_offset: int
    file_bytes: int
    tail: LogTail | None = None
    known_epoch: int = 0
    """In a fail-over set: the newest epoch that the slave knows of."""
    access_key: str = ""
    """With a nonce: the account that the slave can prove (ha_proof.py)."""
    nonce: str = ""
    proof: str = ""
    """For the challenge of the master."""


class MasterHello(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a master answers. With a `refusal` it closes the link, else transfers from `start_phy_offset` on
    follow."""

    version: int = HA_VERSION
    software: str = ""
    epochs: tuple[Epoch, ...] = ()
    min_phy_offset: int = 0
    max_phy_offset: int = 0
    start_phy_offset: int = 0
    refusal: str = ""
    is_diverged: bool = False
    common_phy_offset: int = -1
    """With a refusal: up to where the slave's log is the master's, if that is known."""
    epoch: int = 0
    """In a fail-over set: that of the master's reign."""
    challenge: str = ""
    """This is no answer yet: the slave has to prove itself first (ha_proof.py)."""
    proof: str = ""
    """For the nonce of the slave."""


class Transfer(NamedTuple):
    """Bytes of the log; none: a heartbeat."""

    phy_offset: int
    data: memoryview


def encode_report(max_phy_offset: int) -> bytes:
    """A slave's report."""
    return _report.pack(max_phy_offset)


def transfer_head(phy_offset: int, size: int) -> bytes:
    """What precedes `size` bytes of the log; without any it is a heartbeat."""
    return _transfer.pack(phy_offset, size)


def encode_hello(hello: SlaveHello | MasterHello) -> bytes:
    """A hello with its head."""
    raw = msgspec.json.encode(hello)
    return _hello.pack(_MAGIC, len(raw)) + raw


class SlaveStream:
    """What a slave has sent, as its master reads it: reports, after a hello if there is one."""

    def __init__(self) -> None:
        self._rest = b""
        self._is_first = True

    def expect_hello(self) -> None:
        """The slave has to send another hello before it reports."""
        self._is_first = True

    def feed(self, data: bytes) -> SlaveHello | int | None:
        """Take bytes. The hello once it is complete, else the last complete report; None: more is needed.
        ProtocolError: this is not a slave. After a hello call it again without bytes: reports may follow."""
        data = self._rest + data
        if self._is_first and data[:1] == _MAGIC[:1]:
            hello, self._rest = _take_hello(data, SlaveHello)
            self._is_first = hello is None
            return hello
        whole = len(data) - len(data) % HA_REPORT.size
        self._rest = data[whole:]
        if not whole:
            return None
        self._is_first = False
        (max_phy_offset,) = _report.unpack_from(data, whole - HA_REPORT.size)
        if max_phy_offset < 0:
            raise ProtocolError(f"a slave reports the offset {max_phy_offset}")
        return int(max_phy_offset)


class MasterStream:
    """What a master has sent, as its slave reads it, in one buffer that is filled by the socket.

    A transfer may be as large as `max_transfer_bytes`; its bytes are valid until `room` is called again.
    """

    def __init__(self, max_transfer_bytes: int, *, expects_hello: bool) -> None:
        self._max_bytes = max_transfer_bytes
        self._expects_hello = expects_hello
        largest = max(max_transfer_bytes, MAX_HELLO_BYTES)
        self._buffer = memoryview(bytearray(2 * (largest + HA_HELLO.size)))
        self._start = self._end = 0

    def expect_hello(self) -> None:
        """The master sends another hello before it transfers."""
        self._expects_hello = True

    def room(self) -> memoryview:
        """Where the next bytes go; transfers that were taken are overwritten."""
        rest = self._end - self._start
        if not rest:
            self._start = self._end = 0
            return self._buffer
        if self._start:
            self._buffer[:rest] = self._buffer[self._start : self._end]
            self._start, self._end = 0, rest
        return self._buffer[self._end :]

    def filled(self, size: int) -> None:
        """So many bytes were written to `room`."""
        self._end += size

    def next(self) -> MasterHello | Transfer | None:
        """The next thing the master has sent; None: more bytes are needed. ProtocolError: this is not a
        master, or sends more at once than fits."""
        start = self._start
        if self._expects_hello:
            hello, rest = _take_hello(bytes(self._buffer[start : self._end]), MasterHello)
            if hello is not None:
                self._expects_hello = False
                self._start = self._end - len(rest)
            return hello
        if self._end - start < _TRANSFER_BYTES:
            return None
        phy_offset, size = _transfer.unpack_from(self._buffer, start)
        if phy_offset < 0 or not 0 <= size <= self._max_bytes:
            raise ProtocolError(f"a transfer of {size} bytes at {phy_offset}: this is not a master's HA port")
        end = start + _TRANSFER_BYTES + size
        if self._end < end:
            return None
        self._start = end
        return Transfer(phy_offset, self._buffer[start + _TRANSFER_BYTES : end])


def _take_hello(data: bytes, kind: type[_Hello]) -> tuple[_Hello | None, bytes]:
    """The hello at the start of `data`, and what follows it; None while it is incomplete."""
    if not _MAGIC.startswith(data[: len(_MAGIC)]):
        raise ProtocolError("these bytes are neither a hello nor a report")
    if len(data) < HA_HELLO.size:
        return None, data
    _, size = _hello.unpack_from(data)
    if not 0 <= size <= MAX_HELLO_BYTES:
        raise ProtocolError(f"a hello of {size} bytes")
    end = HA_HELLO.size + size
    if len(data) < end:
        return None, data
    try:
        return msgspec.json.decode(data[HA_HELLO.size : end], type=kind), data[end:]
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"a hello that cannot be read: {error}") from error
