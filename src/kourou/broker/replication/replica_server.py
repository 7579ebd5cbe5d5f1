"""ReplicaServer: the master's side of replication: listens for slaves, and knows how far each of them is.

Every broker listens, as Apache's do; a slave's slaves get nothing. A slave that cannot be served is
disconnected with one log line: it comes back every few seconds, and the same line is not repeated each time.

A connection becomes a slave's by a hello, with a proof where access control is on, or by a report. Until then
it is unproven, and has one of a few places that are not those of slaves. When they are taken a newcomer gets
the place of another one, so that silent connections keep no slave out.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Collection, Coroutine
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from kourou import __version__
from kourou.broker.replication.replica_link import SLAVE_CLOSED, ReplicaLink, ReplicaRefusedError
from kourou.config.broker import SYNC_MASTER
from kourou.config.networks import source_of
from kourou.errors import ConfigError
from kourou.protocol.ha import MasterHello, SlaveHello
from kourou.store.replica.handshake import MasterLog, answer_hello, first_offset
from kourou.transport.acceptor import Acceptor
from kourou.transport.from_config import ha_server_tls
from kourou.transport.listener import bind_problem
from kourou.transport.settings import TlsMode
from kourou.transport.tls import follow_server, plaintext_warning
from kourou.transport.tls_socket import AcceptedSocket

if TYPE_CHECKING:
    from kourou.broker.replication.reign import Reign
    from kourou.broker.replication.replica_proof import ReplicaProofs
    from kourou.broker.settings import LiveConfig
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.replica.epochs import EpochFile
    from kourou.transport.tasks import TaskOwner
    from kourou.transport.tls_files import FollowedContext

_log = logging.getLogger(__name__)

_MAX_LINKS: Final = 64
# A slave needs its place for some milliseconds. Those of other addresses cannot take it away in that time,
# however many connections they open, and those of its own only with as many in these milliseconds.
_MAX_UNPROVEN: Final = 64
_TICK_S: Final = 1.0
# With access control, a peer without an account must not occupy a link for long.
_FIRST_REPORT_S: Final = 5.0
# A slave that is refused tries again every 5 s.
_SAME_LINE_S: Final = 600.0
_MAX_LINES: Final = 256
_SOFTWARE: Final = f"kourou {__version__}"
_STOPPING: Final = "the broker stops"
_CROWDED_OUT: Final = "it has not become a slave, and others wait"


class ReplicaServer:
    """Serves slaves from one log. `on_ack` is called when a slave has reported or is gone."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        log: CommitLog,
        epochs: EpochFile,
        disk: DiskThreads,
        tasks: TaskOwner,
        on_ack: Callable[[], None],
        after_write: list[Callable[[], None]],
        proofs: ReplicaProofs,
        reign: Reign | None = None,
    ) -> None:
        self._config = config
        self._commit_log = log
        self._epochs = epochs
        self._disk = disk
        self._tasks = tasks
        self._on_ack = on_ack
        self._proofs = proofs
        self._reign = reign
        self._loop = asyncio.get_running_loop()
        self._acceptor = Acceptor(accepted=self._take, short=self._short, failed=tasks.fail)
        self._said: dict[str, float] = {}
        # By their mode of the start; only the files are followed.
        self._tls_config = ha_server_tls(config.current)
        self._tls: FollowedContext | None = None
        self.links: set[ReplicaLink] = set()
        # What a commit cycle calls when it has written; without a link there is nothing to call.
        self._after_write = after_write

    async def start(self) -> None:
        """Bind and accept; ConfigError for a port that cannot be had, and for TLS files."""
        config = self._config.current
        host, port = config.bind_address, config.ha_listen_port or 0
        self._tls = follow_server(self._tls_config, f"port {port}, for slaves")
        if warning := plaintext_warning(self._tls_config, port):
            _log.warning("%s", warning)
        try:
            await self._acceptor.start(host, port, _MAX_UNPROVEN)
        except OSError as error:
            problem = bind_problem(host, port, error, port_key="haListenPort")
            if config.broker_role == SYNC_MASTER or port != config.listen_port + 1:
                raise ConfigError(problem) from error
            # The port was not chosen by an operator, and most brokers have no slaves.
            _log.warning("%s; until then no slave can follow this broker", problem)
        self._tasks.start(self._tick(), "replication")

    async def stop(self) -> None:
        """Accept no more and disconnect all slaves."""
        self._acceptor.stop()
        for link in list(self.links):
            link.close(_STOPPING)

    def member_links(self) -> dict[int, ReplicaLink]:
        """The slaves that are members of this broker's fail-over set and have reported, by their ids."""
        return {
            link.slave.broker_id: link
            for link in self.links
            if link.is_reporting and link.slave is not None and link.slave.known_epoch
        }

    def pump(self) -> None:
        """The log has grown: send it."""
        for link in tuple(self.links):  # one whose connection is broken leaves the set
            link.pump()

    # -- accepting -----------------------------------------------------------------------------

    def _short(self, error: OSError) -> None:
        self._say("accept", "no slave can connect for the moment: %s", error.strerror)

    def _take(self, accepted: socket.socket) -> None:
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link = ReplicaLink(
                AcceptedSocket(accepted, self._tls.context if self._tls is not None else None),
                loop=self._loop,
                log=self._commit_log,
                disk=self._disk,
                owner=self,
                max_transfer_bytes=lambda: self._config.current.ha_transfer_batch_size,
            )
        except OSError:  # gone already
            accepted.close()
            return
        if not self.links:
            self._after_write.append(self.pump)
        self.links.add(link)
        unproven = [each for each in self.links if not each.is_reporting]
        if len(unproven) > _MAX_UNPROVEN:
            crowding_out(unproven).close(_CROWDED_OUT)

    # -- what links report -----------------------------------------------------------------------

    def hello(self, link: ReplicaLink, hello: SlaveHello) -> MasterHello:
        config, log = self._config.current, self._commit_log
        # Before anything that it says has an effect.
        if no_tls := self._without_tls(link):
            return MasterHello(refusal=no_tls, software=_SOFTWARE)
        unproven = self._proofs.answer(link.host, hello, link.challenge)
        if unproven is not None:
            return replace(unproven, software=_SOFTWARE)
        # First: only a master may tell a slave that their logs have parted.
        if refusal := self._refusal(link, hello):
            answer = MasterHello(refusal=refusal)
        else:
            answer = answer_hello(
                hello,
                self._master_log(),
                cluster=config.broker_cluster_name,
                broker_name=config.broker_name,
                from_last_file=config.sync_from_last_file,
            )
        if not answer.refusal:
            _log.info(
                "slave %d (%s) at %s follows from %d on, %s TLS, this log ends at %d",
                hello.broker_id,
                hello.software,
                link.address,
                answer.start_phy_offset,
                "with" if link.is_tls else "without",
                log.max_phy_offset,
            )
        epoch = 0 if self._reign is None else self._reign.epoch
        answer = replace(answer, epoch=epoch, software=_SOFTWARE)
        return self._proofs.signed(answer, hello, link.challenge)

    def first_report(self, link: ReplicaLink, max_phy_offset: int) -> int:
        """A slave of Apache's: its report is all there is to know."""
        log = self._commit_log
        if no_tls := self._without_tls(link):
            raise ReplicaRefusedError(no_tls)
        if (unproven := self._proofs.unproven_slave(link.host)) is not None:
            raise ReplicaRefusedError(unproven)
        if self._config.current.is_slave:
            raise ReplicaRefusedError("this broker is a slave itself")
        if full := self._is_full():
            raise ReplicaRefusedError(full)
        if not max_phy_offset:
            start = first_offset(self._master_log(), from_last_file=self._config.current.sync_from_last_file)
        elif log.min_phy_offset <= max_phy_offset <= log.max_phy_offset:
            start = max_phy_offset
        else:
            raise ReplicaRefusedError(
                f"its log ends at {max_phy_offset}, this one is from {log.min_phy_offset} to "
                f"{log.max_phy_offset}; if it is a slave of this broker, remove its store to copy all of it"
            )
        _log.info("%s follows from %d on, this log ends at %d", link, start, log.max_phy_offset)
        return start

    def acknowledged(self, link: ReplicaLink) -> None:
        self._on_ack()

    def closed(self, link: ReplicaLink, reason: str) -> None:
        if link in self.links:
            self.links.remove(link)
            if not self.links:
                self._after_write.remove(self.pump)
        if reason == _CROWDED_OUT:
            self._say(
                "crowd",
                "%d connections to the port for slaves say nothing that a slave says; they are closed for "
                "newer ones, among them one of %s; is the port open to strangers?",
                _MAX_UNPROVEN,
                link.host,
            )
        elif link.is_reporting and reason in (SLAVE_CLOSED, _STOPPING):
            _log.info("%s is disconnected: %s", link, reason)
        else:
            # Its port is another one each time.
            self._say(f"{link.address.rpartition(':')[0]} {reason}", "%s is disconnected: %s", link, reason)
        self._on_ack()

    def run(self, work: Coroutine[object, object, None]) -> None:
        self._tasks.start(work, "replication-read")

    def _refusal(self, link: ReplicaLink, hello: SlaveHello) -> str:
        if self._config.current.is_slave:
            return "this broker is a slave itself"
        reign = self._reign
        if reign is not None and hello.known_epoch > reign.epoch:
            reign.end(f"slave {hello.broker_id} knows of epoch {hello.known_epoch}, this is {reign.epoch}")
        if reign is not None and not reign.is_good():
            return f"this broker is not master: {reign.why_not_good}"
        for other in self.links:
            if other is link or other.slave is None or other.slave.broker_id != hello.broker_id:
                continue
            if other.slave.address == hello.address:
                other.close("it has connected anew")
            else:
                return (
                    f"brokerId {hello.broker_id} is already connected from {other.slave.address}; "
                    "give each slave an id of its own"
                )
            break
        return self._is_full()

    def _is_full(self) -> str:
        """Why one more slave is refused, or nothing."""
        if sum(link.is_reporting for link in self.links) < _MAX_LINKS:
            return ""
        return f"{_MAX_LINKS} slaves are connected, which is the limit"

    def _without_tls(self, link: ReplicaLink) -> str:
        """Why a slave without TLS is refused, or nothing."""
        tls = self._tls_config
        if link.is_tls or tls.mode is not TlsMode.ENFORCING:
            return ""
        return (
            f"this master serves slaves with TLS only ({tls.mode_key}=enforcing); set tls.enable=true or "
            "tls.enable.ha=true at the slave, or tls.server.mode.ha=permissive at the master for slaves of "
            "Apache's, which have no TLS"
        )

    def _master_log(self) -> MasterLog:
        log = self._commit_log
        return MasterLog(
            min_phy_offset=log.min_phy_offset,
            max_phy_offset=log.max_phy_offset,
            file_bytes=log.file_bytes,
            epochs=self._epochs.epochs,
            read=log.read,
        )

    # -- time ------------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            if self._tls is not None:
                await self._tls.look_when_due(self._loop.time(), self._tls_config.look_every_s)
            self.tick(self._loop.time())

    def tick(self, now: float) -> None:
        """Send heartbeats that are due, and close links that are silent. `now` is of the loop's clock."""
        config = self._config.current
        for link in list(self.links):
            is_late = not link.is_reporting and now - link.opened > _FIRST_REPORT_S
            if is_late and self._proofs.needs_proof(link.host):
                link.close("it has not proven itself in time")
            elif now - link.times.read > config.ha_housekeeping_interval / 1000:
                link.close(f"it has not reported for {config.ha_housekeeping_interval} ms")
            elif now - link.times.written >= config.ha_send_heartbeat_interval / 1000:
                link.heartbeat()

    def _say(self, key: str, text: str, *arguments: object) -> None:
        """Log a line, but not one with the same key all the time."""
        now = self._loop.time()
        if now - self._said.get(key, -_SAME_LINE_S) < _SAME_LINE_S:
            return
        if len(self._said) >= _MAX_LINES:
            self._said.clear()
        self._said[key] = now
        _log.warning(text, *arguments)


def crowding_out(unproven: Collection[ReplicaLink]) -> ReplicaLink:
    """Which connection loses its place to a newcomer: the oldest of those that come from where most come
    from, and one that has been given a challenge last of all."""
    counts = Counter(source_of(link.host) for link in unproven)
    return min(unproven, key=lambda link: (-counts[source_of(link.host)], bool(link.challenge), link.opened))
