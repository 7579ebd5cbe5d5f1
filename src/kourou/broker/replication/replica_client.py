"""ReplicaClient: the slave's side of replication: follows one master's log.

Reports at once where its log ends, appends what comes, reports how far it is, then dispatches. A link that
breaks is opened again; a log that does not continue the master's is reported, and nothing is followed until
an operator has decided. Which master that is comes from the name servers, or from `haMasterAddress`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from kourou import __version__
from kourou.broker.replication.lag import TransferRate
from kourou.broker.replication.replica_link import OWN_TRANSFER_BYTES
from kourou.broker.replication.replica_status import MasterAddress, ReplicaState, ReplicaStatus
from kourou.errors import KourouError, ProtocolError, StorageError
from kourou.protocol.ha import (
    MasterHello,
    MasterStream,
    SlaveHello,
    Transfer,
    encode_hello,
    encode_report,
)
from kourou.store.replica.replica_log import ReplicaError, ReplicaLog
from kourou.transport.addresses import parse_address
from kourou.transport.connect_problem import connect_problem
from kourou.transport.from_config import ha_client_tls
from kourou.transport.tls import follow_client
from kourou.transport.tls_socket import open_tls

if TYPE_CHECKING:
    from kourou.broker.replication.membership import Membership
    from kourou.broker.replication.replica_proof import ReplicaProofs
    from kourou.broker.settings import LiveConfig
    from kourou.protocol.ha import Epoch
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.replica.epochs import EpochFile
    from kourou.transport.tls_socket import StreamSocket

_log = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S: Final = 3.0
_FIRST_RETRY_S: Final = 0.2
_LONGEST_RETRY_S: Final = 5.0
# Apache's masters send at most haTransferBatchSize, which an operator may raise up to their slaves' buffer.
_MAX_TRANSFER_BYTES: Final = max(OWN_TRANSFER_BYTES, 4 * 1024 * 1024)


class DivergedError(KourouError):
    """The slave's log is not the beginning of its master's. Outside a fail-over set only an operator can
    decide what to do. `common_phy_offset`: up to where it is, or -1."""

    def __init__(self, text: str, common_phy_offset: int = -1) -> None:
        super().__init__(text)
        self.common_phy_offset = common_phy_offset


class ReplicaClient:
    """Follows the master that `lead_by` names. `check` compares this log with the master's before an Apache
    link is opened; `speaks_hello` finds out which link it is."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        address: str,
        log: CommitLog,
        replica: ReplicaLog,
        epochs: EpochFile,
        now_ms: Callable[[], int],
        speaks_hello: Callable[[MasterAddress], Awaitable[bool]],
        check: Callable[[MasterAddress], Awaitable[None]],
        before_dispatch: Callable[[], None],
        seek_master: Callable[[], None],
        status: ReplicaStatus,
        proofs: ReplicaProofs,
        membership: Membership | None = None,
    ) -> None:
        self._config = config
        self._address = address
        self._commit_log = log
        self._replica = replica
        self._epochs = epochs
        self._now_ms = now_ms
        self._speaks_hello = speaks_hello
        self._check = check
        self._before_dispatch = before_dispatch
        self._seek_master = seek_master
        self._proofs = proofs
        self._membership = membership
        self._loop = asyncio.get_running_loop()
        self._tls_config = ha_client_tls(config.current)
        self._tls = follow_client(self._tls_config, "the link to the master")
        self._master: MasterAddress | None = None
        self._plaintext_master: MasterAddress | None = None
        self._changed = asyncio.Event()
        self._reported = -1
        self._master_epochs: tuple[Epoch, ...] = ()
        self._has_all_epochs = False
        self._catches_up_to: int | None = None
        self.status = status
        self.rate = TransferRate(self._loop.time())

    def lead_by(self, master: MasterAddress | None) -> None:
        """Follow this master from now on; None keeps the one there is."""
        if master is None or master == self._master:
            return
        self._master = self.status.master = master
        self._changed.set()

    async def run(self) -> None:
        """Follow until cancelled, or until the log and the master's have parted; in a fail-over set, another
        master is then followed."""
        retry_s = _FIRST_RETRY_S
        while True:
            self._changed.clear()
            master = self._master
            if master is None:
                await self._pause(retry_s)
                retry_s = self._seek(retry_s)
                continue
            self.status.state = ReplicaState.CONNECTING
            try:
                await self._follow_until_changed(master)
                retry_s = _FIRST_RETRY_S
                continue
            except (DivergedError, ReplicaError, StorageError) as error:
                if self._is_left_to_the_set(error):
                    return
                self._stop(str(error))
                if self._membership is None or not isinstance(error, DivergedError):
                    return
                await self._changed.wait()  # the log of another master may continue this one
                continue
            except (KourouError, OSError, TimeoutError) as error:
                if self.status.state is ReplicaState.FOLLOWING:
                    retry_s = _FIRST_RETRY_S
                self._report_problem(master, error)
            await self._pause(retry_s)
            retry_s = self._seek(retry_s)

    def _seek(self, paused_s: float) -> float:
        """Look for a master where the known one does not answer; the next pause."""
        if self._changed.is_set():
            return _FIRST_RETRY_S  # another master, which may not serve for a moment yet
        self._seek_master()
        return min(paused_s * 2, _LONGEST_RETRY_S)

    def _report_problem(self, master: MasterAddress, error: Exception) -> None:
        text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        if text != self.status.problem:
            _log.warning("not following the master at %s, retrying: %s", master.ha, text)
        self.status.state, self.status.problem = ReplicaState.CONNECTING, text

    def _is_left_to_the_set(self, error: Exception) -> bool:
        """Whether this is a member of a fail-over set, which cuts its log and is started again."""
        if self._membership is None or not isinstance(error, DivergedError) or error.common_phy_offset < 0:
            return False
        self.status.state, self.status.problem = ReplicaState.CONNECTING, str(error)
        self._membership.parted(error.common_phy_offset)
        return True

    def _stop(self, problem: str) -> None:
        self.status.state, self.status.problem = ReplicaState.STOPPED, problem
        _log.critical(
            "this slave follows its master no more: %s. Nothing was overwritten; compare the stores "
            "(kourou store compare), then remove this one to copy the master's, and restart",
            problem,
        )

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _follow_until_changed(self, master: MasterAddress) -> None:
        following = asyncio.ensure_future(self._follow(master))
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait([following, changed], return_when=asyncio.FIRST_COMPLETED)
            if following.done():
                await following
        finally:
            for task in (following, changed):
                task.cancel()
            await asyncio.gather(following, changed, return_exceptions=True)

    # -- one link ----------------------------------------------------------------------------------

    async def _follow(self, master: MasterAddress) -> None:
        is_own = await self._speaks_hello(master)
        if not is_own:
            await self._check(master)
        peer, host = await self._connect(master.ha, is_own=is_own)
        stream = MasterStream(_MAX_TRANSFER_BYTES, expects_hello=is_own)
        link = _Link(self._loop, peer, host, stream, self._arrived)
        try:
            self._reported = self._commit_log.max_phy_offset
            if is_own:
                link.hello = self._proofs.opened(self._hello())
                link.send(encode_hello(link.hello))
            elif (unproven := self._proofs.unproven_master(link.host)) is not None:
                raise ProtocolError(unproven)
            else:
                link.send(encode_report(self._reported))
            await self._watch(link)
        finally:
            link.close()

    async def _watch(self, link: _Link) -> None:
        """Return when the link is over; report meanwhile that this slave is there."""
        while True:
            config = self._config.current
            done, _ = await asyncio.wait([link.end], timeout=config.ha_send_heartbeat_interval / 1000)
            if done:
                return link.end.result()
            silent_s = config.ha_housekeeping_interval / 1000
            if self._loop.time() - link.read_at > silent_s:
                raise ProtocolError(f"the master was silent for {silent_s:g} s")
            self._report(link)

    async def _connect(self, address: str, *, is_own: bool) -> tuple[StreamSocket, str]:
        """A connection, with TLS if the configuration demands it, and the IP address of the master."""
        host, port = parse_address(address)
        context = await self._tls_context(is_own=is_own)
        infos = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, name = infos[0]
        peer = socket.socket(family, kind, protocol)
        try:
            peer.setblocking(False)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await self._loop.sock_connect(peer, name)
                ip = str(peer.getpeername()[0])
                return (peer if context is None else await _with_tls(peer, context, address)), ip
        except BaseException:
            peer.close()
            raise

    async def _tls_context(self, *, is_own: bool) -> ssl.SSLContext | None:
        """What a link begins with; None: plaintext. Apache's masters offer no TLS here, so that `tls.enable`
        is not about them."""
        await self._tls.look_when_due(self._loop.time(), self._tls_config.look_every_s)
        context = self._tls.context
        if context is None or is_own or self._config.current.tls_enable_ha:
            return context
        if self._master != self._plaintext_master:
            self._plaintext_master = self._master
            _log.warning(
                "the link to the master is not encrypted, although tls.enable is on: the master is Apache's, "
                "or not known as Kourou's; tls.enable.ha=true demands TLS of it, tls.enable.ha=false ends "
                "this warning"
            )
        return None

    def _hello(self) -> SlaveHello:
        config, log = self._config.current, self._commit_log
        return SlaveHello(
            software=f"kourou {__version__}",
            cluster=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_id=config.broker_id,
            address=self._address,
            epochs=self._epochs.epochs,
            min_phy_offset=log.min_phy_offset,
            max_phy_offset=log.max_phy_offset,
            file_bytes=log.file_bytes,
            tail=self._replica.tail(),
            known_epoch=self._known_epoch,
        )

    @property
    def _known_epoch(self) -> int:
        return 0 if self._membership is None else self._membership.known_epoch()

    def _arrived(self, link: _Link) -> None:
        """Take what the master has sent: append, report, dispatch."""
        appended_bytes = 0
        try:
            while (found := link.stream.next()) is not None:
                if isinstance(found, MasterHello):
                    self._greeted(link, found)
                else:
                    appended_bytes += self._take(found)
            if appended_bytes and not self._has_all_epochs:
                # Before the report: records without their epoch would be cut off at the next link.
                self._follow_epochs()
            self._look_caught_up()
            if self._commit_log.max_phy_offset > self._reported:
                # Early: with synchronous double write senders wait for it.
                self._report(link)
            self.status.last_read_ms = self._now_ms()
        finally:
            # Also when the link has just broken: consumers read from here while the master is away.
            if appended_bytes:
                self._dispatch(appended_bytes, link)

    def _dispatch(self, appended_bytes: int, link: _Link) -> None:
        self.rate.add(appended_bytes, link.read_at)
        self._before_dispatch()
        self._replica.dispatch()

    def _greeted(self, link: _Link, hello: MasterHello) -> None:
        if hello.challenge:
            self._prove(link, hello.challenge)
            return
        unproven = self._proofs.unproven_master(link.host, link.hello, link.challenge, hello)
        if unproven is not None:
            # What it says has no effect, but it may be the reason.
            raise ProtocolError(hello.refusal or unproven)
        if hello.refusal:
            if hello.is_diverged and hello.epoch >= self._known_epoch:
                raise DivergedError(hello.refusal, hello.common_phy_offset)
            raise ProtocolError(hello.refusal)
        if hello.epoch < self._known_epoch:
            raise ProtocolError(
                f"the master is of epoch {hello.epoch}, and epoch {self._known_epoch} is known: it is deposed"
            )
        self._master_epochs = hello.epochs
        self._follow_epochs()
        self._following(hello.start_phy_offset, hello)
        self._catches_up_to = hello.max_phy_offset

    def _prove(self, link: _Link, challenge: str) -> None:
        assert link.hello is not None, "only the answer to a hello has a challenge"
        proven = None if link.challenge else self._proofs.proven(link.hello, challenge)
        if proven is None:
            raise ProtocolError("the master asks for a proof that this slave cannot give")
        link.challenge = challenge
        link.stream.expect_hello()
        link.send(encode_hello(proven))

    def _look_caught_up(self) -> None:
        end = self._catches_up_to
        if end is not None and self._commit_log.max_phy_offset >= end:
            self._catches_up_to = None
            if self._membership is not None:
                self._membership.caught_up()

    def _follow_epochs(self) -> None:
        end, epochs = self._commit_log.max_phy_offset, self._master_epochs
        self._epochs.follow(epochs, end)
        self._has_all_epochs = not epochs or epochs[-1].start_phy_offset <= end

    def _take(self, transfer: Transfer) -> int:
        """Append what is in a transfer; how many bytes."""
        if self.status.state is not ReplicaState.FOLLOWING:
            self._following(transfer.phy_offset, None)
        if transfer.data:
            self._replica.append(transfer.phy_offset, transfer.data)
        elif not self._replica.is_empty and transfer.phy_offset != self._commit_log.max_phy_offset:
            raise ProtocolError(
                f"the master goes on at {transfer.phy_offset}, this log ends at "
                f"{self._commit_log.max_phy_offset}"
            )
        return len(transfer.data)

    def _following(self, start_phy_offset: int, hello: MasterHello | None) -> None:
        self.status.state, self.status.problem = ReplicaState.FOLLOWING, None
        if self._membership is not None:
            self._membership.followed()
        assert self._master is not None
        _log.info(
            "following the master at %s%s from %d on%s",
            self._master.ha,
            f" ({hello.software})" if hello else "",
            start_phy_offset,
            f", where the log ends at {hello.max_phy_offset}" if hello else "",
        )

    def _report(self, link: _Link) -> None:
        self._reported = self._commit_log.max_phy_offset
        link.send(encode_report(self._reported))
        self.status.last_write_ms = self._now_ms()


async def _with_tls(peer: socket.socket, context: ssl.SSLContext, address: str) -> StreamSocket:
    try:
        return await open_tls(peer, context, parse_address(address)[0])
    except OSError as error:
        raise connect_problem(address, error, is_tls=True) from error


class _Link:
    """A connection to a master. `arrived` is called when bytes were added to `stream`; what it raises ends
    the link, and `end` with it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        peer: StreamSocket,
        host: str,
        stream: MasterStream,
        arrived: Callable[[_Link], None],
    ) -> None:
        self._loop = loop
        self._socket = peer
        self._arrived = arrived
        self._unsent = b""
        self.stream = stream
        self.host = host
        self.hello: SlaveHello | None = None
        """What this slave has opened the link with."""
        self.challenge = ""
        """What the master has given for a proof."""
        self.end: asyncio.Future[None] = loop.create_future()
        self.read_at = loop.time()
        loop.add_reader(peer.fileno(), self._readable)

    def _readable(self) -> None:
        if self.end.done():
            return
        try:
            size = self._socket.recv_into(self.stream.room())
            if not size:
                raise ProtocolError("the master has closed the connection")
            self.read_at = self._loop.time()
            self.stream.filled(size)
            self._arrived(self)
        except (BlockingIOError, InterruptedError):
            return
        except Exception as error:
            self.end.set_exception(error)

    def send(self, data: bytes) -> None:
        """Send a hello or a report. While the master does not read, reports are dropped: a later one says
        more."""
        if self._unsent:
            self._unsent = self._unsent[self._send(self._unsent) :]
        if not self._unsent:
            self._unsent = data[self._send(data) :]

    def _send(self, data: bytes) -> int:
        try:
            return self._socket.sendmsg((data,))
        except (BlockingIOError, InterruptedError):
            return 0

    def close(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
        if self.end.done():
            self.end.exception()  # it was raised already, or is of no interest any more
