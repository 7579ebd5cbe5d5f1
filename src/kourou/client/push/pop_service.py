"""PopService: keeps popping for a consumer with `mode="pop"`, one request at a time for each source.

A source is a topic at one broker. Every consumer of a group pops all queues of every source, so that any
number of consumers get work with nothing to configure. If an operator has set the mode of group and topic to
POP at the brokers (`mqadmin setConsumeMode`), these assign the queues, and a share that is limited there
(`popShareQueueNum`) is respected.

A consumer takes about as many messages as it can handle soon: what it has taken, no other consumer gets for
`invisible_ms`. Messages whose time is over are not handled, and an ack that comes later is not sent. At the
stop what no handler has started with becomes visible at once.
Not here: calling handlers (concurrent_service.py), the retry topic of pulled messages, which is pulled as
always (rebalance.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from kourou.client.core.cancellable_tasks import CancellableTasks
from kourou.client.core.failure_log import FailureLog
from kourou.client.core.instance import ClientInstance
from kourou.client.core.subscription import Subscription, Subscriptions, now_ms
from kourou.client.pop.lease_calls import LeaseCalls
from kourou.client.pop.pop_calls import PopCalls
from kourou.client.pop.popped import LeasedMessage, LeaseState, retry_delay_ms
from kourou.client.pop.receiver import sources_of
from kourou.client.push.concurrent_service import ConcurrentService
from kourou.client.push.consumer_options import ConsumerOptions
from kourou.client.push.consumer_stats import StatsTable
from kourou.client.push.send_back import SendBack
from kourou.errors import KourouError, PopNotSupportedError, ResponseError
from kourou.protocol.bodies import MessageQueue, PopProcessQueueInfo
from kourou.protocol.bodies.assignment import MessageQueueAssignment, MessageRequestMode
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import MessageExt
from kourou.protocol.names import is_retry_topic

_log = logging.getLogger(__name__)

DEAD_LETTER: Final = -1
"""As a delay level: no more deliveries."""
# Delay levels that handlers choose, as brokers have them by default.
_LEVEL_DELAYS_S: Final = (
    1,
    5,
    10,
    30,
    *(60 * minutes for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)
_FLOW_CONTROL_DELAY_S: Final = 0.02
_FULL_DELAY_S: Final = 1.0
_SWEEP_S: Final = 1.0
_STOP_ACKS_S: Final = 3.0


def level_delay_ms(delay_level: int, reconsume_times: int) -> int:
    """The delay of the next delivery: of the level that a handler chose, else by the number of deliveries.

    >>> level_delay_ms(1, 5), level_delay_ms(0, 5), level_delay_ms(99, 0)
    (1000, 240000, 7200000)
    """
    if delay_level <= 0:
        return retry_delay_ms(reconsume_times)
    return _LEVEL_DELAYS_S[min(delay_level, len(_LEVEL_DELAYS_S)) - 1] * 1000


def room_for(options: ConsumerOptions, in_hand: int) -> int:
    """How many messages may be popped now: up to twice what the handlers can take, once they have taken half
    of it, so that pops stay large and others get the rest."""
    at_once = options.concurrency * options.batch_size
    limit = min(options.pop_threshold_messages, 2 * at_once)
    if in_hand >= max(1, min(at_once, limit)):
        return 0
    return min(limit - in_hand, options.pop_batch_size)


def popped_sources(
    topic: str, queues: Iterable[MessageQueue], assignments: Sequence[MessageQueueAssignment] | None
) -> list[MessageQueue]:
    """The sources of a topic with these queues: those that a broker assigns by POP, else every broker."""
    assigned = [
        each.message_queue
        for each in assignments or ()
        if each.mode is MessageRequestMode.POP and each.message_queue is not None
    ]
    return sorted(set(assigned)) or sources_of(topic, queues)


class Source:
    """One source, from the assignment that adds it to the one that removes it."""

    def __init__(self, queue: MessageQueue, subscription: Subscription) -> None:
        self.queue = queue
        self.subscription = subscription
        self.is_dropped = False
        self.popped_ms = 0
        """When the last pop was answered."""


@dataclass(eq=False, slots=True)
class PoppedQueue:
    """The messages of one queue in a pop, as a delivery of handlers."""

    service: PopService
    source: Source
    queue: MessageQueue

    @property
    def subscription(self) -> Subscription:
        """That of the topic, as it is now."""
        return self.source.subscription

    @property
    def is_dropped(self) -> bool:
        """Whether the topic is no longer consumed here."""
        return self.source.is_dropped

    def may_start(self, messages: Sequence[MessageExt]) -> bool:
        """Whether the messages are still on loan; from any thread."""
        return not self.source.is_dropped and self.service.may_start(messages)

    def ack(self, message: MessageExt) -> bool:
        """Acknowledge a message, unless it was returned."""
        return self.service.done(message)


class PopService:
    """Pops for one consumer."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: ConsumerOptions,
        subscriptions: Subscriptions,
        stats: StatsTable,
        consume: ConcurrentService,
        calls: PopCalls,
        leases: LeaseCalls,
        failures: FailureLog,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._instance = instance
        self._group = group
        self._options = options
        self._subscriptions = subscriptions
        self._stats = stats
        self._consume = consume
        self._calls = calls
        self._leases = leases
        self._failures = failures
        self._tasks = CancellableTasks(instance.tasks.fail)
        self._sources: dict[MessageQueue, Source] = {}
        self._in_hand: dict[int, LeasedMessage] = {}
        self._room = asyncio.Event()
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._tasks.start(self._sweep(), "leases that have ended")

    # -- sources ---------------------------------------------------------------------------------

    @property
    def sources(self) -> list[MessageQueue]:
        """What is popped now."""
        return sorted(self._sources)

    @property
    def in_hand(self) -> list[LeasedMessage]:
        """Popped messages that are not consumed yet."""
        return list(self._in_hand.values())

    def describe(self) -> dict[MessageQueue, PopProcessQueueInfo]:
        """The state of each source, for tools."""
        in_hand = Counter(
            (each.lease.topic, each.lease.handle.broker_name) for each in self._in_hand.values()
        )
        return {
            queue: PopProcessQueueInfo(
                wait_ack_count=in_hand[queue.topic, queue.broker_name],
                last_pop_timestamp=self._sources[queue].popped_ms,
            )
            for queue in self.sources
        }

    async def rebalance(self) -> bool:
        """Find the sources of every topic once; False when something was missing."""
        wanted: dict[MessageQueue, Subscription] = {}
        is_complete = True
        for subscription in self._subscriptions:
            topic = subscription.data.topic
            if is_retry_topic(topic):
                continue
            try:
                sources = await self._sources_of(topic)
            except KourouError as error:
                is_complete = False
                self._failures.warn(
                    ("no source", topic), f"group {self._group}: no queues of {topic}", str(error)
                )
                sources = [queue for queue in self._sources if queue.topic == topic]
            wanted |= dict.fromkeys(sources, subscription)
        for queue in [queue for queue in self._sources if queue not in wanted]:
            self._drop(self._sources.pop(queue))
        for queue, subscription in wanted.items():
            known = self._sources.get(queue)
            if known is None:
                self._sources[queue] = source = Source(queue, subscription)
                self._tasks.start(self._keep_popping(source), f"pop {queue}")
            else:
                known.subscription = subscription
        return is_complete

    async def _sources_of(self, topic: str) -> list[MessageQueue]:
        route = await self._instance.routes.get(topic)
        return popped_sources(topic, route.subscribe_queues, await self._assignments(topic))

    async def _assignments(self, topic: str) -> list[MessageQueueAssignment] | None:
        address = self._instance.routes.any_of_topic(topic)
        if address is None:
            return None
        try:
            return await self._calls.assignment(address, topic, self._options.strategy.name)
        except KourouError as error:
            _log.debug("group %s: %s assigns no queues of %s: %s", self._group, address, topic, error)
            return None

    def resubscribed(self, topic: str, subscription: Subscription) -> None:
        """Continue with a new subscription to a topic."""
        for queue, source in self._sources.items():
            if queue.topic == topic:
                source.subscription = subscription

    def _drop(self, source: Source) -> None:
        # Its pop is not cancelled: the broker would lend messages to nothing.
        source.is_dropped = True
        self._room.set()

    # -- pops ------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Pop nothing until `resume`; messages already popped are consumed."""
        self._resumed.clear()

    def resume(self) -> None:
        self._resumed.set()

    async def _keep_popping(self, source: Source) -> None:
        failures = 0
        while not source.is_dropped:
            try:
                await self._resumed.wait()
                await self._pop_once(source, await self._wait_room(source))
                failures = 0
            except KourouError as error:
                failures += 1
                await self._after_failure(source, error, failures)

    async def _wait_room(self, source: Source) -> int:
        while not source.is_dropped:
            if (room := room_for(self._options, len(self._in_hand))) > 0:
                return room
            self._room.clear()
            await self._room.wait()
        return 0

    async def _pop_once(self, source: Source, max_messages: int) -> None:
        if source.is_dropped:
            return
        began = self._loop.time()
        answer = await self._calls.pop(
            source.queue,
            source.subscription.data,
            max_messages=max_messages,
            wait_ms=self._options.suspend_timeout_ms,
            invisible_ms=self._options.invisible_ms,
            is_from_first=self._options.consume_from == "first",
        )
        source.popped_ms = now_ms()
        if answer.messages:
            self._found(source, answer.messages, self._loop.time() - began)
        elif answer.is_polling_full:
            which = f"{source.queue.broker_name} (popPollingSize)"
            self._failures.warn("polling full", "the broker has no room for more waiting pops", which)
            await asyncio.sleep(_FULL_DELAY_S)

    def _found(self, source: Source, messages: list[LeasedMessage], seconds: float) -> None:
        stats = self._stats.of(source.queue.topic)
        stats.pulls += 1
        stats.pulled += len(messages)
        stats.pull_s += seconds
        if source.is_dropped:
            self._tasks.start(self._leases.release(messages), "messages of a topic that was dropped")
            return
        messages = self._leases.selected(source.subscription, messages)
        self._in_hand.update((id(message), message) for message in messages)
        for queue, run in groupby(messages, key=lambda message: message.lease.queue):
            self._consume.submit(PoppedQueue(self, source, queue), list(run))

    async def _after_failure(self, source: Source, error: KourouError, failures: int) -> None:
        if isinstance(error, ResponseError) and error.code == ResponseCode.FLOW_CONTROL:
            await asyncio.sleep(_FLOW_CONTROL_DELAY_S)
            return
        is_logged = self._instance.api.refusals.report(f"group {self._group}", error)
        # Only the first of consecutive failures is logged.
        if failures == 1 and not is_logged:
            level = logging.ERROR if isinstance(error, PopNotSupportedError) else logging.WARNING
            _log.log(level, "group %s: pop of %s: %s", self._group, source.queue, error)
        await self._instance.masters.pause(source.queue.broker_name, error, failures)

    # -- messages in hand ------------------------------------------------------------------------

    def may_start(self, messages: Sequence[MessageExt]) -> bool:
        """Whether messages are still on loan, so that a handler may be called; from any thread."""
        now = self._loop.time()
        leases = [message.lease for message in messages if isinstance(message, LeasedMessage)]
        if any(lease.is_over(now) or lease.state is not LeaseState.HELD for lease in leases):
            return False
        for lease in leases:
            lease.is_started = True
        return True

    def done(self, message: MessageExt) -> bool:
        """A message is consumed or returned; False if its time was over."""
        if self._in_hand.pop(id(message), None) is None:
            return False
        assert isinstance(message, LeasedMessage)
        self._room.set()
        if message.lease.state is LeaseState.HELD:
            self._leases.ack_later(message)
        return True

    async def _sweep(self) -> None:
        """Forget messages whose time is over: they are delivered again."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = self._loop.time()
            for message in [each for each in self._in_hand.values() if each.lease.is_over(now)]:
                del self._in_hand[id(message)]
                self._room.set()
                what = "its handler is still running" if message.lease.is_started else "it was not handled"
                self._failures.warn(
                    ("lease over", message.topic, message.lease.is_started),
                    f"group {self._group}: a message of {message.topic} is delivered again: {what} at the "
                    f"end of invisible_ms={self._options.invisible_ms}",
                    f"message {message.msg_id}",
                )

    # -- stop ------------------------------------------------------------------------------------

    async def drop_all(self) -> None:
        """Pop nothing more, and make visible at once what no handler has started with."""
        for source in self._sources.values():
            self._drop(source)
        self._resumed.set()
        await self._release([each for each in self.in_hand if not each.lease.is_started])

    async def stop(self) -> None:
        """Make visible what handlers have not finished with, and send the acks that wait."""
        await self._release(self.in_hand)
        await self._leases.acks.stop(_STOP_ACKS_S)
        await self._tasks.stop()
        self._sources.clear()

    async def _release(self, messages: list[LeasedMessage]) -> None:
        for message in messages:
            self._in_hand.pop(id(message), None)
        await self._leases.release(messages)


class PoppedReturns:
    """Has failed messages delivered again: popped ones by a change of their invisible time, dead letters and
    pulled ones by sending them back."""

    def __init__(self, leases: LeaseCalls, send_back: SendBack, max_reconsume_times: int, group: str) -> None:
        self._leases = leases
        self._send_back = send_back
        self._max_reconsume_times = max_reconsume_times
        self._group = group

    async def send(self, message: MessageExt, delay_level: int) -> bool:
        """Have `message` delivered again; False if it has to become a dead letter, and no broker took it."""
        if not isinstance(message, LeasedMessage):
            return await self._send_back.send(message, delay_level)
        if delay_level < 0 or message.reconsume_times >= self._max_reconsume_times:
            # Brokers of Apache have no dead letters of POP: the client sends it there, then acknowledges it.
            return await self._send_back.send(message, DEAD_LETTER)
        try:
            await self._leases.nack(message, level_delay_ms(delay_level, message.reconsume_times))
        except KourouError as error:
            # It is delivered again all the same, when its invisible time is over.
            message.lease.state = LeaseState.RETURNED
            _log.warning("group %s: message %s is not returned: %s", self._group, message.msg_id, error)
        return True
