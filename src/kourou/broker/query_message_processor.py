"""Finding single messages: by key or unique id (QUERY_MESSAGE), by place (VIEW_MESSAGE_BY_ID).

Answers carry the stored bytes. The index is looked up on the loop, which owns it; records that
are not in memory are read in a disk thread (record_reads.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kourou.broker.record_reads import RecordReads, when_read
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from kourou.transport.request import Processor, Request

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices

_TAG_INDEX: Final = "T"
# Clients refuse frames above 16 MiB, and 64 large messages are far more.
_MAX_BODY_BYTES: Final = 15 * 1024 * 1024


def processors(services: BrokerServices) -> dict[int, Processor]:
    """Who handles which request code."""
    processor = QueryMessageProcessor(services)
    return {
        RequestCode.QUERY_MESSAGE: processor.query_message,
        RequestCode.VIEW_MESSAGE_BY_ID: processor.view_message_by_id,
    }


class QueryMessageProcessor:
    """Looks messages up for tools and clients."""

    def __init__(self, services: BrokerServices) -> None:
        self._services = services

    def query_message(self, request: Request) -> None:
        """QUERY_MESSAGE: the records indexed under a key; who asks compares the key's text."""
        phy_offsets = self._indexed(request.header(QueryMessageRequestHeader))
        when_read(
            self._services,
            request,
            lambda reads: [reads.record(phy_offset) for phy_offset in phy_offsets],
            lambda records: self._answer_query(request, [raw for raw in records if raw is not None]),
        )

    def _indexed(self, header: QueryMessageRequestHeader) -> list[int]:
        index = self._services.store.index
        if index is None:
            return []
        max_num = header.max_num
        if header.unique_key_query:
            max_num = self._services.config.default_query_max_num
        key = f"{_TAG_INDEX}#{header.key}" if header.index_type == _TAG_INDEX else header.key
        found = index.query(header.topic, key, max_num, header.begin_timestamp, header.end_timestamp)
        return sorted(set(found))

    def _answer_query(self, request: Request, records: list[bytes]) -> None:
        index = self._services.store.index
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
        request.reply(header, b"".join(_fitting(records)))

    def view_message_by_id(self, request: Request) -> None:
        """VIEW_MESSAGE_BY_ID: the one record at a place of the log."""
        phy_offset = request.header(ViewMessageRequestHeader).phy_offset

        def read(reads: RecordReads) -> bytes | None:
            return reads.record(phy_offset)

        def answer(record: bytes | None) -> None:
            if record is None:
                request.error(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {phy_offset}")
            else:
                request.reply(body=record)

        when_read(self._services, request, read, answer)


def _fitting(records: list[bytes]) -> Iterator[bytes]:
    """As many of the first as a client takes in one answer."""
    size_bytes = 0
    for record in records:
        size_bytes += len(record)
        if size_bytes > _MAX_BODY_BYTES:
            return
        yield record
