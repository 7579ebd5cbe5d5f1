"""ProducerProcessor: opens idempotent producers, and says how far they are.

An opening is a message of a system topic: it is as durable as a send, replicates as one, and all that was put
before it is decided when it is.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from kourou.broker.connection_state import record_born_host
from kourou.broker.storage.inner_message import InnerMessage, MessageWriter
from kourou.errors import RequestError
from kourou.protocol.bodies.producer_sequences import ProducerSequences
from kourou.protocol.codes import PermName, RequestCode, ResponseCode
from kourou.protocol.headers.producers import (
    ForgetProducerRequestHeader,
    ForgetProducerResponseHeader,
    GetSequencesRequestHeader,
    OpenProducerRequestHeader,
    OpenProducerResponseHeader,
    ProducerSnapshotRequestHeader,
    ProducerSnapshotResponseHeader,
)
from kourou.protocol.names import PRODUCERS_TOPIC
from kourou.protocol.producer_sequence import (
    NAME_PREFIX,
    RANDOM_ID_BYTES,
    SEQUENCE_PROPERTY,
    ProducerForgotten,
    ProducerOpening,
    check_nonce,
    check_producer_name,
    format_forgotten,
    format_opening,
    owner_digits,
)
from kourou.protocol.properties import encode_properties
from kourou.protocol.signature import ACCESS_KEY
from kourou.store.log.put_batch import PutDone
from kourou.store.log.put_status import PutStatus
from kourou.store.producers.producer_table import MAX_NAMES
from kourou.transport.dispatcher import run_request

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.store.producers.producer_log import ProducerLog
    from kourou.transport.request import Processor, Request
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

_SNAPSHOT_ID_BYTES: Final = 8
PIECE_BYTES: Final = 4 * 1024 * 1024
"""Of a snapshot, in one answer: a frame has 16 MiB at most."""
_MAX_SNAPSHOTS: Final = 4
_SNAPSHOT_KEPT_S: Final = 60.0
_READ_WRITE: Final = int(PermName.READ | PermName.WRITE)


class ProducerProcessor:
    """The requests about idempotent producers of one broker."""

    def __init__(
        self,
        *,
        producers: ProducerLog,
        admission: Admission,
        topics: TopicConfigManager,
        writer: MessageWriter,
        disk: DiskThreads,
        requests: TaskOwner,
        now_ms: Callable[[], int],
    ) -> None:
        self._producers = producers
        self._table = producers.table
        self._admission = admission
        self._topics = topics
        self._writer = writer
        self._disk = disk
        self._requests = requests
        self._now_ms = now_ms
        # Those that slaves are fetching.
        self._snapshots: dict[str, bytes] = {}

    def processors(self) -> dict[int, Processor]:
        """The request codes handled here."""
        return {
            RequestCode.OPEN_KOUROU_PRODUCER: self.open,
            RequestCode.FORGET_KOUROU_PRODUCER: self.forget,
            RequestCode.GET_KOUROU_SEQUENCES: self.get_sequences,
            RequestCode.GET_KOUROU_PRODUCER_SNAPSHOT: self.get_snapshot,
        }

    def open(self, request: Request) -> None:
        """OPEN_KOUROU_PRODUCER: a new id, or the next epoch of a name. A repeat, which may come late, gets
        the epoch of the first, and fences no program that was opened since."""
        header = request.header(OpenProducerRequestHeader)
        self._admission.check_accepting()
        self._admission.check_room()
        producer_id, nonce = self._new_id(request), None
        if header.kourou_name is not None:
            nonce = header.kourou_nonce
            try:
                check_producer_name(header.kourou_name)
                if nonce is not None:
                    check_nonce(nonce)
            except ValueError as error:
                raise RequestError(ResponseCode.INVALID_PARAMETER, str(error)) from None
            producer_id = NAME_PREFIX + header.kourou_name
            self._check_names(producer_id)
        now_ms = self._now_ms()
        epoch = self._table.epoch_of(producer_id, nonce)
        if epoch is None:
            epoch = self._table.next_epoch(producer_id, now_ms)
        opening = ProducerOpening(producer_id, epoch, header.kourou_allows_gaps, nonce)
        # Also of a repeat: whether the record of the first is durable is not known here.
        self._put(
            request, header.producer_group, format_opening(opening), partial(self._opened, request, opening)
        )
        # From now on older programs are fenced; if it cannot be written, they are all the same.
        self._table.note_opened(opening, now_ms)

    def _new_id(self, request: Request) -> str:
        """A random id of the account that the request names: also where nothing is checked yet, so that its
        producers may continue when access control is switched on."""
        account = request.connection.certificate_user or request.ext_fields.get(ACCESS_KEY, "")
        while True:
            found = secrets.token_hex(RANDOM_ID_BYTES) + owner_digits(account)
            if found not in self._table.producers:
                return found

    def _put(self, request: Request, body: str, value: str, done: PutDone) -> None:
        """Have a record of a producer put."""
        # Known by its first message only: a broker without idempotent producers does not have the topic.
        self._topics.create_in_send_back(PRODUCERS_TOPIC, 1, _READ_WRITE)
        connection = request.connection
        message = InnerMessage(
            PRODUCERS_TOPIC,
            0,
            body.encode(),
            encode_properties({SEQUENCE_PROPERTY: value}),
            self._now_ms(),
            connection.state.born_host or record_born_host(connection),
        )
        self._writer.put_now(message, done, wait=True)

    def _check_names(self, producer_id: str) -> None:
        if self._table.names >= MAX_NAMES and producer_id not in self._table.producers:
            raise RequestError(
                ResponseCode.KOUROU_TOO_MANY_NAMES,
                f"producer {producer_id}: this broker has {self._table.names} producers with names, which "
                "never expire; use one name for each loader, not for each of its runs",
            )

    @staticmethod
    def _opened(request: Request, opening: ProducerOpening, status: PutStatus, _: int, __: int) -> None:
        if not status.is_durable:
            # What was put before need not be decided: the highest sequences would not be certain.
            code = ResponseCode.SYSTEM_BUSY if status.is_stored else status.response_code
            request.error(code, status.remark or f"{status.name}: the producer is not open; open it again")
            return
        _log.info("producer %s opened, epoch %d", opening.producer_id, opening.epoch)
        request.reply(
            OpenProducerResponseHeader(kourou_producer_id=opening.producer_id, kourou_epoch=opening.epoch)
        )

    def forget(self, request: Request) -> None:
        """FORGET_KOUROU_PRODUCER: forget a name, and what it has sent; answered when that is durable."""
        self._admission.check_accepting()
        self._admission.check_room()
        producer_id = NAME_PREFIX + request.header(ForgetProducerRequestHeader).kourou_name
        producer = self._table.producers.get(producer_id)
        if producer is None:
            request.reply(ForgetProducerResponseHeader(kourou_is_known=False))
            return
        forgotten = ProducerForgotten(producer_id, producer.epoch)
        self._put(request, "", format_forgotten(forgotten), partial(self._forgotten, request, producer_id))
        self._table.forget(forgotten)

    @staticmethod
    def _forgotten(request: Request, producer_id: str, status: PutStatus, _: int, __: int) -> None:
        if not status.is_durable:
            code = ResponseCode.SYSTEM_BUSY if status.is_stored else status.response_code
            request.error(code, status.remark or f"{status.name}: it may be known again after a restart")
            return
        _log.warning("producer %s was forgotten, as requested", producer_id)
        request.reply(ForgetProducerResponseHeader(kourou_is_known=True))

    def get_sequences(self, request: Request) -> None:
        """GET_KOUROU_SEQUENCES: the highest sequence of a producer in each queue of a topic."""
        header = request.header(GetSequencesRequestHeader)
        producer = self._table.producers.get(header.kourou_producer_id)
        sequences = self._table.last_sequences(header.kourou_producer_id, header.topic)
        epoch = -1 if producer is None else producer.epoch
        request.reply(body=ProducerSequences(epoch, sequences).encode())

    def get_snapshot(self, request: Request) -> None:
        """GET_KOUROU_PRODUCER_SNAPSHOT, from a slave: what the log alone need not say any more, in pieces."""
        header = request.header(ProducerSnapshotRequestHeader)
        if header.kourou_snapshot_id is None:
            run_request(self._requests, request, self._begin_snapshot(request))
            return
        snapshot = self._snapshots.get(header.kourou_snapshot_id)
        if snapshot is None or not 0 <= header.kourou_offset < len(snapshot):
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"snapshot {header.kourou_snapshot_id[:100]!r} has no piece at {header.kourou_offset}, or is "
                "not kept any more; begin with a new one",
            )
        self._reply_piece(request, header.kourou_snapshot_id, snapshot, header.kourou_offset)

    async def _begin_snapshot(self, request: Request) -> None:
        snapshot = self._producers.snapshot()
        if snapshot is None:
            raise RequestError(ResponseCode.QUERY_NOT_FOUND, "this broker has no idempotent producers")
        raw = await self._disk.run(snapshot.encode)
        snapshot_id = secrets.token_hex(_SNAPSHOT_ID_BYTES)
        if len(raw) > PIECE_BYTES:
            if len(self._snapshots) >= _MAX_SNAPSHOTS:
                del self._snapshots[next(iter(self._snapshots))]
            self._snapshots[snapshot_id] = raw
            asyncio.get_running_loop().call_later(_SNAPSHOT_KEPT_S, self._snapshots.pop, snapshot_id, None)
        self._reply_piece(request, snapshot_id, raw, 0)

    def _reply_piece(self, request: Request, snapshot_id: str, raw: bytes, offset: int) -> None:
        end = offset + PIECE_BYTES
        if end >= len(raw):
            self._snapshots.pop(snapshot_id, None)
        header = ProducerSnapshotResponseHeader(kourou_snapshot_id=snapshot_id, kourou_size=len(raw))
        request.reply(header, body=raw[offset:end])
