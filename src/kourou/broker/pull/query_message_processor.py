"""Finding single messages: by key or unique id (QUERY_MESSAGE), by place (VIEW_MESSAGE_BY_ID).

Answers carry the stored bytes. The index is searched in a disk thread, one query at a time; records
that are not in memory are read there too (record_reads.py).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from kourou.broker.storage.record_reads import RecordReads
from kourou.errors import RequestError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from kourou.protocol.record import decode_record
from kourou.transport.dispatcher import run_request
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.settings import LiveConfig
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.storage.record_reads import RecordReader
    from kourou.store.index.index_service import IndexService
    from kourou.transport.tasks import TaskOwner

_TAG_INDEX: Final = "T"
# Clients refuse frames above 16 MiB, and 64 large messages are far more.
_MAX_BODY_BYTES: Final = 15 * 1024 * 1024
# Maximum number of waiting queries; more are rejected with SYSTEM_BUSY.
_MAX_WAITING: Final = 100


class QueryMessageProcessor:
    """Looks messages up for tools and clients."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        index: IndexService | None,
        disk: DiskThreads,
        requests: TaskOwner,
        records: RecordReader,
        admission: Admission,
    ) -> None:
        self._config = config
        self._index = index
        self._disk = disk
        self._requests = requests
        self._records = records
        self._admission = admission
        # Each may walk for seconds: side by side they would take all disk threads.
        self._one_by_one = asyncio.Lock()
        self._waiting = 0

    def processors(self) -> dict[int, Processor]:
        return {
            RequestCode.QUERY_MESSAGE: self.query_message,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view_message_by_id,
        }

    def query_message(self, request: Request) -> None:
        """QUERY_MESSAGE: the records indexed under a key; the client compares the key's text."""
        if self._waiting >= _MAX_WAITING:
            raise RequestError(ResponseCode.SYSTEM_BUSY, f"{_MAX_WAITING} queries by key wait, try later")
        run_request(self._requests, request, self._query(request, request.header(QueryMessageRequestHeader)))

    async def _query(self, request: Request, header: QueryMessageRequestHeader) -> None:
        self._waiting += 1
        try:
            async with self._one_by_one:
                phy_offsets = await self._indexed(header)
        finally:
            self._waiting -= 1
        # The index has hashes of names: other topics may have the same.
        topic = None if self._admission.record_access is None else header.topic
        records = await self._records.read(lambda reads: _fitting(reads, phy_offsets, topic))
        self._answer_query(request, records)

    async def _indexed(self, header: QueryMessageRequestHeader) -> list[int]:
        index = self._index
        if index is None:
            return []
        max_num = header.max_num
        if header.unique_key_query:
            max_num = self._config.current.default_query_max_num
        key = f"{_TAG_INDEX}#{header.key}" if header.index_type == _TAG_INDEX else header.key
        steps = index.query_steps(header.topic, key, max_num, header.begin_timestamp, header.end_timestamp)
        return sorted(set(await self._disk.run_steps(steps)))

    def _answer_query(self, request: Request, records: list[bytes]) -> None:
        index = self._index
        if not records or index is None:
            request.reply(
                QueryMessageResponseHeader(index_last_update_timestamp=0, index_last_update_phyoffset=0),
                code=ResponseCode.QUERY_NOT_FOUND,
                remark="can not find message, maybe time range not correct",
            )
            return
        header = QueryMessageResponseHeader(
            index_last_update_timestamp=index.end_timestamp,
            index_last_update_phyoffset=index.end_phy_offset,
        )
        body = b"".join(records)
        if self._admission.record_access is not None:
            self._admission.record_access.pulled(request, len(records), len(body))
        request.reply(header, body)

    def view_message_by_id(self, request: Request) -> None:
        """VIEW_MESSAGE_BY_ID: the one record at a place of the log."""
        header = request.header(ViewMessageRequestHeader)
        phy_offset = header.phy_offset

        def read(reads: RecordReads) -> bytes | None:
            return reads.record(phy_offset)

        def answer(record: bytes | None) -> None:
            if record is None:
                request.error(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {phy_offset}")
                return
            if self._admission.record_access is not None:
                topic = decode_record(record).topic
                self._admission.check_record_read(request, topic, admitted=header.topic)
                self._admission.record_access.pulled(request, 1, len(record))
            request.reply(body=record)

        self._records.when_read(request, read, answer)


def _fitting(reads: RecordReads, phy_offsets: list[int], topic: str | None) -> list[bytes]:
    """As many of the first records as a client takes in one answer; only those of `topic` if it is given."""
    records: list[bytes] = []
    size_bytes = 0
    for phy_offset in phy_offsets:
        record = reads.record(phy_offset) or b""
        if record and topic is not None and decode_record(record).topic != topic:
            continue
        size_bytes += len(record)
        if size_bytes > _MAX_BODY_BYTES:
            break
        if record:
            records.append(record)
    return records
