"""TraceDispatcher: brings trace records to the trace topic, a few at a time, beside the client they tell of.

A producer of its own sends them, as Java's does, so that tracing neither waits for the client's sends nor
is traced itself. What cannot be sent is dropped: a trace is worth less than what it tells of.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, Literal

from kourou.client.core.settings import ClientSettings
from kourou.client.trace.trace_data import TraceRecord, encode_trace, trace_keys
from kourou.errors import KourouError
from kourou.protocol.message import Message
from kourou.protocol.names import RMQ_SYS_TRACE_TOPIC

if TYPE_CHECKING:
    from kourou.client.producer.producer import AsyncProducer
    from kourou.client.producer.send_result import SendResult

_log = logging.getLogger(__name__)

_BATCH: Final = 10
_MAX_WAIT_S: Final = 5.0
_MAX_BYTES: Final = 128_000
_SEND_TIMEOUT_MS: Final = 5_000
_MAX_IN_FLIGHT: Final = 2_048
_numbers = itertools.count()


class TraceDispatcher:
    """Sends the trace of one client of `group`. `start` and `stop` it with the client."""

    def __init__(
        self,
        group: str,
        kind: Literal["PRODUCE", "CONSUME"],
        settings: ClientSettings,
        *,
        topic: str = RMQ_SYS_TRACE_TOPIC,
    ) -> None:
        self.topic = topic
        self._records: list[TraceRecord] = []
        self._timer: asyncio.TimerHandle | None = None
        self._has_failed = False
        self._producer = _inner_producer(group, kind, settings)
        self.dropped = 0
        """Trace messages that could not be sent."""

    async def start(self) -> None:
        """Connect; NoNameServerError as of any client."""
        await self._producer.start()

    async def stop(self) -> None:
        """Send what is left and close. May be called twice."""
        try:
            if self._records:
                self._send_all()
        finally:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            await self._producer.stop()

    def add(self, record: TraceRecord) -> None:
        """Take a record; it is sent with others, seconds later at most."""
        self._records.append(record)
        if len(self._records) >= _BATCH:
            self._send_all()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_MAX_WAIT_S, self._send_all)

    def _send_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        records, self._records = self._records, []
        size, part = 0, list[TraceRecord]()
        for record in records:
            record_bytes = len(encode_trace([record]).encode())
            if part and size + record_bytes > _MAX_BYTES:
                self._send(part)
                size, part = 0, []
            part.append(record)
            size += record_bytes
        if part:
            self._send(part)

    def _send(self, records: list[TraceRecord]) -> None:
        keys = [key for key in trace_keys(records) if " " not in key]
        try:
            message = Message(self.topic, encode_trace(records).encode(), keys=keys)
            self._producer.send_nowait(message).add_done_callback(self._sent)
        except KourouError as error:
            self._failed(error)

    def _sent(self, future: asyncio.Future[SendResult]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        self.dropped += 1
        level = logging.DEBUG if self._has_failed else logging.WARNING
        self._has_failed = True
        _log.log(level, "trace is not sent to %s: %s", self.topic, error)


def _inner_producer(group: str, kind: str, settings: ClientSettings) -> AsyncProducer:
    # Imported here: a producer has a dispatcher, which has a producer.
    from kourou.client.producer.producer import AsyncProducer

    number = next(_numbers)
    same: dict[str, Any] = {
        field.name: getattr(settings, field.name)
        for field in fields(settings)
        if not field.name.startswith("_") and field.name not in ("instance_name", "namespace")
    }
    return AsyncProducer(
        f"_INNER_TRACE_PRODUCER-{group}-{kind}-{number}"[:120],
        instance_name=f"PID_CLIENT_INNER_TRACE_PRODUCER#{os.getpid()}#{number}",
        send_timeout_ms=_SEND_TIMEOUT_MS,
        max_in_flight=_MAX_IN_FLIGHT,
        **same,
    )
