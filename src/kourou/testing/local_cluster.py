"""LocalCluster: a real name server and real brokers in this process, for tests of applications.

    with LocalCluster() as mq:
        mq.create_topic("Orders")
        with Producer("shop", namesrv=mq.namesrv) as producer:
            producer.send(Message("Orders", b"one book"))
        assert [message.body for message in mq.messages("Orders")] == [b"one book"]

Each server has its own thread and event loop, a free port of 127.0.0.1, and a store in a temporary folder.
Not here: the servers (running_cluster.py), the pytest fixtures (pytest_plugin.py).
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from kourou.argument_types import check_int
from kourou.client.core.credentials import Credentials
from kourou.config import BrokerConfig
from kourou.config.broker import MASTER_ID, SYNC_MASTER
from kourou.config.host import LOOPBACK
from kourou.embed import BrokerHooks
from kourou.errors import ConfigError
from kourou.protocol.message import MessageExt
from kourou.standalone.accounts import new_accounts
from kourou.testing.cluster import broker_config
from kourou.testing.errors import ClusterStateError
from kourou.testing.loop_thread import LoopThread
from kourou.testing.running_cluster import BrokerPlace, RunningCluster
from kourou.wording import nearest

T = TypeVar("T")

DEFAULT_TIMEOUT_S: Final = 30.0
"""Default of `wait_consumed`: a failed message is delivered again after 10 s."""
MAX_BROKERS: Final = 26
_NOT_STARTED: Final = "the cluster is not started: use `with LocalCluster() as mq:`"
MAX_SLAVES: Final = 4
_OWN_OPTIONS: Final = ("brokers", "slaves", "sync", "auth", "grpc", "store", "hooks")
_OWN_SETTINGS: Final = ("broker_name", "namesrv_addr", "store_path_root_dir", "broker_id", "broker_role")


class LocalCluster:
    """A name server and `brokers` brokers, `broker-a`, `broker-b` and so on. Use it as a context manager,
    or `start` and `stop` it, once. All methods may be called from any thread.

    Each broker has `slaves` slaves, which follow it when the cluster is started; with `sync` a message is
    acknowledged when a slave has it (SYNC_MASTER). With `auth` only accounts may do something: clients sign
    with the `credentials` of the administrator, or of users that it makes. With `grpc` clients of RocketMQ 5
    connect to `grpc_address`; needs `pip install 'kourou[grpc]'`.
    `store` is a folder that outlives the cluster: the next cluster there continues with its messages. `hooks`
    are called on the brokers' threads. `settings` are attributes of BrokerConfig, for every broker.
    `async with` returns an AsyncLocalCluster.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        slaves: int = 0,
        sync: bool = False,
        auth: bool = False,
        grpc: bool = False,
        store: Path | str | None = None,
        hooks: BrokerHooks | None = None,
        **settings: Any,
    ) -> None:
        _check(brokers, slaves, settings, sync=sync)
        self._brokers = brokers
        self._slaves = slaves
        self._store = None if store is None else Path(store)
        self._hooks = hooks
        self._has_grpc = grpc
        self._accounts = new_accounts(Path()) if auth else None
        self._settings = {**settings, "broker_role": SYNC_MASTER} if sync else settings
        self._life = threading.Lock()
        self._pid = os.getpid()
        self._is_used = False
        self._control: LoopThread | None = None
        self._running: RunningCluster | None = None
        self._folder: Path
        self._namesrv = ""

    # -- life ------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start all servers. On return clients can send and consume; if one fails, none is left running."""
        with self._life:
            if self._is_used:
                raise ClusterStateError("a LocalCluster is started once; make a new one")
            self._is_used, self._pid = True, os.getpid()
            self._folder = self._store or Path(tempfile.mkdtemp(prefix="kourou-"))
            # For programs that exit without a stop.
            atexit.register(self._remove_folder_at_exit)
            control = LoopThread("kourou-namesrv")
            try:
                control.start()
                self._open(control)
            except BaseException:
                self._remove_folder()
                raise
        return self

    def _open(self, control: LoopThread) -> None:
        running = RunningCluster()
        opening = control.submit(
            partial(
                running.open,
                self._folder,
                self._brokers,
                self._slaves,
                self._hooks,
                self._accounts,
                has_grpc=self._has_grpc,
                **self._settings,
            )
        )
        try:
            self._namesrv = opening.result()
        except BaseException:  # Ctrl-C too
            opening.cancel()
            control.stop()
            raise
        self._control, self._running = control, running

    def stop(self) -> None:
        """Stop all servers and remove the temporary folder. May be called twice, and from any thread; each
        call returns when that is done. In a forked child it does nothing."""
        if os.getpid() != self._pid:
            return
        with self._life:
            control, running = self._control, self._running
            if control is None or running is None:
                return
            self._control = self._running = None
            _resume(running)
            try:
                control.submit(running.close).result()
            finally:
                control.stop()
                self._remove_folder()

    def _remove_folder_at_exit(self) -> None:
        # Broker threads run until the interpreter exits, and would log that their files are gone.
        for name in ("kourou.broker", "kourou.store"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._remove_folder()

    def _remove_folder(self) -> None:
        atexit.unregister(self._remove_folder_at_exit)
        if self._store is None and os.getpid() == self._pid:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> AsyncLocalCluster:
        await asyncio.to_thread(self.start)
        return self.aio

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    # -- inspection ------------------------------------------------------------------------------

    @property
    def namesrv(self) -> str:
        """The name server's address for clients. Forked processes may use it too."""
        if not self._namesrv:
            raise ClusterStateError(_NOT_STARTED)
        return self._namesrv

    @property
    def grpc_address(self) -> str:
        """The address for clients of RocketMQ 5, of a cluster with `grpc`: plaintext, or TLS with a
        certificate that cannot be verified."""
        proxy = self._parts()[1].proxy
        if proxy is None:
            raise ClusterStateError("the cluster serves no gRPC clients: LocalCluster(grpc=True)")
        return proxy.address

    @property
    def credentials(self) -> Credentials:
        """The administrator's keys, of a cluster with `auth`."""
        if self._accounts is None:
            raise ClusterStateError("the cluster has no access control: LocalCluster(auth=True)")
        keys = self._accounts.administrator
        return Credentials(keys.access_key, keys.secret_key)

    @property
    def broker_addresses(self) -> list[str]:
        """The addresses that brokers advertise, including stopped ones: masters, then their slaves."""
        places = self._parts()[1].places
        return [f"{place.config.broker_ip1}:{place.config.listen_port}" for place in places]

    @property
    def store(self) -> Path:
        """The folder of the stores: `store/broker-a` and so on; `store/broker-a-s1` of its first slave."""
        self._parts()
        return self._folder

    @property
    def aio(self) -> AsyncLocalCluster:
        """The same cluster for asyncio."""
        return AsyncLocalCluster(self)

    # -- topics, messages, groups ----------------------------------------------------------------

    def create_topic(self, name: str, *, queues: int = 4) -> None:
        """Create or change a topic, with `queues` queues on every broker. On return clients find it."""
        self._call(lambda running: running.create_topic(name, queues))

    def messages(self, topic: str) -> list[MessageExt]:
        """All messages of a topic that consumers can see, in the order in which they were stored: without
        delayed messages and half messages. UnknownTopicError for a topic that does not exist."""
        return self._call(lambda running: running.messages(topic))

    def wait_consumed(
        self, group: str, *, topic: str | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        """Wait until a group has consumed everything: of `topic`, or of all topics that it subscribes to.
        Messages that wait for a retry or for their delay are not consumed yet.

        NotConsumedError lists what is left.
        """
        if _in_event_loop():
            raise ClusterStateError(
                "wait_consumed would block the event loop, and consumers on it: await mq.aio.wait_consumed(…)"
            )
        self._call(lambda running: running.wait_consumed(group, topic, timeout_s))

    # -- faults ----------------------------------------------------------------------------------

    def stop_broker(self, index: int = 0, *, broker_id: int = MASTER_ID) -> None:
        """Stop a broker cleanly: its port refuses connections, and it is gone from the name server.
        `broker_id` above 0 means one of its slaves."""
        self._call(lambda running: running.stop_broker(index, broker_id))

    def start_broker(self, index: int = 0, *, broker_id: int = MASTER_ID) -> None:
        """Start a stopped broker again, with the same address and store."""
        self._call(lambda running: running.start_broker(index, broker_id))

    def restart_broker(self, index: int = 0, *, broker_id: int = MASTER_ID) -> None:
        """Stop a broker cleanly and start it again."""
        self.stop_broker(index, broker_id=broker_id)
        self.start_broker(index, broker_id=broker_id)

    def pause(self, index: int | None = None) -> _Pause:
        """Make a broker, or all, hang until `resume`, or for a `with` block. The name server keeps running.

        Like a process after SIGSTOP or in a long garbage collection: connections stay open, the system
        accepts new ones, and no request is answered. On resume the broker handles the requests that arrived
        meanwhile: a send that timed out is stored then.
        """
        places = self._places(index)
        for place in places:
            if not place.thread.is_held:
                place.running()
        for place in places:
            place.thread.hold()
        return _Pause(self, index)

    def resume(self, index: int | None = None) -> None:
        """Resume a paused broker, or all."""
        for place in self._places(index):
            place.thread.resume()

    # -- calls -----------------------------------------------------------------------------------

    def _call(self, work: Callable[[RunningCluster], Coroutine[Any, Any, T]]) -> T:
        future = self._submit(work)
        try:
            return future.result()
        finally:
            future.cancel()  # after Ctrl-C

    def _submit(self, work: Callable[[RunningCluster], Coroutine[Any, Any, T]]) -> Future[T]:
        control, running = self._parts()
        return control.submit(lambda: work(running))

    def _places(self, index: int | None) -> list[BrokerPlace]:
        running = self._parts()[1]
        return list(running.places) if index is None else [running.place(index)]

    def _parts(self) -> tuple[LoopThread, RunningCluster]:
        if self._is_used and os.getpid() != self._pid:
            raise ClusterStateError(
                f"this cluster runs in process {self._pid}, before a fork: in process {os.getpid()} only its "
                "`namesrv` can be used, by clients that are created here"
            )
        control, running = self._control, self._running
        if control is None or running is None:
            raise ClusterStateError(
                "the cluster is stopped; make a new one" if self._is_used else _NOT_STARTED
            )
        return control, running


class AsyncLocalCluster:
    """A LocalCluster for asyncio: methods that wait are coroutines."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    @property
    def namesrv(self) -> str:
        """The name server's address for clients."""
        return self._cluster.namesrv

    @property
    def grpc_address(self) -> str:
        """The address for clients of RocketMQ 5, of a cluster with `grpc`."""
        return self._cluster.grpc_address

    @property
    def broker_addresses(self) -> list[str]:
        """The addresses that brokers advertise."""
        return self._cluster.broker_addresses

    @property
    def store(self) -> Path:
        """The folder of the stores."""
        return self._cluster.store

    async def create_topic(self, name: str, *, queues: int = 4) -> None:
        """As LocalCluster.create_topic."""
        await self._call(lambda running: running.create_topic(name, queues))

    async def messages(self, topic: str) -> list[MessageExt]:
        """As LocalCluster.messages."""
        return await self._call(lambda running: running.messages(topic))

    async def wait_consumed(
        self, group: str, *, topic: str | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> None:
        """As LocalCluster.wait_consumed."""
        await self._call(lambda running: running.wait_consumed(group, topic, timeout_s))

    async def stop_broker(self, index: int = 0, *, broker_id: int = MASTER_ID) -> None:
        """As LocalCluster.stop_broker."""
        await self._call(lambda running: running.stop_broker(index, broker_id))

    async def start_broker(self, index: int = 0, *, broker_id: int = MASTER_ID) -> None:
        """As LocalCluster.start_broker."""
        await self._call(lambda running: running.start_broker(index, broker_id))

    async def restart_broker(self, index: int = 0, *, broker_id: int = MASTER_ID) -> None:
        """As LocalCluster.restart_broker."""
        await self.stop_broker(index, broker_id=broker_id)
        await self.start_broker(index, broker_id=broker_id)

    def pause(self, index: int | None = None) -> _Pause:
        """As LocalCluster.pause; not a coroutine."""
        return self._cluster.pause(index)

    def resume(self, index: int | None = None) -> None:
        """As LocalCluster.resume."""
        self._cluster.resume(index)

    async def _call(self, work: Callable[[RunningCluster], Coroutine[Any, Any, T]]) -> T:
        return await asyncio.wrap_future(self._cluster._submit(work))


class _Pause(AbstractContextManager[None], AbstractAsyncContextManager[None]):
    """Ends a pause, at the end of a sync or async block."""

    def __init__(self, cluster: LocalCluster, index: int | None) -> None:
        self._cluster = cluster
        self._index = index

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exception: object) -> None:
        self._cluster.resume(self._index)

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *exception: object) -> None:
        self._cluster.resume(self._index)


def _check(brokers: int, slaves: int, settings: dict[str, Any], *, sync: bool) -> None:
    """ConfigError for wrong arguments, before anything is started."""
    problems = [f"{name}: set by LocalCluster itself" for name in _OWN_SETTINGS if name in settings]
    check_int("brokers", brokers)
    check_int("slaves", slaves)
    attributes = {field.name for field in fields(BrokerConfig)}
    for name in settings.keys() - attributes:
        if (near := nearest(name, {*attributes, *_OWN_OPTIONS})) in _OWN_OPTIONS:
            problems.append(f"LocalCluster has no option {name!r}; did you mean {near}?")
    if not 1 <= brokers <= MAX_BROKERS:
        problems.append(f"brokers={brokers}: must be from 1 to {MAX_BROKERS}")
    if not 0 <= slaves <= MAX_SLAVES:
        problems.append(f"slaves={slaves}: must be from 0 to {MAX_SLAVES}, for each broker")
    if sync and not slaves:
        problems.append("sync=True: a message is acknowledged when a slave has it; add slaves=1")
    if (brokers > 1 or slaves) and settings.get("listen_port"):
        problems.append("listen_port: brokers cannot share it; leave it out, and each gets a free one")
    if problems:
        raise ConfigError(*problems)
    broker_config(Path("."), 0, f"{LOOPBACK}:1", **settings)


def _resume(running: RunningCluster) -> None:
    for place in running.places:
        place.thread.resume()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
