"""Spark pipelines that publish their progress: the last status of each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kourou.admin.messages.message_reading import (
    QueuePlace,
    QueueSpan,
    queue_span,
    read_span,
    readable_queues,
)
from kourou.admin.session import Admin
from kourou.clock import wall_ms
from kourou.errors import ProtocolError, ResponseError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.pipeline_status import PIPELINES_TOPIC, RUNNING, PipelineStatus

SILENT_AFTER_MS: Final = 60_000
"""A running pipeline publishes at least every ten seconds."""
_MAX_MESSAGES: Final = 2_000
"""The newest of each queue."""
_BACK_MS: Final = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class PipelineItem:
    """One pipeline: its last status, and whether it is still heard of."""

    status: PipelineStatus
    is_silent: bool
    """It should be running, but has not published anything for a minute: its process may be gone."""


async def pipelines(admin: Admin) -> list[PipelineItem]:
    """The pipelines that published something within a day, running ones first, then by name."""
    try:
        places = await readable_queues(admin, PIPELINES_TOPIC)
    except ResponseError as error:
        if error.code == ResponseCode.TOPIC_NOT_EXIST:
            return []
        raise
    now_ms = wall_ms()
    read = await asyncio.gather(*(_statuses(admin, place, now_ms - _BACK_MS) for place in places))
    return fold((status for statuses in read for status in statuses), now_ms)


def fold(statuses: Iterable[PipelineStatus], now_ms: int) -> list[PipelineItem]:
    """The last status of each query."""
    last: dict[str, PipelineStatus] = {}
    for status in statuses:
        if status.query_id not in last or status.time_ms >= last[status.query_id].time_ms:
            last[status.query_id] = status
    items = [
        PipelineItem(status, status.state == RUNNING and now_ms - status.time_ms > SILENT_AFTER_MS)
        for status in last.values()
    ]
    return sorted(items, key=lambda item: (item.status.state != RUNNING, item.status.name))


async def _statuses(admin: Admin, place: QueuePlace, since_ms: int) -> list[PipelineStatus]:
    span = await queue_span(admin, place, begin_ms=since_ms)
    begin = max(span.begin_offset, span.end_offset - _MAX_MESSAGES)
    found = []
    async for pulled in read_span(admin, QueueSpan(place, begin, span.end_offset)):
        for message in pulled.messages:
            try:
                found.append(PipelineStatus.decode(message.body))
            except ProtocolError:
                continue  # anything may be sent to a topic
    return found
