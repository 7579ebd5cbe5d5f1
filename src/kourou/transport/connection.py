"""Connection: one socket to a peer, both roles in one class.

A connection carries requests in both directions. Everything complete in one read is handled at once by
ordinary calls, except for requests that a BulkHandler collects until the cycle ends; responses are collected
and written once, at the end of the cycle (cycles.py). Not here: listening (server.py), connecting
(client.py), meaning (processors).

Back-pressure: when the peer does not read its responses, its further requests are neither decoded nor read
until it does; requests already read wait in `_backlog`, at most one cycle's worth. A peer whose unsent
responses still exceed `max_unsent_bytes` is closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from kourou.errors import ConnectionLostError, ProtocolError, TooManyRequestsError
from kourou.protocol.command import CommandHead, RemotingCommand, command_of
from kourou.protocol.frame import FrameDecoder, RawFrame, encode_frame
from kourou.protocol.layout import Buffer
from kourou.protocol.request_head import decode_request_head
from kourou.transport.addresses import format_address
from kourou.transport.certificate_user import CertificateUser, certificate_user
from kourou.transport.cycles import Cycles
from kourou.transport.large_reads import MAX_LARGE_READS, LargeReads
from kourou.transport.pending_calls import Answer, PendingCalls
from kourou.transport.request import Processor, Request
from kourou.transport.settings import ConnectionLimits
from kourou.transport.tls import describe_failure

_log = logging.getLogger(__name__)

_RESPONSE = 1
_ONEWAY = 2
# A closing connection whose peer does not read the last responses is aborted after this time.
_CLOSE_GRACE_S = 3.0
# A thread that writes to the connection is done by then.
_TURN_S = 0.001
_TLS_HINT = (
    ", without any answer; if the server requires TLS, enable it here: tls=True, --tls or tls.enable=true"
)
# A read of this size means that more is waiting. The transport would continue reading, megabytes at a
# time, while timers and other connections wait: they get their turn first.
_TURN_BYTES = 128 * 1024
# Above this average size, joining pieces costs more than passing them to the transport one by one.
_JOIN_BELOW_BYTES = 16 * 1024


class BulkHandler(Protocol):
    """Handles requests of some kind together, when the cycle ends."""

    def collect(self, connection: Connection, data: bytes, position: int) -> int:
        """Collect the requests in whole frames of `data` from `position` on; returns where they end."""
        ...

    def room(self, size_bytes: int, /) -> bytearray:
        """Memory for large reads; what is in it is undefined."""
        ...

    def collect_large(self, connection: Connection, data: memoryview) -> int:
        """Collect the sends at the start of what a large read has brought; returns where they end."""
        ...

    def finish(self, connection: Connection) -> None:
        """Handle what was collected from the connection, because other requests follow."""
        ...


class SharedWrites(Protocol):
    """The socket of a connection, for a thread that writes whole answers to it in between."""

    def claim(self) -> bool:
        """Whether the loop may write from here on, until `release`."""
        ...

    def claim_rest(self) -> None:
        """The loop writes what the thread has left of an answer."""
        ...

    def release(self) -> None:
        """The thread may write: nothing is unsent."""
        ...

    def close(self) -> None:
        """The thread writes no more."""
        ...


class InboundBudget:
    """Bytes of incomplete frames over all connections of one server or client, and how many connections
    have large reads."""

    __slots__ = ("large_reads", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.large_reads = 0


class Connection(asyncio.Protocol):
    """One socket: decodes what comes in, collects what goes out."""

    __slots__ = (
        "__weakref__",
        "_backlog",
        "_budget",
        "_budgeted",
        "_close_reason",
        "_decoder",
        "_dispatch",
        "_fd",
        "_heard",
        "_is_tls",
        "_limits",
        "_loop",
        "_lost",
        "_on_close",
        "_on_open",
        "_out",
        "_out_bytes",
        "_cycles",
        "_reads",
        "_shared",
        "_bulk",
        "_transport",
        "_user_source",
        "_unsent_oneways",
        "_writable",
        "_write_paused",
        "calls",
        "certificate_user",
        "closed",
        "last_active",
        "last_heard",
        "local_address",
        "max_frame_bytes",
        "remote_address",
        "state",
    )

    def __init__(
        self,
        cycles: Cycles,
        dispatch: Processor,
        limits: ConnectionLimits,
        budget: InboundBudget,
        *,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
        bulk: BulkHandler | None = None,
        new_state: Callable[[], object] | None = None,
        user_source: CertificateUser = CertificateUser.NONE,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._cycles = cycles
        self._dispatch = dispatch
        self._limits = limits
        self._budget = budget
        self._budgeted = 0
        self._on_open = on_open
        self._on_close = on_close
        self._bulk = bulk
        self._decoder = FrameDecoder(limits.max_frame_bytes)
        # The largest frame accepted from the peer; asked for each read, so an attribute.
        self.max_frame_bytes = limits.max_frame_bytes
        self._backlog: list[RawFrame] = []
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._write_paused = False
        self._writable: asyncio.Event | None = None
        self._reads = True
        # None before a thread has anything to write.
        self._shared: SharedWrites | None = None
        self._unsent_oneways = 0
        self._close_reason = ""
        self._is_tls = False
        self._fd = -1
        self._user_source = user_source
        self._heard = False
        self._lost = False
        self._transport: asyncio.Transport | None = None
        self.calls = PendingCalls(self._loop, "unknown", limits.max_calls)
        self.closed = False
        self.last_active = self.last_heard = self._loop.time()
        # The name in the peer's verified certificate, where the server takes it as user.
        self.certificate_user: str | None = None
        self.local_address = "unknown"
        self.remote_address = "unknown"
        # Set by the owner of the connection, which knows its type.
        self.state: Any = None if new_state is None else new_state()

    # -- life -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._limits.write_high_bytes)
        self.local_address = format_address(transport.get_extra_info("sockname"))
        self.remote_address = format_address(transport.get_extra_info("peername"))
        tls = transport.get_extra_info("ssl_object")
        self._is_tls = tls is not None
        self._fd = -1 if self._is_tls else _fd_of(transport)
        self.certificate_user = certificate_user(tls, self._user_source)
        self.calls = PendingCalls(self._loop, self.remote_address, self._limits.max_calls)
        if self._on_open is not None:
            self._on_open(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._lost = True
        self._backlog.clear()
        self._out.clear()
        if self._shared is not None:
            self._shared.close()
        self._account(0)
        self._wake_writers()
        self._close_reason = reason = self._close_reason or self._reason_of(exc)
        self.calls.fail_all(reason)
        if self._on_close is not None:
            self._on_close(self)
        _log.debug("connection with %s ended: %s", self.remote_address, reason)

    def eof_received(self) -> bool:
        # The peer has closed its side: it would not read a response.
        return False

    @property
    def is_tls(self) -> bool:
        """True when the bytes are encrypted."""
        return self._is_tls

    def close(self, reason: str) -> None:
        """Write what is collected, then close; a peer that does not read is disconnected."""
        if self.closed or self._transport is None:
            return
        self._close_reason = reason
        self.flush()
        self.closed = True
        self._backlog.clear()
        if not self._transport.is_closing():  # otherwise the transport is about to report the end
            self._loop.call_later(_CLOSE_GRACE_S, self._cut)
            self._close_transport()

    def _close_transport(self) -> None:
        """Close the transport behind what a thread is writing, and what was collected meanwhile."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._shared is not None and not self._shared.claim():
            self._loop.call_later(_TURN_S, self._close_transport)
            return
        if self._out:
            transport.writelines(self._out)
            self._out = []
        transport.close()

    def abort(self, reason: str) -> None:
        """Close at once; unsent bytes are lost."""
        if self._transport is not None:
            self._close_reason = self._close_reason or reason
            self.closed = True
            self._transport.abort()

    def stop_reading(self) -> None:
        """Read no more requests from the peer (a server that stops)."""
        self._reads = False
        self._pause_reading()

    def _cut(self) -> None:
        if not self._lost:
            self.abort("the peer did not read its last responses")

    # -- in ---------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self.last_active = self.last_heard = self._loop.time()
        self._heard = True
        bulk, decoder = self._bulk, self._decoder
        try:
            # Nothing stops a run half-way: its responses leave together, at the end of the cycle.
            if bulk is None or self._write_paused or self._backlog or self.closed:
                frames = decoder.feed(data)
            elif decoder.pending_bytes:
                frames = self._collect_rest(bulk, data)
            else:
                position = bulk.collect(self, data, 0)
                frames = decoder.feed(data[position:]) if position < len(data) else []
        except ProtocolError as error:
            self._finish_bulk()
            self._refuse(error)
            return
        if decoder.pending_bytes or self._budgeted:
            self._account(decoder.pending_bytes)
        if frames:
            self._cycles.open()
            if self._backlog:  # bytes that arrived before the transport paused
                self._backlog += frames
            else:
                self._handle(frames)
        if decoder.failure is not None:
            self._finish_bulk()
            self._refuse(decoder.failure)
        elif len(data) >= _TURN_BYTES and not self._backlog:
            self._pause_reading()
            self._begin_large_reads()
            self._loop.call_soon(self._resume_reading)

    def _begin_large_reads(self) -> None:
        """Receive further bytes where the bulk handler can leave them, if that is possible."""
        bulk, transport, decoder, budget = self._bulk, self._transport, self._decoder, self._budget
        if bulk is None or transport is None or self._is_tls or self._write_paused or self.closed:
            return
        if budget.large_reads < MAX_LARGE_READS and transport.get_extra_info("socket") is not None:
            transport.set_protocol(LargeReads(self, bulk, budget, decoder.give_back()))

    def collect_large(self, data: memoryview) -> int:
        """Collect the sends at the start of what a large read has brought; where they end."""
        self.last_active = self.last_heard = self._loop.time()
        self._heard = True
        if self._bulk is None or self._write_paused or self._backlog or self.closed:
            return 0
        return self._bulk.collect_large(self, data)

    def large_read_done(self, pending_bytes: int, size: int) -> None:
        """A large read of `size` bytes has left an incomplete frame, or none."""
        if pending_bytes or self._budgeted:
            self._account(pending_bytes)
        if size >= _TURN_BYTES:
            self._pause_reading()
            self._loop.call_soon(self._resume_reading)

    def end_large_reads(self, rest: bytes) -> None:
        """Receive as before, from `rest` on."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
            self._transport.set_protocol(self)
            self._resume_reading()
        self._account(0)
        if rest:
            self.data_received(rest)

    def _collect_rest(self, bulk: BulkHandler, data: bytes) -> list[RawFrame]:
        """Let the bulk handler collect requests of which `data` brings the rest of the first; returns the
        frames after them."""
        decoder = self._decoder
        whole, position = decoder.complete(data)
        if whole and not bulk.collect(self, whole, 0):
            return decoder.feed(whole + data[position:])
        # A full cycle ends during collection, and earlier responses may have filled the peer's buffer.
        if not (self._write_paused or self._backlog or self.closed):
            position = bulk.collect(self, data, position)
        return decoder.feed(data[position:]) if position < len(data) else []

    def _finish_bulk(self) -> None:
        if self._bulk is not None:
            self._bulk.finish(self)

    def _handle(self, frames: list[RawFrame]) -> None:
        if self._bulk is not None:
            self._bulk.finish(self)
            if self.closed:
                return
            if self.is_write_paused:
                self._hold(frames)
                return
        self.handle_singly(frames)

    def handle_singly(self, frames: list[RawFrame]) -> None:
        """Handle requests one after the other. Requests after one that fills the peer's buffer wait; those
        after one that closes the connection are dropped. If it was closed before, all are handled: they
        arrived earlier."""
        was_closed = self.closed
        for index, (serialize_type, header, body) in enumerate(frames):
            try:
                head = decode_request_head(serialize_type, header)
            except ProtocolError as error:
                self._refuse(error)
                return
            if head.flag & _RESPONSE:
                self._answered(serialize_type, head, body)
            else:
                self._dispatch(Request(self, serialize_type, head, body, header))
            if was_closed:
                continue
            if self.closed:
                return
            if self._write_paused:
                self._hold(frames[index + 1 :])
                return

    def _collect_again(self, bulk: BulkHandler, frames: list[RawFrame]) -> list[RawFrame]:
        """Let the bulk handler collect the requests at the start of `frames`; returns those after them."""
        data = b"".join([encode_frame(*frame) for frame in frames])
        end = bulk.collect(self, data, 0)
        return FrameDecoder(self.max_frame_bytes).feed(data[end:])

    def _hold(self, rest: list[RawFrame]) -> None:
        self._backlog += rest
        self._pause_reading()

    def _pause_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _resume_reading(self) -> None:
        if not self._reads or self._write_paused or self._transport is None:
            return
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def _answered(self, serialize_type: int, head: CommandHead, body: bytes) -> None:
        answer = self.calls.take(head.opaque)
        if answer is None:
            _log.debug("late answer %d from %s dropped", head.opaque, self.remote_address)
        elif not isinstance(answer, asyncio.Future):
            answer.set_answer(head, body)
        elif not answer.done():  # done: the caller was cancelled
            answer.set_result(command_of(serialize_type, head, body))

    def _refuse(self, error: ProtocolError) -> None:
        if self.closed:
            return
        _log.warning("closing %s: %s", self.remote_address, error)
        self.close(str(error))

    def _account(self, pending_bytes: int) -> None:
        budget = self._budget
        budget.used += pending_bytes - self._budgeted
        self._budgeted = pending_bytes
        if pending_bytes and budget.used > budget.limit:
            _log.warning(
                "closing %s: incomplete frames of all connections exceed %d bytes",
                self.remote_address,
                budget.limit,
            )
            self.abort("too many bytes of incomplete frames over all connections")

    # -- out --------------------------------------------------------------------------------

    def send(self, data: Buffer) -> None:
        """Collect bytes for the write at the end of the cycle; a view must not change until then. Dropped
        when the peer is gone."""
        if self.closed:
            return
        if not self._out:
            self._cycles.mark_dirty(self)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes >= self._limits.write_high_bytes:
            self.flush()

    def send_at_end(self, data: Buffer) -> None:
        """Like `send` while the cycle ends: what is not behind other bytes goes to the transport at once."""
        transport = self._transport
        if self._out or self._write_paused or self._shared is not None or transport is None:
            self.send(data)
        elif not (self.closed or transport.is_closing()):
            try:
                transport.write(data)
            except (OSError, RuntimeError) as error:  # uvloop raises on a closed handle
                self.abort(f"write failed: {error}")

    def writable_fd(self) -> int:
        """The socket, for a caller that writes to it at once what answers the read under way, and passes to
        `send` what it does not take; -1 if that could overtake something, or bytes are encrypted. Good until
        the caller returns."""
        transport = self._transport
        if self._fd < 0 or self._out or self.closed or transport is None or transport.is_closing():
            return -1
        if transport.get_write_buffer_size() or (self._shared is not None and not self._shared.claim()):
            return -1
        return self._fd

    def send_parts(self, parts: Sequence[Buffer], size_bytes: int) -> None:
        """Like `send`, for bytes in many pieces, `size_bytes` in total."""
        if self.closed:
            return
        if not self._out:
            self._cycles.mark_dirty(self)
        self._out += parts
        self._out_bytes += size_bytes
        if self._out_bytes >= self._limits.write_high_bytes:
            self.flush()

    def flush(self) -> None:
        """Pass the collected bytes to the transport. Never raises: one dead peer must not cost the other
        connections of a cycle their responses."""
        if self._shared is not None and self._out and not self._takes_turn(self._shared):
            return
        out, self._out = self._out, []
        size, self._out_bytes = self._out_bytes, 0
        transport = self._transport
        if not out or transport is None or self.closed or transport.is_closing():
            return
        try:
            if len(out) == 1:
                transport.write(out[0])
            elif self._is_tls or size < len(out) * _JOIN_BELOW_BYTES:
                transport.write(b"".join(out))
            else:
                transport.writelines(out)
        except (OSError, RuntimeError) as error:  # uvloop raises on a closed handle
            self.abort(f"write failed: {error}")
            return
        if not self._write_paused:
            self.last_active = self._loop.time()
        elif transport.get_write_buffer_size() > self._limits.max_unsent_bytes:
            _log.warning(
                "closing %s: it left %d bytes of answers unread",
                self.remote_address,
                transport.get_write_buffer_size(),
            )
            self.abort("the peer does not read its answers")

    def _takes_turn(self, shared: SharedWrites) -> bool:
        """Whether what is collected may be written now; if a thread is writing, it is when that is done. What
        is left of a connection that closes is written right before its end."""
        if self.closed:
            return False
        if shared.claim():
            return True
        self._loop.call_later(_TURN_S, self.flush)
        return False

    def share_writes(self, new_shared: Callable[[int], SharedWrites]) -> SharedWrites:
        """Let a thread write, too, through what `new_shared` makes of the socket's descriptor; -1: only the
        loop can. It may write as long as nothing of ours is unsent, be it collected or with the transport."""
        shared = self._shared
        if shared is None:
            shared = self._shared = new_shared(self._fd)
            if self.closed:
                shared.close()
        # What is collected may be the rest of an answer.
        if not self._out and self._transport is not None and not self._transport.get_write_buffer_size():
            shared.release()
        return shared

    def write_rest(self, rest: bytes) -> None:
        """Write what a thread has left of an answer."""
        transport = self._transport
        if self._shared is None or transport is None or self._lost or transport.is_closing():
            return
        self._shared.claim_rest()
        transport.write(rest)

    def pause_writing(self) -> None:
        self._write_paused = True

    @property
    def is_write_paused(self) -> bool:
        """True while the peer does not read what is written to it."""
        return self._write_paused

    async def wait_writable(self) -> None:
        """Wait until the peer has read most of its responses, or is gone."""
        while self._write_paused and not self._lost:
            if self._writable is None:
                self._writable = asyncio.Event()
            await self._writable.wait()

    def _wake_writers(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    def resume_writing(self) -> None:
        self._write_paused = False
        self._wake_writers()
        self._unsent_oneways = 0
        self.last_active = self._loop.time()
        backlog, self._backlog = self._backlog, []
        if backlog and self._bulk is not None:
            backlog = self._collect_again(self._bulk, backlog)
        if backlog:
            self._cycles.open()
            self._handle(backlog)
        self._resume_reading()

    # -- calls of ours ----------------------------------------------------------------------

    def call_nowait(self, command: RemotingCommand, timeout_ms: int) -> Answer:
        """Send a request; the future gets the response, whatever its code."""
        if self.closed:
            raise ConnectionLostError(self.remote_address, self._close_reason)
        command.opaque, answer = self.calls.add(command.code, timeout_ms)
        try:
            self.send(command.encode())
        except BaseException:  # a request that cannot be written is not waited for
            self.calls.forget(command.opaque, answer)
            raise
        return answer

    async def call(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        """Send a request and wait for its response, whatever its code."""
        answer = self.call_nowait(command, timeout_ms)
        try:
            return await answer
        finally:
            self.calls.forget(command.opaque, answer)

    def send_oneway(self, command: RemotingCommand) -> None:
        """Send a request without a response; bounded while the peer does not read."""
        if self.closed:
            raise ConnectionLostError(self.remote_address, self._close_reason)
        if self._write_paused:
            if self._unsent_oneways >= self._limits.max_unsent_oneways:
                raise TooManyRequestsError(
                    self.remote_address, "one-way requests", self._limits.max_unsent_oneways
                )
            self._unsent_oneways += 1
        command.flag |= _ONEWAY
        command.opaque = self.calls.next_opaque()
        self.send(command.encode())

    def is_idle(self, now: float) -> bool:
        """True when no byte has moved for the idle time; `now` is on the loop's clock."""
        return now - self.last_active > self._limits.idle_timeout_ms / 1000

    def _reason_of(self, exc: Exception | None) -> str:
        # A server that requires TLS ends a plaintext connection at its first byte.
        is_unanswered = not self._is_tls and not self._heard and len(self.calls) > 0
        hint = _TLS_HINT if is_unanswered else ""
        if exc is not None:
            return describe_failure(exc) + (hint if isinstance(exc, ConnectionError) else "")
        if self._is_tls and not self._heard:
            # With TLS 1.3 a server looks at the client's certificate after our handshake is done,
            # and its alert is often lost with the connection.
            return "closed by the peer right after the TLS handshake; it may want another client certificate"
        return f"closed by the peer{hint}"


def _fd_of(transport: asyncio.BaseTransport) -> int:
    """The descriptor of the socket; -1 for a transport without one."""
    fileno = getattr(transport.get_extra_info("socket"), "fileno", None)
    return -1 if fileno is None else fileno()
