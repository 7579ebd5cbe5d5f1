"""Receiver: pops from all brokers of all subscribed topics in turn, and waits at all of them at once.

A source is a topic at one broker, with all its queues. Each `receive` first pops without waiting, beginning
with another source each time. If there is nothing, one source is popped with long polling. Several are asked
by NOTIFICATION, which answers when there is something and lends nothing: a pop that waits at one broker
while a message is taken from another would be given messages that the application has not asked for.

A pop whose caller was cancelled goes on, and its messages are those of the next `receive`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from kourou.client.core.cancellable_tasks import CancellableTasks
from kourou.client.core.instance import ClientInstance
from kourou.client.core.subscription import Subscription, Subscriptions, now_ms
from kourou.client.pop.lease_calls import LeaseCalls
from kourou.client.pop.pop_calls import ANY_QUEUE, PopAnswer, PopCalls, is_temporary
from kourou.client.pop.popped import MAX_POP_MESSAGES, LeasedMessage
from kourou.errors import KourouError, NoRouteError
from kourou.protocol.bodies import MessageQueue, PopProcessQueueInfo

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 0.02
_MAX_PAUSE_S: Final = 1.0
_EARLY_MS: Final = 60
"""Brokers answer a pop that waits so much before its time is over."""
_FAILURES: Final = 3
"""The pause after a failure is as long as after so many in a row."""


class _Pass(NamedTuple):
    """One round over the sources."""

    messages: list[LeasedMessage]
    failures: dict[MessageQueue, KourouError]


class Receiver:
    """Receives for one consumer. Any number of tasks may call `receive`."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        calls: PopCalls,
        leases: LeaseCalls,
        subscriptions: Subscriptions,
        *,
        is_from_first: bool,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._instance = instance
        self._group = group
        self._calls = calls
        self._leases = leases
        self._subscriptions = subscriptions
        self._is_from_first = is_from_first
        self._turn = 0
        self._tasks = CancellableTasks(instance.tasks.fail)
        self._waits: dict[MessageQueue, asyncio.Task[None]] = {}
        # Pops whose caller was cancelled, and messages that nothing has received.
        self._orphans: dict[MessageQueue, asyncio.Future[PopAnswer]] = {}
        self._late: list[LeasedMessage] = []
        self._known_topics: set[str] = set()
        self._failing: set[MessageQueue] = set()
        self._popped_ms: dict[MessageQueue, int] = {}

    async def receive(self, max_messages: int, wait_ms: int, invisible_ms: int) -> list[LeasedMessage]:
        """Up to `max_messages` messages; none if there were none for `wait_ms`. Brokers that are away are
        left out; an error is raised if no source can ever be popped."""
        deadline = self._loop.time() + wait_ms / 1000
        if late := self._take_late(max_messages):
            return late
        pause_s = 0.0
        while True:
            sources = await self._sources(deadline)
            # A single source is popped with long polling at once.
            left_ms = self._left_ms(deadline) if len(sources) == 1 else 0
            found = await self._pass(sources, max_messages, left_ms, invisible_ms)
            if found.messages:
                self._late += found.messages[max_messages:]  # of a pop that was to return more
                return found.messages[:max_messages]
            if late := self._take_late(max_messages):
                return late
            _raise_lasting(found.failures, len(sources))
            if self._left_ms(deadline) <= _EARLY_MS:
                return []
            if len(sources) > 1 or found.failures:
                await self._wait(sources, found.failures, deadline)
            # Again at once; if there is still nothing, another consumer was faster, or nothing is selected.
            await asyncio.sleep(min(pause_s, self._left_ms(deadline) / 1000))
            pause_s = min(2 * pause_s, _MAX_PAUSE_S) or _FIRST_PAUSE_S

    async def stop(self) -> None:
        """End all waits; messages that nothing received are visible again at once."""
        await self._tasks.stop()
        for popping in self._orphans.values():
            self._late += _messages_of(popping)
            popping.cancel()
        await self._leases.release(self._late)
        self._late.clear()

    def _left_ms(self, deadline: float) -> int:
        return max(0, int((deadline - self._loop.time()) * 1000))

    # -- sources ---------------------------------------------------------------------------------

    async def _sources(self, deadline: float) -> list[tuple[MessageQueue, Subscription]]:
        """All sources, another one first each time. A topic that has lost its route, as in a restart of its
        broker, is waited for."""
        pause_s = _FIRST_PAUSE_S
        while True:
            failure: NoRouteError | None = None
            found: list[tuple[MessageQueue, Subscription]] = []
            for subscription in self._subscriptions:
                try:
                    found += await self._sources_of(subscription)
                except NoRouteError as error:
                    if subscription.data.topic not in self._known_topics:
                        raise
                    failure = error
            if found or failure is None or self._loop.time() >= deadline:
                self._turn += 1
                turn = self._turn % len(found) if found else 0
                return found[turn:] + found[:turn]
            await asyncio.sleep(min(pause_s, self._left_ms(deadline) / 1000))
            pause_s = min(2 * pause_s, _MAX_PAUSE_S)

    async def _sources_of(self, subscription: Subscription) -> list[tuple[MessageQueue, Subscription]]:
        topic = subscription.data.topic
        route = await self._instance.routes.get(topic)
        self._known_topics.add(topic)
        return [(source, subscription) for source in sources_of(topic, route.subscribe_queues)]

    def describe(self) -> dict[MessageQueue, PopProcessQueueInfo]:
        """The state of each source, for tools. How many messages wait for their ack is unknown: -1."""
        described = {}
        for subscription in self._subscriptions:
            route = self._instance.routes.known(subscription.data.topic)
            for source in [] if route is None else sources_of(route.topic, route.subscribe_queues):
                described[source] = PopProcessQueueInfo(
                    wait_ack_count=-1, last_pop_timestamp=self._popped_ms.get(source, 0)
                )
        return described

    # -- pops ------------------------------------------------------------------------------------

    async def _pass(
        self,
        sources: list[tuple[MessageQueue, Subscription]],
        max_messages: int,
        wait_ms: int,
        invisible_ms: int,
    ) -> _Pass:
        found: list[LeasedMessage] = []
        failures: dict[MessageQueue, KourouError] = {}
        for source, subscription in sources:
            try:
                while (left := max_messages - len(found)) > 0:
                    asked = min(left, MAX_POP_MESSAGES)
                    popped = await self._pop(
                        source, subscription, asked, 0 if found else wait_ms, invisible_ms
                    )
                    found += popped
                    if len(popped) < asked:
                        break
                self._reached(source)
            except KourouError as error:
                failures[source] = error
                self._log_failure(source, error)
        return _Pass(found, failures)

    async def _pop(
        self,
        source: MessageQueue,
        subscription: Subscription,
        max_messages: int,
        wait_ms: int,
        invisible_ms: int,
    ) -> list[LeasedMessage]:
        popping = self._orphans.pop(source, None)
        limit_s = None
        if popping is not None and (wait_ms or popping.done()):
            limit_s = wait_ms / 1000
        else:
            if popping is not None:
                self._orphans[source] = popping
            popping = asyncio.ensure_future(
                self._calls.pop(
                    source,
                    subscription.data,
                    max_messages=max_messages,
                    wait_ms=wait_ms,
                    invisible_ms=invisible_ms,
                    is_from_first=self._is_from_first,
                )
            )
        try:
            await asyncio.wait([popping], timeout=limit_s)
        except asyncio.CancelledError:
            self._leave(source, popping)
            raise
        if not popping.done():
            self._leave(source, popping)
            return []
        answer = popping.result()
        self._popped_ms[source] = now_ms()
        if answer.is_polling_full:
            _log.warning("%s: the broker has no room for more waiting pops (popPollingSize)", source)
        return self._leases.selected(subscription, answer.messages)

    def _leave(self, source: MessageQueue, popping: asyncio.Future[PopAnswer]) -> None:
        """Keep a pop that nothing waits for: the broker may answer with messages."""
        if source in self._orphans:
            self._tasks.start(self._keep(popping), f"pop of {source}")
        else:
            self._orphans[source] = popping

    async def _keep(self, popping: asyncio.Future[PopAnswer]) -> None:
        await asyncio.wait([popping])
        self._late += _messages_of(popping)

    def _take_late(self, max_messages: int) -> list[LeasedMessage]:
        now = self._loop.time()
        late = [message for message in self._late if not message.lease.is_over(now)]
        self._late = late[max_messages:]
        return late[:max_messages]

    # -- waits -----------------------------------------------------------------------------------

    async def _wait(
        self,
        sources: list[tuple[MessageQueue, Subscription]],
        failures: dict[MessageQueue, KourouError],
        deadline: float,
    ) -> None:
        """Wait until a source may have messages, or a broker that was away may have returned."""
        wait_ms = self._left_ms(deadline)
        waits = []
        for source, _ in sources:
            wait = self._waits.get(source)
            if wait is None:
                wait = self._tasks.start(
                    self._wait_at(source, failures.get(source), wait_ms), f"wait for messages of {source}"
                )
                self._waits[source] = wait
                wait.add_done_callback(partial(self._waited, source))
            waits.append(wait)
        if waits:
            await asyncio.wait(waits, timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)

    def _waited(self, source: MessageQueue, wait: asyncio.Task[None]) -> None:
        del self._waits[source]

    async def _wait_at(self, source: MessageQueue, failure: KourouError | None, wait_ms: int) -> None:
        """Wait at one broker. Its answer is a hint only, so it may outlive the `receive` that asked."""
        if failure is not None:
            await self._instance.masters.pause(source.broker_name, failure, _FAILURES)
            return
        began = self._loop.time()
        try:
            is_called = await self._calls.wait_message(source, wait_ms)
        except KourouError as error:
            self._log_failure(source, error)
            await self._instance.masters.pause(source.broker_name, error, _FAILURES)
            return
        if not is_called:  # at once, if the broker has no room for more waits
            await asyncio.sleep(min(began + wait_ms / 1000 - self._loop.time(), _MAX_PAUSE_S))

    # -- failures --------------------------------------------------------------------------------

    def _log_failure(self, source: MessageQueue, error: KourouError) -> None:
        if self._instance.api.refusals.report(f"group {self._group}", error):
            return
        # Only the first of consecutive failures is a warning.
        level = logging.DEBUG if source in self._failing else logging.WARNING
        self._failing.add(source)
        _log.log(level, "group %s: pop of %s at %s: %s", self._group, source.topic, source.broker_name, error)

    def _reached(self, source: MessageQueue) -> None:
        self._failing.discard(source)


def sources_of(topic: str, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """The sources of a topic with these queues: one for each broker."""
    names = sorted({queue.broker_name for queue in queues})
    return [MessageQueue(topic, broker_name, ANY_QUEUE) for broker_name in names]


def _raise_lasting(failures: Mapping[MessageQueue, KourouError], count: int) -> None:
    """Raise if all of `count` sources fail, and will."""
    if count and len(failures) == count and not any(map(is_temporary, failures.values())):
        raise next(iter(failures.values()))


def _messages_of(popping: asyncio.Future[PopAnswer]) -> list[LeasedMessage]:
    if not popping.done() or popping.cancelled() or popping.exception() is not None:
        return []
    return popping.result().messages
