"""Dead letters: messages that a consumer group failed to consume, read from `%DLQ%group` and filtered.

Reading changes nothing: no offset moves. Not here: sending them back (redrive.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Final, Self

from kourou.admin.each import map_each
from kourou.admin.messages.message_reading import (
    QueuePlace,
    QueueSpan,
    queue_span,
    read_span,
    readable_queues,
)
from kourou.admin.messages.message_view import body_or_stored, text_start
from kourou.admin.session import Admin
from kourou.admin.topics import read_permission_command, topic_status
from kourou.errors import ConfigError, RemotingError, ResponseError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.filter import FilterProgram
from kourou.protocol.message import MessageExt
from kourou.protocol.names import dlq_topic, is_dlq_topic, is_retry_topic, retry_topic
from kourou.protocol.properties import MessageConst

_SHOWN_BODY: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A selection of dead letters; all by default."""

    topic: str | None = None
    """Their original topic."""
    key: str | None = None
    """One of their keys, or their message id."""
    begin_ms: int | None = None
    """Given up at or after this time."""
    end_ms: int | None = None
    """Given up before this time."""
    expression: FilterProgram | None = None
    """A condition on their properties."""

    def takes(self, message: MessageExt) -> bool:
        """Whether a dead letter matches. Times are checked where queues are read."""
        if self.topic is not None and origin_topic(message) != self.topic:
            return False
        if self.key is not None and self.key not in (*message.keys, message.msg_id):
            return False
        return self.expression is None or self.expression.matches(message.properties.get)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One dead letter, for display."""

    msg_id: str
    keys: str
    tags: str
    topic: str
    """The original topic; empty if unknown."""
    born_timestamp: int
    store_timestamp: int
    """When it was given up."""
    reconsume_times: int
    broker_name: str
    queue_id: int
    queue_offset: int
    """Its position in `%DLQ%group`."""
    offset_msg_id: str
    body_size: int
    body_start: str

    @classmethod
    def of(cls, message: MessageExt) -> Self:
        """From a stored record."""
        body = body_or_stored(message)
        return cls(
            msg_id=message.msg_id,
            keys=" ".join(message.keys),
            tags=message.tags or "",
            topic=origin_topic(message) or "",
            born_timestamp=message.born_timestamp,
            store_timestamp=message.store_timestamp,
            reconsume_times=message.reconsume_times,
            broker_name=message.broker_name,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            offset_msg_id=message.offset_msg_id,
            body_size=len(body),
            body_start=text_start(body, _SHOWN_BODY),
        )


def origin_topic(message: MessageExt) -> str | None:
    """The topic from which a dead letter was consumed first; None if unknown.

    Brokers record it at the first failure (RETRY_TOPIC); some 5.x brokers again when they give up.
    """
    for name in (MessageConst.PROPERTY_RETRY_TOPIC, MessageConst.PROPERTY_DLQ_ORIGIN_TOPIC):
        topic = message.get_property(name)
        if topic and not is_retry_topic(topic) and not is_dlq_topic(topic):
            return topic
    return None


@dataclass(frozen=True, slots=True)
class GroupDeadLetters:
    """How many dead letters a group has."""

    group: str
    count: int
    last_timestamp: int
    """When the last one was given up; 0 if there is none."""
    problem: str = ""
    """Brokers that did not answer, and why."""


async def dead_letter_counts(admin: Admin, groups: Iterable[str]) -> list[GroupDeadLetters]:
    """The number of dead letters of each group, as many as are not deleted yet; several groups at a time."""

    async def count(group: str) -> GroupDeadLetters:
        try:
            status = await topic_status(admin, dlq_topic(group))
        except (RemotingError, ResponseError) as error:
            return GroupDeadLetters(group, 0, 0, str(error))
        return GroupDeadLetters(
            group,
            sum(queue.max_offset - queue.min_offset for queue in status.queues),
            max(queue.last_update_timestamp for queue in status.queues),
            "; ".join(f"{silent.address}: {silent.problem}" for silent in status.silent),
        )

    return await map_each(groups, count)


async def dead_letter_spans(admin: Admin, group: str, selection: Selection) -> list[QueueSpan]:
    """The ranges to read, broker by broker; later messages are not included.

    Empty if the group has no dead letters. ResponseError TOPIC_NOT_EXIST if there is no such group,
    ConfigError if its dead letters may not be read.
    """
    places = await dead_letter_places(admin, group)
    return [
        await queue_span(admin, place, begin_ms=selection.begin_ms, end_ms=selection.end_ms)
        for place in places
    ]


async def dead_letter_places(admin: Admin, group: str) -> list[QueuePlace]:
    """The queues with dead letters of a group. Errors as in `dead_letter_spans`."""
    topic = dlq_topic(group)
    try:
        places = await readable_queues(admin, topic)
    except ResponseError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        await _check_group(admin, group)
        return []
    if not places:
        raise ConfigError(
            f"topic {topic} may not be read; allow it: {await read_permission_command(admin, topic)}"
        )
    return places


async def _check_group(admin: Admin, group: str) -> None:
    try:
        await admin.route(retry_topic(group))
    except ResponseError as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        raise ResponseError(
            error.code, f"no broker knows group {group}: it has neither retries nor dead letters"
        ) from None


async def read_dead_letters(
    admin: Admin, spans: list[QueueSpan], selection: Selection
) -> AsyncIterator[tuple[QueuePlace, MessageExt]]:
    """The selected dead letters, in the order in which each broker stored them."""
    for span in spans:
        async for pulled in read_span(admin, span):
            for message in pulled.messages:
                message.broker_name = span.place.queue.broker_name
                if selection.takes(message):
                    yield span.place, message
