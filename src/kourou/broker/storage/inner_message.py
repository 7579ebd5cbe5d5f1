"""InnerMessage: a message that the broker itself stores, and how it is put.

From a record that comes again (delivered after a delay, sent back by a consumer, committed), or
from a send that ends up elsewhere than it was sent to.

    message = InnerMessage.of(record)            # a stored record, its place and attempts as they were
    message.topic, message.queue_id = "…", 0     # change what is to change
    message.set_property("RETRY_TOPIC", "…")
    writer.put(message, done)                    # a delay in its properties is honoured: it waits first
    writer.put_now(message, done)                # as it is, whatever delay it carries

Not here: how a delayed message waits (delayed_messages.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from kourou.protocol.message import MessageExt
from kourou.protocol.producer_sequence import without_sequence
from kourou.protocol.properties import (
    MessageConst,
    PropertyScanner,
    get_property,
    properties_from_bytes,
    properties_to_bytes,
    remove_property,
    set_property,
)
from kourou.protocol.tags import tags_code
from kourou.store.delay_levels import SCHEDULE_TOPIC, deliver_timestamp
from kourou.store.log.dispatch_request import index_keys
from kourou.store.log.put_batch import PutDone

if TYPE_CHECKING:
    from kourou.store.log.log_appender import LogAppender
    from kourou.store.queue.consume_queues import ConsumeQueues
    from kourou.transport.cycles import Cycles

_scan: Final = PropertyScanner(
    MessageConst.PROPERTY_TAGS,
    MessageConst.PROPERTY_KEYS,
    MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
).values


@dataclass(slots=True)
class InnerMessage:
    """All that a put needs. `body` is as it is stored, compressed or not; `properties` is the one
    string. `prepared_phy_offset`: the record that this one was made from, of a commit or a delivery."""

    topic: str
    queue_id: int
    body: bytes
    properties: str
    born_timestamp: int
    born_host: bytes
    sys_flag: int = 0
    flag: int = 0
    reconsume_times: int = 0
    prepared_phy_offset: int = 0

    @classmethod
    def of(cls, record: MessageExt) -> Self:
        """The same message again, made from no other record, and no repeat of it: without the sequence of its
        producer."""
        return cls(
            record.topic,
            record.queue_id,
            record.stored_body,
            without_sequence(properties_from_bytes(record.raw_properties)),
            record.born_timestamp,
            record.raw_born_host,
            record.sys_flag,
            record.flag,
            record.reconsume_times,
        )

    def get_property(self, name: str) -> str | None:
        """One property; None where it is absent."""
        return get_property(self.properties, name)

    def set_property(self, name: str, value: str) -> None:
        """Set one property, in place of what it was. ValueError: `value` has a separator in it."""
        self.properties = set_property(self.properties, name, value)

    def remove_property(self, name: str) -> None:
        """Remove a property, if it is there."""
        self.properties = remove_property(self.properties, name)


class MessageWriter:
    """Puts messages for the parts of one broker. `delay` redirects one with a delay, or refuses it
    (delayed_messages.py)."""

    def __init__(
        self,
        *,
        cycles: Cycles,
        appender: LogAppender,
        queues: ConsumeQueues,
        delay_levels: tuple[int, ...],
        delay: Callable[[InnerMessage], None],
    ) -> None:
        self._cycles = cycles
        self._appender = appender
        self._queues = queues
        self._delay_levels = delay_levels
        self.delay = delay

    def put(self, message: InnerMessage, done: PutDone | None, *, wait: bool = False) -> None:
        """Store `message`; one with a delay goes where it waits for its time, and `message` is changed so.

        As `put_now`. PutRefusedError also when its delay cannot be had.
        """
        self.delay(message)
        self.put_now(message, done, wait=wait)

    def put_now(self, message: InnerMessage, done: PutDone | None, *, wait: bool = False) -> None:
        """Have `message` stored where it says, at the end of the commit cycle, which is opened if none is.

        Nothing is stored on return: `done(status, phy_offset, queue_offset)` is called once, with `wait`
        when the message is as durable as the flush mode requires. Do not put from inside a `done`: that
        belongs to a commit cycle which is being written (use `loop.call_soon`). PutRefusedError: `done` is
        not called.
        """
        tags, keys, uniq_key = _scan(message.properties)
        self.put_indexed(message, tags_code(tags), index_keys(uniq_key, keys), done, wait)

    def put_indexed(
        self,
        message: InnerMessage,
        code_of_tags: int,
        keys: Sequence[str],
        done: PutDone | None,
        wait: bool,
    ) -> None:
        """The same where the code of the tags and the index keys are known already."""
        self._cycles.open()
        if message.topic == SCHEDULE_TOPIC:  # its queues keep the time of delivery there
            now_ms = self._appender.begin_cycle()
            code_of_tags = deliver_timestamp(self._delay_levels, message.queue_id + 1, now_ms)
        self._appender.put(
            self._queues.get(message.topic, message.queue_id),
            message.body,
            properties_to_bytes(message.properties),
            code_of_tags,
            keys,
            message.born_timestamp,
            message.born_host,
            message.sys_flag,
            message.flag,
            message.reconsume_times,
            message.prepared_phy_offset,
            done,
            wait,
        )
