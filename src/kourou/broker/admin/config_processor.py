"""A broker's own configuration and state: keys read and changed, runtime info, housekeeping on request.

Not here: what changing keys means (controller.py), the values of runtime info (runtime_info.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kourou.broker.admin.runtime_info import OnDisk, RuntimeInfo
from kourou.broker.storage.flush_service import flush_all
from kourou.broker.storage.retention_service import RetentionService
from kourou.config.properties import parse_properties, properties_dict
from kourou.errors import RequestError
from kourou.protocol.bodies import DataVersion, KVTable, encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import GetBrokerConfigResponseHeader
from kourou.protocol.names import is_lmq
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from kourou.broker.pull.long_polling import PullRequestHoldService
    from kourou.broker.settings import LiveConfig
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.storage.record_reads import RecordReader
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.store.disk.files import Files
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.message_store import MessageStore
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)


class ConfigProcessor:
    """Administers the broker itself. `update_config` changes keys and writes them to the configuration file;
    it raises ConfigError."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        update_config: Callable[[Mapping[str, str]], None],
        store: MessageStore,
        log: CommitLog,
        queues: ConsumeQueues,
        files: Files,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        holds: PullRequestHoldService,
        retention: RetentionService,
        runtime: RuntimeInfo,
        records: RecordReader,
        disk: DiskThreads,
        requests: TaskOwner,
        store_work: asyncio.Lock,
        now_ms: Callable[[], int],
    ) -> None:
        self._live_config = config
        self._update_config = update_config
        self._store = store
        self._log = log
        self._queues = queues
        self._files = files
        self._topics = topics
        self._offsets = offsets
        self._holds = holds
        self._retention = retention
        self._runtime = runtime
        self._records = records
        self._disk = disk
        self._requests = requests
        self._store_work = store_work
        self._now_ms = now_ms
        self._config = config.current
        self._data_version = DataVersion(timestamp=now_ms())

    def processors(self) -> dict[int, Processor]:
        """The request codes handled here."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_broker_config,
            RequestCode.GET_BROKER_CONFIG: self.get_broker_config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.get_broker_runtime_info,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_expired_consumequeue,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topic,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired_commitlog,
        }

    # -- configuration ---------------------------------------------------------------------------

    def update_broker_config(self, request: Request) -> None:
        """UPDATE_BROKER_CONFIG: change keys, in force at once where they can be, and kept. The remark of the
        response names those that are not; Apache's tools ignore it."""
        changes = properties_dict(parse_properties(_text(request.body)))
        if not self._live_config.current.may_change(changes):
            raise RequestError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        if changes:
            self._update_config(changes)
            names = ", ".join(sorted(changes))
            _log.info("configuration changed by %s: %s", request.connection.remote_address, names)
        request.reply(remark=self._live_config.current.change_note(changes))

    def get_broker_config(self, request: Request) -> None:
        """GET_BROKER_CONFIG: every key with its value."""
        header = GetBrokerConfigResponseHeader(version=encode_body(self._version()).decode())
        request.reply(header, self._live_config.current.to_properties().encode())

    def _version(self) -> DataVersion:
        """Another one whenever the configuration is another."""
        if self._config is not self._live_config.current:
            self._config = self._live_config.current
            self._data_version = DataVersion(self._now_ms(), self._data_version.counter + 1)
        return self._data_version

    # -- state -----------------------------------------------------------------------------------

    def get_broker_runtime_info(self, request: Request) -> None:
        """GET_BROKER_RUNTIME_INFO: counters, rates, positions, disks."""
        run_request(self._requests, request, self._tell_runtime_info(request))

    async def _tell_runtime_info(self, request: Request) -> None:
        earliest_message_ms = await self._records.read(
            lambda reads: reads.store_time(self._log.min_phy_offset)
        )
        on_disk = await self._disk.run(
            OnDisk.look, self._files, self._log.folders, self._store.config.queue_folder
        )
        table = self._runtime.table(on_disk, earliest_message_ms)
        request.reply(body=encode_body(KVTable(table)))

    # -- housekeeping ----------------------------------------------------------------------------

    def clean_expired_consumequeue(self, request: Request) -> None:
        """CLEAN_EXPIRED_CONSUMEQUEUE: delete queues all of whose messages are gone."""
        run_request(self._requests, request, self._clean_expired(request))

    async def _clean_expired(self, request: Request) -> None:
        async with self._store_work:
            await flush_all(self._store, self._disk)
            kept = [topic for topic in self._queues.topics() if self._topics.is_system(topic)]
            expired = self._store.clean_expired_queues(kept)
            if expired:
                await self._start_over(expired)
        _log.info("%s cleaned %d expired queues", request.connection.remote_address, len(expired))
        request.reply()

    async def _start_over(self, queues: list[tuple[str, int]]) -> None:
        """These queues begin at 0 again: with old offsets, their next messages would be
        skipped, also by held pulls and after a crash."""
        for topic, queue_id in queues:
            self._offsets.remove_queue(topic, queue_id)
        self._holds.wake_all()
        await self._disk.run_steps(self._offsets.persist_steps())

    def clean_unused_topic(self, request: Request) -> None:
        """CLEAN_UNUSED_TOPIC: delete the queues of topics that are not configured any more."""
        run_request(self._requests, request, self._clean_unused(request))

    async def _clean_unused(self, request: Request) -> None:
        async with self._store_work:
            await flush_all(self._store, self._disk)
            for topic in self._queues.topics():
                # Only now: the flush has let others work, and one may have made the topic.
                if self._is_unused(topic):
                    _log.info("%s deletes the queues of %s", request.connection.remote_address, topic)
                    self._store.delete_topic(topic)
                    self._offsets.remove_topic(topic)
        request.reply()

    def _is_unused(self, topic: str) -> bool:
        topics = self._topics
        return topics.get(topic) is None and not topics.is_system(topic) and not is_lmq(topic)

    def delete_expired_commitlog(self, request: Request) -> None:
        """DELETE_EXPIRED_COMMITLOG: delete files of the log that are old enough, at whatever hour."""
        run_request(self._requests, request, self._delete_expired(request))

    async def _delete_expired(self, request: Request) -> None:
        await self._retention.run(manual=True)
        request.reply()


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise RequestError(
            ResponseCode.SYSTEM_ERROR, f"the body is not UTF-8 at byte {error.start}"
        ) from error
