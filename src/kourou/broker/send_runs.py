"""SendRuns: ordinary sends that came in one read, taken at once by the compiled kernel (store/kernel.py).

Ordinary is what needs no decision: a message for a known topic, with an id, without a delay or a transaction.
The first one that is not, and whatever follows it, goes the way of all requests (send_message_processor.py);
so does everything where the kernel is not installed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from kourou.broker.born_host import BORN_HOST
from kourou.broker.pass_end import MAX_PASS_BYTES
from kourou.broker.send_answer import SendAnswer
from kourou.broker.sent_properties import NOTED_NAMES, PropertyRewriter
from kourou.protocol.codes import SerializeType
from kourou.protocol.ext_fields import decode_ext
from kourou.protocol.frame import RawFrame
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.message_id import HOST_V4_BYTES
from kourou.protocol.request_head import decode_request_head
from kourou.store.kernel import Kernel, SendSetup
from kourou.store.put_batch import PutRun, RunRoom
from kourou.store.put_status import PutStatus
from kourou.transport.connection import Connection
from kourou.transport.request import Request

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices

_log = logging.getLogger(__name__)

_JSON: Final = SerializeType.JSON.value
_PUT_OK: Final = PutStatus.PUT_OK
# Clients write the code first.
_SEND_START: Final = b'{"code":310,'
_PLACE: Final = Struct(">qq")


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
            answer.template,
            services.store_host,
        )
        self._is_broken = False

    def take(self, connection: Connection, frames: list[RawFrame]) -> int:
        """Put the ordinary sends that `frames` begin with; how many they are."""
        serialize_type, header, _ = frames[0]
        if serialize_type != _JSON or not header.startswith(_SEND_START):
            return 0
        services = self._services
        # The first send of a connection goes the general way, which notes the host.
        born_host = connection.attributes.get(BORN_HOST, b"")
        if (
            self._is_broken
            or len(born_host) != HOST_V4_BYTES
            or services.hooks.before_send
            or not services.pass_end.has_room
        ):
            return 0
        taken = services.store.appender.put_run(partial(self._encode, connection, born_host, frames))
        if taken and services.store.pending_bytes > MAX_PASS_BYTES:
            services.passes.renew()
        return taken

    def _encode(
        self, connection: Connection, born_host: bytes, frames: list[RawFrame], room: RunRoom
    ) -> PutRun | None:
        services = self._services
        try:
            encoded = self._encode_sends(
                frames,
                self._setup,
                self._targets,
                services.topics.table,
                services.config,
                services.store.queues.by_topic,
                born_host,
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
        headers = [header for _, header, _ in frames[:count]]
        done = partial(self._stored, connection, headers, answers, places)
        return PutRun(count, records, hashed_keys, grown, done)

    def _stored(
        self,
        connection: Connection,
        headers: Sequence[bytes],
        answers: bytes,
        places: bytes,
        status: PutStatus,
        _: int,
        __: int,
    ) -> None:
        """Tell the senders; all of them share one fate."""
        if status is not _PUT_OK:
            self._tell_each(connection, headers, places, status)
        elif answers:
            connection.send(answers)

    def _tell_each(
        self, connection: Connection, headers: Sequence[bytes], places: bytes, status: PutStatus
    ) -> None:
        for header, (phy_offset, queue_offset) in zip(headers, _PLACE.iter_unpack(places), strict=True):
            head = decode_request_head(_JSON, header)
            request = Request(connection, _JSON, head, b"", header)
            sent = decode_ext(head, SendMessageRequestHeaderV2)
            _, uniq_key, *_ = self._properties.read(sent.properties or "")
            self._answer.stored_many(request, sent.queue_id, uniq_key, status, [phy_offset], queue_offset)
