"""QueueProcessor: AsyncQueueProcessor without asyncio."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kourou.client.producer.queue_processor import DEFAULT_STEP, ProcessorPlan
from kourou.client.sync.producer import Producer
from kourou.client.sync.pull_consumer import PullConsumer
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message, MessageExt

Process: TypeAlias = Callable[[MessageExt], Message | None]
"""Makes the result of a message; None: there is none."""


class QueueProcessor:
    """Reads `source`, and writes what `process` makes of each message to `target`: each result once, in
    order, however often the program is killed and started again.

        producer = Producer("enrich", name="enrich-0", explicit_sequences=True)
        with producer, PullConsumer("enrich") as consumer:
            QueueProcessor(source, target, enrich, consumer=consumer, producer=producer).run()

    `process` gets a message and returns a Message for the topic of `target`, or None. It may run again for a
    message, so it should have no other effects. The name of the producer belongs to this source and this
    target. Without results so far, reading begins at `begin_offset`, or at the first message. `max_messages`
    are read and written at a time.
    """

    def __init__(
        self,
        source: MessageQueue,
        target: MessageQueue,
        process: Process,
        *,
        consumer: PullConsumer,
        producer: Producer,
        begin_offset: int | None = None,
        max_messages: int = DEFAULT_STEP,
    ) -> None:
        self._plan = ProcessorPlan(
            source, target, producer.options, begin_offset=begin_offset, max_messages=max_messages
        )
        self._process = process
        self._consumer = consumer
        self._producer = producer

    @property
    def position(self) -> int:
        """The offset of `source` to read next; all before it are processed."""
        return self._plan.position

    def run(self, end_offset: int | None = None) -> int:
        """Process up to `end_offset`, or without end; returns the position.

        Errors of reading, processing and writing are raised; `run` may be called again, and resumes.
        ProducerFencedError: another program has taken over.
        """
        plan = self._plan
        last = self._producer.last_sequence(plan.target)
        plan.resume(last, self._consumer.min_offset(plan.source))
        while not plan.is_done(end_offset):
            result = self._consumer.pull_block_if_not_found(
                plan.source, queue_offset=plan.position, max_messages=plan.max_messages
            )
            made = [(message, self._process(message)) for message in plan.messages(result, end_offset)]
            messages, sequences = plan.results(made)
            if messages:
                self._producer.send_many(messages, queue=plan.target, sequences=sequences)
            plan.advance(result, end_offset)
        return plan.position
