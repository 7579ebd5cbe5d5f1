"""BrokerController: a broker's life, in order.

start: answer health checks, where they are configured; open the store, which recovers it; recover and start
the parts one after the other (assembly.py). stop: stop the parts in reverse.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from kourou.broker.admission import Admission, AdmissionCheck
from kourou.broker.assembly import BrokerSetup, RunningBroker
from kourou.broker.hooks import BrokerHooks
from kourou.broker.replication.master_part import MasterPart
from kourou.broker.services import BrokerServices
from kourou.broker.settings import free_port
from kourou.broker.storage.disk_threads import DiskThreads
from kourou.broker.storage.part import open_store
from kourou.clock import Clock
from kourou.config.broker import BrokerConfig
from kourou.store.disk.files import Files
from kourou.store.kernel import KernelChoice, choose_kernel
from kourou.transport.from_config import start_probes

if TYPE_CHECKING:
    from kourou.transport.http_probe import HttpProbes

_log = logging.getLogger(__name__)


class BrokerController:
    """One broker. Create it anywhere, `start` and `stop` it once, on the same loop; or use `async with`.

    `checks` decide which requests are admitted, from the first one on (admission.py).
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        hooks: BrokerHooks | None = None,
        checks: Iterable[AdmissionCheck] = (),
    ) -> None:
        self._setup = BrokerSetup(
            config=config,
            files=files or Files(),
            clock=clock or Clock(),
            hooks=hooks or BrokerHooks(),
            checks=tuple(checks),
            kernel=choose_kernel(is_enabled=config.compiled_kernel_enable),
        )
        self._running: RunningBroker | None = None
        self._probes: HttpProbes | None = None
        self._is_serving = False
        self._stopping: asyncio.Future[None] | None = None

    # -- start -----------------------------------------------------------------------------------

    async def start(self) -> None:
        """On return the broker serves, and every name server that answers knows it.

        StoreLockedError, StoreFormatError, StorageError: the store cannot be opened. ConfigError: the
        port cannot be had, or a file cannot be read.
        """
        config = self._setup.config
        if config.listen_port == 0:
            ha_port = config.ha_listen_port or free_port(config.bind_address)
            config = replace(config, listen_port=free_port(config.bind_address), ha_listen_port=ha_port)
            self._setup = replace(self._setup, config=config)
        # Before anything that may take long: until then it reports that it is not ready.
        self._probes = await start_probes(config, self.why_not_ready)
        try:
            await self._start()
        except BaseException:
            await self._stop_probes()
            raise
        self._is_serving = True

    async def _stop_probes(self) -> None:
        if self._probes is not None:
            await self._probes.stop()

    async def _start(self) -> None:
        if self.kernel.is_fault:
            _log.warning("%s", self.kernel)
        setup, disk = self._setup, DiskThreads()
        try:
            store = await open_store(setup.config, setup.files, setup.clock, setup.kernel, disk)
        except BaseException:
            disk.stop()
            raise
        try:
            running = self._running = RunningBroker(setup, store, disk)
        except BaseException:
            store.abandon()
            disk.stop()
            raise
        try:
            await running.start()
        except BaseException:
            await self.stop()
            raise
        config = setup.config
        _log.info(
            "broker %s of cluster %s serves at %s, store %s, %s",
            config.broker_name,
            config.broker_cluster_name,
            self.address,
            store.config.root,
            self.kernel,
        )

    # -- stop ------------------------------------------------------------------------------------

    async def wait_failed(self) -> None:
        """Raise what a part of the broker died of; return when the broker has stopped."""
        assert self._running is not None, "the broker is not started"
        await self._running.wait_failed()

    async def stop(self, timeout_ms: int = 5_000) -> None:
        """Stop in order: no new clients, answers to what is under way, everything on disk. Every call
        returns when that is done."""
        if self._running is None:
            return
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop(self._running, timeout_ms))
        await asyncio.shield(self._stopping)

    async def _stop(self, running: RunningBroker, timeout_ms: int) -> None:
        try:
            await running.stop(timeout_ms)
        finally:
            await self._stop_probes()
        _log.info("broker %s has stopped", self._setup.config.broker_name)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- looking in ------------------------------------------------------------------------------

    @property
    def services(self) -> BrokerServices:
        """What the parts share, for programs that embed a broker and look inside."""
        assert self._running is not None, "the broker is not started"
        return self._running.services

    @property
    def admission(self) -> Admission:
        """The gate for requests: checks may be added and removed while the broker runs."""
        return self.services.admission

    @property
    def replication(self) -> MasterPart:
        """The slaves of this broker."""
        assert self._running is not None, "the broker is not started"
        return self._running.replication

    @property
    def config(self) -> BrokerConfig:
        """The configuration as it is now."""
        return self._setup.config if self._running is None else self._running.services.config

    @property
    def port(self) -> int:
        """The port listened on, also when 0 was configured."""
        return self._setup.config.listen_port

    @property
    def address(self) -> str:
        """`host:port` as clients see it in routes."""
        return self.services.address

    @property
    def kernel(self) -> KernelChoice:
        """Whether it uses the compiled kernel."""
        return self._setup.kernel

    @property
    def probe_address(self) -> str | None:
        """`host:port` where health checks are answered by HTTP; None: nowhere."""
        return None if self._probes is None else self._probes.address

    async def why_not_ready(self) -> str | None:
        """Why clients cannot send to this broker now, in one line; None: they can (readiness.py)."""
        if self._stopping is not None:
            return "the broker is stopping"
        if not self._is_serving or self._running is None:
            return "the broker is starting: its store is opened, and recovered where it was not closed"
        from kourou.broker.readiness import why_not_ready  # only where health checks are on

        return await why_not_ready(self._running.services, self._running.registration.out_api)
