"""A broker's own configuration and state: keys read and changed, runtime info, housekeeping on request.

Not here: what changing keys means (controller.py), the values of runtime info (runtime_info.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kourou.broker.admin.runtime_info import OnDisk, runtime_info
from kourou.broker.storage.flush_service import flush_all
from kourou.broker.storage.retention_service import RetentionService
from kourou.config.properties import parse_properties, properties_dict
from kourou.errors import RequestError
from kourou.protocol.bodies import DataVersion, KVTable, encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import GetBrokerConfigResponseHeader
from kourou.protocol.names import is_lmq
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices

_log = logging.getLogger(__name__)


def processors(services: BrokerServices, retention: RetentionService | None = None) -> dict[int, Processor]:
    """Who handles which request code. `retention`: the one that runs, else one for requests alone."""
    processor = ConfigProcessor(services, retention or RetentionService(services))
    return {
        RequestCode.UPDATE_BROKER_CONFIG: processor.update_broker_config,
        RequestCode.GET_BROKER_CONFIG: processor.get_broker_config,
        RequestCode.GET_BROKER_RUNTIME_INFO: processor.get_broker_runtime_info,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: processor.clean_expired_consumequeue,
        RequestCode.CLEAN_UNUSED_TOPIC: processor.clean_unused_topic,
        RequestCode.DELETE_EXPIRED_COMMITLOG: processor.delete_expired_commitlog,
    }


class ConfigProcessor:
    """Administers the broker itself."""

    def __init__(self, services: BrokerServices, retention: RetentionService) -> None:
        self._services = services
        self._retention = retention
        self._config = services.config
        self._data_version = DataVersion(timestamp=services.now_ms())

    # -- configuration ---------------------------------------------------------------------------

    def update_broker_config(self, request: Request) -> None:
        """UPDATE_BROKER_CONFIG: change keys, in force at once where they can be, and kept. The remark of the
        response names those that are not; Apache's tools ignore it."""
        changes = properties_dict(parse_properties(_text(request.body)))
        if self._services.config.black_list & changes.keys():
            raise RequestError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        if changes:
            self._services.update_config(changes)
            names = ", ".join(sorted(changes))
            _log.info("configuration changed by %s: %s", request.connection.remote_address, names)
        request.reply(remark=self._services.config.change_note(changes))

    def get_broker_config(self, request: Request) -> None:
        """GET_BROKER_CONFIG: every key with its value."""
        header = GetBrokerConfigResponseHeader(version=encode_body(self._version()).decode())
        request.reply(header, self._services.config.to_properties().encode())

    def _version(self) -> DataVersion:
        """Another one whenever the configuration is another."""
        if self._config is not self._services.config:
            self._config = self._services.config
            self._data_version = DataVersion(self._services.now_ms(), self._data_version.counter + 1)
        return self._data_version

    # -- state -----------------------------------------------------------------------------------

    def get_broker_runtime_info(self, request: Request) -> None:
        """GET_BROKER_RUNTIME_INFO: counters, rates, positions, disks."""
        self._services.run(request, self._tell_runtime_info(request))

    async def _tell_runtime_info(self, request: Request) -> None:
        services, store = self._services, self._services.store
        earliest_message_ms = await services.records.read(
            lambda reads: reads.store_time(store.log.min_phy_offset)
        )
        on_disk = await services.in_disk_thread(
            OnDisk.look, services.files, store.log.folders, store.config.queue_folder
        )
        table = runtime_info(services, on_disk, earliest_message_ms)
        request.reply(body=encode_body(KVTable(table)))

    # -- housekeeping ----------------------------------------------------------------------------

    def clean_expired_consumequeue(self, request: Request) -> None:
        """CLEAN_EXPIRED_CONSUMEQUEUE: delete queues all of whose messages are gone."""
        self._services.run(request, self._clean_expired(request))

    async def _clean_expired(self, request: Request) -> None:
        services = self._services
        async with services.store_work:
            await flush_all(services.store, services.disk)
            kept = [topic for topic in services.store.queues.topics() if services.topics.is_system(topic)]
            expired = services.store.clean_expired_queues(kept)
            if expired:
                await self._start_over(expired)
        _log.info("%s cleaned %d expired queues", request.connection.remote_address, len(expired))
        request.reply()

    async def _start_over(self, queues: list[tuple[str, int]]) -> None:
        """These queues begin at 0 again: with offsets from before, their next messages would be passed
        over, by those who wait for one too, and after a crash."""
        services = self._services
        for topic, queue_id in queues:
            services.offsets.remove_queue(topic, queue_id)
        services.holds.wake_all()
        await services.disk.run_steps(services.offsets.persist_steps())

    def clean_unused_topic(self, request: Request) -> None:
        """CLEAN_UNUSED_TOPIC: delete the queues of topics that are not configured any more."""
        self._services.run(request, self._clean_unused(request))

    async def _clean_unused(self, request: Request) -> None:
        services = self._services
        async with services.store_work:
            await flush_all(services.store, services.disk)
            for topic in services.store.queues.topics():
                # Only now: the flush has let others work, and one may have made the topic.
                if self._is_unused(topic):
                    _log.info("%s deletes the queues of %s", request.connection.remote_address, topic)
                    services.store.delete_topic(topic)
                    services.offsets.remove_topic(topic)
        request.reply()

    def _is_unused(self, topic: str) -> bool:
        topics = self._services.topics
        return topics.get(topic) is None and not topics.is_system(topic) and not is_lmq(topic)

    def delete_expired_commitlog(self, request: Request) -> None:
        """DELETE_EXPIRED_COMMITLOG: delete files of the log that are old enough, at whatever hour."""
        self._services.run(request, self._delete_expired(request))

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
