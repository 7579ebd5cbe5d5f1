"""SendRuns: ordinary sends of one pass, put all at once by the compiled kernel (store/kernel.py).

Sends are gathered as they come, connection by connection, and put when the pass ends; so one call takes what
64 connections have sent, as it does what came in one read. Before a connection's request of another kind is
handled, what it has sent before is put.
Ordinary is what needs no decision: a message for a known topic, with an id, without a delay or a transaction,
or a batch of such messages.
The first one that is not, and what follows it on its connection, goes the way of all requests
(send_message_processor.py); so does everything where the kernel is not installed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kourou.broker.born_host import BORN_HOST
from kourou.broker.pass_end import MAX_PASS_BYTES
from kourou.broker.send_answer import SendAnswer
from kourou.broker.sent_properties import NOTED_NAMES, PropertyRewriter
from kourou.protocol.codes import RequestCode, SerializeType
from kourou.protocol.ext_fields import decode_ext
from kourou.protocol.frame import RawFrame
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.message_id import HOST_V4_BYTES
from kourou.protocol.request_head import decode_request_head
from kourou.store.kernel import PLACE, Kernel, SendSetup
from kourou.store.put_batch import PutRun, RunRoom
from kourou.store.put_status import PutStatus
from kourou.transport.connection import Connection
from kourou.transport.request import Request

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices

_log = logging.getLogger(__name__)

_PUT_OK: Final = PutStatus.PUT_OK
# Clients write the code first; in the binary form it cannot be elsewhere.
_SEND_CODES: Final = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
_SEND_STARTS: Final[dict[int, tuple[bytes, ...]]] = {
    SerializeType.JSON.value: tuple(b'{"code":%d,' % code for code in _SEND_CODES),
    SerializeType.ROCKETMQ.value: tuple(code.to_bytes(2, "big") for code in _SEND_CODES),
}
# Each run looks at all that is left. Where that many end at an odd one, the kernel is of no use in this pass.
_MAX_RUNS: Final = 8

Sender: TypeAlias = tuple[Connection, list[RawFrame]]
"""A connection, and what it has sent."""
Told: TypeAlias = tuple[Connection, list[tuple[int, bytes]]]
"""A connection to be told, with the serialize types and headers of what it has sent."""


class SendRuns:
    """Takes sends for one broker. `targets` are the topics that may be sent to without a look."""

    def __init__(
        self,
        services: BrokerServices,
        kernel: Kernel,
        targets: Mapping[str, Any],
        properties: PropertyRewriter,
        answer: SendAnswer,
    ) -> None:
        self._services = services
        self._encode_sends = kernel.encode_sends
        self._targets = targets
        self._properties = properties
        self._answer = answer
        self._setup: SendSetup = (
            properties.own,
            NOTED_NAMES,
            answer.kernel_templates,
            services.store_host,
        )
        self._is_broken = False
        self._gathered: dict[Connection, list[RawFrame]] = {}
        self._gathered_bytes = 0
        services.pass_end.before_write.append(self.put)

    # -- gathering -------------------------------------------------------------------------------

    def take(self, connection: Connection, frames: list[RawFrame]) -> int:
        """Gather the sends that `frames` begin with; how many they are."""
        # The first send of a connection goes the general way, which notes the host.
        if len(connection.attributes.get(BORN_HOST, b"")) != HOST_V4_BYTES:
            return 0
        count = size = 0
        for serialize_type, header, body in frames:
            if not header.startswith(_SEND_STARTS[serialize_type]):
                break
            count += 1
            size += len(header) + len(body)
        if not count:
            return 0
        taken = frames if count == len(frames) else frames[:count]
        gathered = self._gathered.get(connection)
        if gathered is None:
            self._gathered[connection] = taken
        else:
            gathered += taken
        self._gathered_bytes += size
        if self._gathered_bytes > MAX_PASS_BYTES:
            self._services.passes.renew()
        return count

    def finish(self, connection: Connection) -> None:
        """Put what the connection has sent, since something else is to follow."""
        if connection in self._gathered:
            self.put()
            if self._services.store.pending_bytes > MAX_PASS_BYTES:
                self._services.passes.renew()

    # -- putting ---------------------------------------------------------------------------------

    def put(self) -> None:
        """Put what is gathered."""
        if not self._gathered:
            return
        gathered, self._gathered = self._gathered, {}
        self._gathered_bytes = 0
        services = self._services
        senders = list(gathered.items())
        runs = 0
        while senders:
            done = 0
            if (
                runs < _MAX_RUNS
                and not self._is_broken
                and not services.hooks.before_send
                and services.pass_end.has_room
            ):
                done = services.store.appender.put_run(partial(self._encode, senders))
                runs += 1
            senders = self._put_odd(senders, done)

    @staticmethod
    def _put_odd(senders: list[Sender], done: int) -> list[Sender]:
        """The first `done` sends are put: have the one behind them handled, with what follows it on its
        connection. The senders behind that."""
        for position, (connection, frames) in enumerate(senders):
            if done < len(frames):
                connection.handle_singly(frames[done:])
                return senders[position + 1 :]
            done -= len(frames)
        return []

    def _encode(self, senders: list[Sender], room: RunRoom) -> PutRun | None:
        services = self._services
        try:
            encoded = self._encode_sends(
                [(frames, connection.attributes[BORN_HOST]) for connection, frames in senders],
                self._setup,
                self._targets,
                services.topics.table,
                services.config,
                services.store.queues.by_topic,
                *room,
            )
        except Exception:
            # It has changed nothing: the general way takes what it would have taken.
            _log.exception("the compiled kernel failed; from now on Python does its work")
            self._is_broken = True
            return None
        if encoded is None:
            return None
        count, records, hashed_keys, answers, places, grown = encoded
        # Bodies are not kept for as long as senders wait for a sync.
        told = [
            (connection, [frame[:2] for frame in frames]) for connection, frames in senders[: len(answers)]
        ]
        done = partial(self._stored, told, answers, places)
        return PutRun(count, len(places) // PLACE.size, records, hashed_keys, grown, done)

    # -- answering -------------------------------------------------------------------------------

    def _stored(
        self,
        told: Sequence[Told],
        answers: Sequence[bytes],
        places: bytes,
        status: PutStatus,
        _: int,
        __: int,
    ) -> None:
        """Tell the senders; all of them share one fate."""
        if status is not _PUT_OK:
            self._tell_each(told, places, status)
            return
        for (connection, _heads), own in zip(told, answers, strict=True):
            if own:
                connection.send(own)

    def _tell_each(self, told: Sequence[Told], places: bytes, status: PutStatus) -> None:
        sends = ((connection, *head) for connection, heads in told for head in heads)
        # Of the last connection not all need be in this run.
        for (connection, serialize_type, header), (phy_offsets, queue_offset) in zip(
            sends, _places_of_sends(places), strict=False
        ):
            head = decode_request_head(serialize_type, header)
            request = Request(connection, serialize_type, head, b"", header)
            sent = decode_ext(head, SendMessageRequestHeaderV2)
            _, uniq_key, *_ = self._properties.read(sent.properties or "")
            self._answer.stored_many(request, sent.queue_id, uniq_key, status, phy_offsets, queue_offset)


def _places_of_sends(places: bytes) -> Iterator[tuple[list[int], int]]:
    """Of each send where its records lie, and the first one's queue_offset."""
    rows = PLACE.iter_unpack(places)
    for phy_offset, queue_offset, more in rows:
        yield [phy_offset, *(row[0] for row in islice(rows, more))], queue_offset
