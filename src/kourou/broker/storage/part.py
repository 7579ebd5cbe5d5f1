"""The store as the first part of a broker, and what makes it durable and keeps it small, as a later one."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from kourou.broker.part import BrokerPart
from kourou.broker.settings import store_config, store_host
from kourou.broker.storage.commit_cycle import CommitCycle
from kourou.broker.storage.disk_threads import DiskThreads
from kourou.broker.storage.flush_service import FlushService
from kourou.broker.storage.retention_service import RetentionService
from kourou.clock import Clock
from kourou.config.broker import BrokerConfig
from kourou.store.disk.files import Files
from kourou.store.kernel import KernelChoice
from kourou.store.log.file_preparer import FilePreparer
from kourou.store.log.log_appender import LogAppender
from kourou.store.log.log_watch import LogWatch
from kourou.store.message_store import MessageStore
from kourou.store.settings import FlushDiskType
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_SLOW_OPEN_S: Final = 2.0


async def open_store(
    config: BrokerConfig, files: Files, clock: Clock, kernel: KernelChoice, disk: DiskThreads
) -> MessageStore:
    """Open the store in a thread, and recover it where it was not closed. StorageError, ConfigError."""

    def open_now() -> MessageStore:
        return MessageStore.open(
            store_config(config, store_host(config)), files, clock.wall_ms, kernel.kernel
        )

    opening = asyncio.ensure_future(disk.run(open_now))
    # A warning, so that it is seen at a terminal too.
    slow = asyncio.get_running_loop().call_later(
        _SLOW_OPEN_S,
        _log.warning,
        "the store %s is still being opened: after a sudden stop it is recovered first; "
        "clients can connect when that is done",
        config.store_path_root_dir,
    )
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        # Recovery cannot be stopped half-way; what it has done so far is kept.
        await asyncio.wait([opening])
        if opening.exception() is None:
            opening.result().close()
        raise
    finally:
        slow.cancel()


class StoragePart(BrokerPart):
    """The store, which is open already; closed when all other parts have stopped."""

    def __init__(
        self, store: MessageStore, appender: LogAppender, disk: DiskThreads, commit_cycle: CommitCycle
    ) -> None:
        self._store = store
        self._appender = appender
        self._disk = disk
        self._commit_cycle = commit_cycle

    def config_changed(self, old: BrokerConfig, new: BrokerConfig) -> None:
        self._appender.max_message_bytes = new.max_message_size
        self._commit_cycle.waits_for_flush = new.flush_disk_type == FlushDiskType.SYNC_FLUSH.value
        self._commit_cycle.sync_flush_timeout_ms = new.sync_flush_timeout

    async def stop(self, timeout_ms: int) -> None:
        try:
            await self._disk.run(self._store.close)
        finally:
            self._disk.stop()


class UpkeepPart(BrokerPart):
    """Flushes, deletes old files and prepares new ones, in threads of its own."""

    def __init__(
        self,
        *,
        log_watch: LogWatch,
        disk: DiskThreads,
        flush: FlushService,
        retention: RetentionService,
        preparer: FilePreparer,
    ) -> None:
        self._log_watch = log_watch
        self._disk = disk
        self._flush = flush
        self._retention = retention
        self._preparer = preparer

    async def start(self, tasks: TaskOwner) -> None:
        self._flush.start()
        self._retention.start(tasks)

    async def stop(self, timeout_ms: int) -> None:
        self._flush.stop()
        await asyncio.sleep(0)  # what its thread has left for the loop
        self._preparer.stop()
        # Before other parts write anything by name: the store's folder may have become another one.
        await self._disk.run_steps(self._log_watch.look_steps())
