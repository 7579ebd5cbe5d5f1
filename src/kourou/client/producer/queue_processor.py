"""AsyncQueueProcessor: reads a queue, processes its messages, writes the results to another queue, each once.

The sequence of a result is the offset of the message that it was made of. So one write is both the result and
the place to resume at: a program that starts requests the last sequence, and reads on behind it. A program
that was replaced cannot write any more, since opening the producer's name fences it.
Not here: the sync form (sync/queue_processor.py).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from kourou.argument_types import check_int, wrong_type
from kourou.errors import MessageRefusedError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.message import Message, MessageExt

if TYPE_CHECKING:
    from kourou.client.producer.producer import AsyncProducer
    from kourou.client.producer.producer_options import ProducerOptions
    from kourou.client.pull.pull_consumer import AsyncPullConsumer
    from kourou.client.pull.pulls import PullResult

_log = logging.getLogger(__name__)

AsyncProcess: TypeAlias = Callable[[MessageExt], Message | None | Awaitable[Message | None]]
"""Makes the result of a message; None: there is none."""
DEFAULT_STEP: Final = 32


class ProcessorPlan:
    """Where a processor is, and what its next step writes; shared by the sync and the async form."""

    def __init__(
        self,
        source: MessageQueue,
        target: MessageQueue,
        options: ProducerOptions,
        *,
        begin_offset: int | None,
        max_messages: int,
    ) -> None:
        for name, queue in (("source", source), ("target", target)):
            if not isinstance(queue, MessageQueue):
                raise wrong_type(name, "a MessageQueue", queue)
        check_int("max_messages", max_messages, at_least=1)
        if begin_offset is not None:
            check_int("begin_offset", begin_offset, at_least=0)
        if not options.explicit_sequences:
            raise ValueError("the producer of a queue processor needs a name and explicit_sequences=True")
        self.source = source
        self.target = target
        self.begin_offset = begin_offset
        self.max_messages = max_messages
        self.position = 0
        """The offset to read next."""

    def resume(self, last_sequence: int, first_offset: int) -> None:
        """Begin behind the last result, or at the beginning."""
        if last_sequence >= 0:
            self.position = last_sequence + 1
        else:
            self.position = first_offset if self.begin_offset is None else self.begin_offset
        if self.position < first_offset:
            _log.warning(
                "%s: offsets %d to %d were deleted before they were processed",
                self.source,
                self.position,
                first_offset - 1,
            )
            self.position = first_offset

    def is_done(self, end_offset: int | None) -> bool:
        """Whether everything before `end_offset` is processed."""
        return end_offset is not None and self.position >= end_offset

    def messages(self, result: PullResult, end_offset: int | None) -> list[MessageExt]:
        """Those that the step processes."""
        found = result.messages()
        if end_offset is None:
            return found
        return [message for message in found if message.queue_offset < end_offset]

    def advance(self, result: PullResult, end_offset: int | None) -> None:
        """The results of a pull are written."""
        self.position = result.next_begin_offset
        if end_offset is not None:
            self.position = min(self.position, end_offset)

    def results(self, made: Iterable[tuple[MessageExt, Message | None]]) -> tuple[list[Message], list[int]]:
        """The messages to write, and their sequences."""
        messages, sequences = [], []
        for message, result in made:
            if result is None:
                continue
            if not isinstance(result, Message):
                raise wrong_type("the result of a message", "a Message or None", result)
            if result.topic != self.target.topic:
                raise MessageRefusedError(
                    f"a result is for topic {result.topic!r}, the target is {self.target}"
                )
            messages.append(result)
            sequences.append(message.queue_offset)
        return messages, sequences


class AsyncQueueProcessor:
    """Reads `source`, and writes what `process` makes of each message to `target`: each result once, in
    order, however often the program is killed and started again.

        producer = AsyncProducer("enrich", name="enrich-0", explicit_sequences=True)
        consumer = AsyncPullConsumer("enrich")
        async with producer, consumer:
            await AsyncQueueProcessor(source, target, enrich, consumer=consumer, producer=producer).run()

    `process` gets a message and returns a Message for the topic of `target`, or None; it may be async. It may
    run again for a message, so it should have no other effects. The name of the producer belongs to this
    source and this target. Without results so far, reading begins at `begin_offset`, or at the first message.
    `max_messages` are read and written at a time.
    """

    def __init__(
        self,
        source: MessageQueue,
        target: MessageQueue,
        process: AsyncProcess,
        *,
        consumer: AsyncPullConsumer,
        producer: AsyncProducer,
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

    async def run(self, end_offset: int | None = None) -> int:
        """Process up to `end_offset`, without it until the task is cancelled; returns the position.

        Errors of reading, processing and writing are raised; `run` may be called again, and resumes.
        ProducerFencedError: another program has taken over.
        """
        plan = self._plan
        last = await self._producer.last_sequence(plan.target)
        plan.resume(last, await self._consumer.min_offset(plan.source))
        while not plan.is_done(end_offset):
            result = await self._consumer.pull_block_if_not_found(
                plan.source, queue_offset=plan.position, max_messages=plan.max_messages
            )
            made = [(message, await self._made(message)) for message in plan.messages(result, end_offset)]
            messages, sequences = plan.results(made)
            if messages:
                await self._producer.send_many(messages, queue=plan.target, sequences=sequences)
            plan.advance(result, end_offset)
        return plan.position

    async def _made(self, message: MessageExt) -> Message | None:
        made = self._process(message)
        return await made if inspect.isawaitable(made) else made
