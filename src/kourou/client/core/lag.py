"""Lag: how far behind a consumer is, judged by the message it has just received.

Recipe: skip unimportant messages when far behind. A consumer that cannot catch up may drop messages that are
worthless when late, and stay a member of its group:

    def on_price(message):
        behind = lag(message)
        if behind.messages > 100_000 or behind.ms > 60_000:
            return ConsumeResult.SUCCESS    # an old price: a newer one follows
        show(message.body)
        return ConsumeResult.SUCCESS

To drop everything up to now at once, seek to the end instead (`LitePullConsumer.seek_to_end`), or have an
operator reset the group's offset (`mqadmin resetOffsetByTime`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from kourou.protocol.message import MessageExt


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind. `messages`: how many followed in the queue when this one was pulled; `ms`: how long
    ago it was stored."""

    messages: int
    ms: int


def lag(message: MessageExt, *, now_ms: int | None = None) -> Lag:
    """How far behind the consumer of `message` is.

    `ms` compares the broker's clock with the local one. For a message that was not pulled from a queue (a
    reply, the result of a query) `messages` is 0.
    """
    if now_ms is None:
        now_ms = time.time_ns() // 1_000_000
    # The queue's end is one after the last message.
    behind = message.queue_max_offset - message.queue_offset - 1
    return Lag(messages=max(0, behind), ms=max(0, now_ms - message.store_timestamp))
