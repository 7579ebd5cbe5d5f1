"""ReplicaLink: one slave's connection, on the master's side.

Bytes go from the log's map to the socket; nothing is queued. A slave that does not read costs a socket, and
the next bytes are looked up when there is room in it again. What is not in memory is read in a thread.
Not here: TLS (transport/tls_socket.py); which slaves there are, what their reports mean (replica_server.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from kourou.broker.replication.lag import ReplicaLag, TransferRate
from kourou.errors import KourouError, ProtocolError
from kourou.protocol.ha import MasterHello, SlaveHello, SlaveStream, encode_hello, transfer_head
from kourou.transport.addresses import format_address, parse_address

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.protocol.layout import Buffer
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.log.log_file import LogFile
    from kourou.transport.tls_socket import AcceptedSocket

_log = logging.getLogger(__name__)

_READ_BYTES: Final = 64 * 1024
# Between two of our brokers; Apache's slaves get haTransferBatchSize.
OWN_TRANSFER_BYTES: Final = 256 * 1024
"""The largest transfer to a slave that opened with a hello."""
SLAVE_CLOSED: Final = "the slave has closed the connection"
"""The reason for the end of a link that is no fault by itself."""
# Then the loop has its turn.
_BYTES_AT_ONCE: Final = 1024 * 1024


class LinkOwner(Protocol):
    """What a link needs of its server."""

    def first_report(self, link: ReplicaLink, max_phy_offset: int) -> int:
        """Where to begin for a slave without a hello. ReplicaRefusedError."""
        ...

    def hello(self, link: ReplicaLink, hello: SlaveHello) -> MasterHello:
        """The answer to a slave's hello."""
        ...

    def acknowledged(self, link: ReplicaLink) -> None:
        """The slave has reported."""
        ...

    def closed(self, link: ReplicaLink, reason: str) -> None:
        """The link is over."""
        ...

    def run(self, work: Coroutine[object, object, None]) -> None:
        """Run a task that ends with the server."""
        ...


class ReplicaRefusedError(KourouError):
    """A slave cannot be served; the message says why."""


@dataclass(slots=True)
class LinkTimes:
    """When something was last read and written, by the loop's clock."""

    read: float
    written: float


class ReplicaLink:
    """A slave that is connected. `ack_phy_offset`: it has everything below."""

    def __init__(
        self,
        peer: AcceptedSocket,
        *,
        loop: asyncio.AbstractEventLoop,
        log: CommitLog,
        disk: DiskThreads,
        owner: LinkOwner,
        max_transfer_bytes: Callable[[], int],
    ) -> None:
        self._socket = peer
        self._descriptor = peer.fileno()
        self._loop = loop
        self._log = log
        self._disk = disk
        self._owner = owner
        self._max_transfer_bytes = max_transfer_bytes
        self._stream = SlaveStream()
        self._next: int | None = None  # None: the slave has not reported yet
        self._unsent: list[memoryview] = []
        self._is_blocked = False
        self._is_loading = False
        self.is_open = True
        self.address = format_address(peer.peer_name)
        self.slave: SlaveHello | None = None
        self.challenge = ""
        """What a slave was given that has to prove itself."""
        self.ack_phy_offset = -1
        now = loop.time()
        self.opened = now
        self.times = LinkTimes(now, now)
        self.lag = ReplicaLag()
        self.rate = TransferRate(now)
        loop.add_reader(self._descriptor, self._readable)

    def __str__(self) -> str:
        who = "the slave" if self.slave is None else f"slave {self.slave.broker_id}"
        return f"{who} at {self.address}"

    @property
    def host(self) -> str:
        """The IP address of the slave."""
        return parse_address(self.address)[0]

    @property
    def is_tls(self) -> bool:
        """Whether the link is encrypted; it is not known before the slave has said something."""
        return self._socket.is_tls

    @property
    def next_phy_offset(self) -> int:
        """What is sent next; -1: the slave has not reported yet."""
        return -1 if self._next is None else self._next

    @property
    def is_reporting(self) -> bool:
        """Whether the slave has reported, so that it counts."""
        return self._next is not None

    # -- reading -------------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self.close(error.strerror or str(error))
            return
        if not data:
            self.close(SLAVE_CLOSED)
            return
        self.times.read = self._loop.time()
        try:
            self._take(self._stream.feed(data))
        except (ProtocolError, ReplicaRefusedError) as error:
            self.close(str(error))

    def _take(self, found: SlaveHello | int | None) -> None:
        if isinstance(found, SlaveHello):
            self._greet(found)
            if self.is_open:
                self._take(self._stream.feed(b""))
        elif found is not None:
            self._reported(found)

    def _greet(self, hello: SlaveHello) -> None:
        answer = self._owner.hello(self, hello)
        self._send(encode_hello(answer))
        if answer.challenge:
            self.challenge = answer.challenge
            self._stream.expect_hello()
            return
        self.slave = hello
        if answer.refusal:
            self.close(answer.refusal)
            return
        self._next = answer.start_phy_offset
        self._acknowledge(answer.start_phy_offset)

    def _reported(self, max_phy_offset: int) -> None:
        if self._next is None:
            self._next = self._owner.first_report(self, max_phy_offset)
            self._acknowledge(max_phy_offset)
            return
        if max_phy_offset > self._log.max_phy_offset:
            raise ReplicaRefusedError(
                f"it reports {max_phy_offset}, this log ends at {self._log.max_phy_offset}"
            )
        self._acknowledge(max_phy_offset)

    def _acknowledge(self, phy_offset: int) -> None:
        self.ack_phy_offset = phy_offset
        self.lag.acknowledged(phy_offset, self._log.max_phy_offset, self.times.read)
        self._owner.acknowledged(self)
        self.pump()

    # -- sending -------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send what the slave does not have, as far as its socket takes it now."""
        if self._next is None or self._is_blocked or self._is_loading or not self.is_open:
            return
        log, sent_bytes = self._log, 0
        while sent_bytes < _BYTES_AT_ONCE:
            if self._next >= log.max_phy_offset:
                return
            log_file, size = self._next_run(self._next)
            if log_file is None:
                return
            if not self.lag.is_behind:
                self.lag.grown(log.max_phy_offset, self._loop.time())
            data = log.read_nowait(self._next, size)
            if data is None:
                self._is_loading = True
                self._owner.run(self._load(log_file, self._next, size))
                return
            if not self._transfer(data):
                return
            sent_bytes += size
        self._loop.call_soon(self.pump)

    def _next_run(self, phy_offset: int) -> tuple[LogFile | None, int]:
        """What to send next: bytes of one file. None: the slave can get no more."""
        log = self._log
        log_file = log.file_at(phy_offset)
        if log_file is None:
            self.close(
                f"it needs the log from {phy_offset} on, which was deleted up to {log.min_phy_offset}; "
                "remove the slave's store to copy all of it"
            )
            return None, 0
        limit = OWN_TRANSFER_BYTES if self.slave is not None else self._max_transfer_bytes()
        return log_file, min(limit, log_file.end_phy_offset - phy_offset, log.max_phy_offset - phy_offset)

    async def _load(self, log_file: LogFile, phy_offset: int, size: int) -> None:
        log_file.pin()
        position = phy_offset - log_file.start_phy_offset
        try:
            log_file.file.will_need(OWN_TRANSFER_BYTES * 4, position)
            data = await self._disk.run(log_file.file.pread, size, position)
        except OSError as error:
            self.close(f"{log_file.path} cannot be read: {error.strerror or error}")
            return
        finally:
            log_file.unpin()
            self._is_loading = False
        if len(data) < size:
            self.close(f"{log_file.path} was cut short")
        elif self.is_open and self._transfer(data):
            self.pump()

    def _transfer(self, data: Buffer) -> bool:
        assert self._next is not None
        head = transfer_head(self._next, len(data))
        self._next += len(data)
        is_sent = self._send(head, data)
        self.rate.add(len(data), self.times.written)
        return is_sent

    def heartbeat(self) -> None:
        """Show the slave that the master is there."""
        if self._next is not None and not self._is_blocked:
            self._send(transfer_head(self._next, 0))

    def _send(self, *parts: Buffer) -> bool:
        """Send; False: the rest waits for room in the socket, or the link is over."""
        sent = self._send_some(parts)
        if sent == sum(map(len, parts)):
            return True
        if self.is_open:
            self._unsent = _behind([memoryview(part) for part in parts], sent)
            self._is_blocked = True
            self._loop.add_writer(self._descriptor, self._writable)
        return False

    def _send_some(self, parts: Sequence[Buffer]) -> int:
        """Send what the socket takes now; how many bytes."""
        try:
            sent = self._socket.sendmsg(parts)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            self.close(error.strerror or str(error))
            return 0
        self.times.written = self._loop.time()
        return sent

    def _writable(self) -> None:
        sent = self._send_some(self._unsent)
        if not self.is_open:
            return
        self._unsent = _behind(self._unsent, sent)
        if not self._unsent:
            self._is_blocked = False
            self._loop.remove_writer(self._descriptor)
            self.pump()

    # -- end -----------------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """End the link; the slave may come back at any time."""
        if not self.is_open:
            return
        self.is_open = False
        self._loop.remove_reader(self._descriptor)
        if self._is_blocked:
            self._loop.remove_writer(self._descriptor)
        self._unsent = []
        self._socket.close()
        self._owner.closed(self, reason)


def _behind(parts: list[memoryview], sent_bytes: int) -> list[memoryview]:
    """What is left of these parts when so many bytes were sent."""
    while parts and sent_bytes >= len(parts[0]):
        sent_bytes -= len(parts[0])
        parts = parts[1:]
    return [parts[0][sent_bytes:], *parts[1:]] if sent_bytes else parts
