"""PopNotices: notifies consumers that there is something to pop, now or as soon as it comes.

A request waits as a pop does (pop_polling.py), in lines of its own. It takes nothing: another consumer may be
faster. Not here: requests and answers on the wire (pop_processor.py).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from kourou.broker.pop.order_info import OrderKey
from kourou.broker.pop.pop_polling import ANY_QUEUE, HeldPop, PollingResult
from kourou.broker.pop.pop_run import Caller
from kourou.protocol.pop.retry_topics import pop_retry_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kourou.broker.admission import Admission, Ruling
    from kourou.broker.pop.contracts import Orders
    from kourou.broker.pop.pop_offsets import PopOffsets
    from kourou.broker.pop.pop_polling import PopPolling
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.protocol.headers.pop import NotificationRequestHeader
    from kourou.store.queue.consume_queues import ConsumeQueues


class NoticeCaller(Caller, Protocol):
    """Where such a request comes from."""

    def answer(self, has_message: bool, is_full: bool) -> None:
        """Respond whether there is something to pop; `is_full`: the request could not wait for it."""
        ...


class _Notice:
    """One request, from its arrival to its answer."""

    __slots__ = ("caller", "header", "held", "key", "ruling")

    def __init__(self, header: NotificationRequestHeader, caller: NoticeCaller, ruling: Ruling) -> None:
        self.header = header
        self.caller = caller
        self.ruling = ruling
        self.key = OrderKey(header.topic, header.consumer_group, max(header.queue_id, ANY_QUEUE))
        self.held: HeldPop | None = None


class PopNotices:
    """The notices of one broker."""

    def __init__(
        self,
        *,
        admission: Admission,
        topics: TopicConfigManager,
        queues: ConsumeQueues,
        offsets: PopOffsets,
        orders: Orders,
        polling: PopPolling,
        now_ms: Callable[[], int],
    ) -> None:
        self._admission = admission
        self._topics = topics
        self._queues = queues
        self._offsets = offsets
        self._orders = orders
        self._polling = polling
        self._now_ms = now_ms

    def notify(self, header: NotificationRequestHeader, caller: NoticeCaller) -> None:
        """Answer when a group has something to pop, or its time is over. RequestError: rejected."""
        if not header.born_time:
            header.born_time = self._now_ms()
        notice = _Notice(header, caller, self._admission.ruling)
        self._admission.check_popped(*notice.key, caller.address)
        self._look(notice, is_last=False)

    def _look(self, notice: _Notice, *, is_last: bool) -> None:
        if self._has_message(notice):
            notice.caller.answer(True, False)
            return
        held = PollingResult.EXPIRED
        if not is_last:
            if notice.held is None:
                notice.held = HeldPop(
                    notice.key,
                    notice.caller.owner,
                    run=partial(self._look_again, notice),
                    give_up=partial(notice.caller.answer, False, False),
                )
            header = notice.header
            held = self._polling.hold(notice.held, born_ms=header.born_time, poll_ms=header.poll_time)
        if held is not PollingResult.HELD:
            notice.caller.answer(False, held is PollingResult.FULL)

    def _look_again(self, notice: _Notice, is_last: bool) -> None:
        caller = notice.caller
        try:
            if caller.is_gone:
                return
            caller.check_again(notice.ruling)
            notice.ruling = self._admission.ruling
            self._admission.check_popped(*notice.key, caller.address)
            self._look(notice, is_last=is_last)
        except Exception as error:
            caller.fail(error)

    def _has_message(self, notice: _Notice) -> bool:
        is_orderly = bool(notice.header.order)
        return any(
            self._offsets.backlog(key, self._queues.find(key.topic, key.queue_id))
            for key in self._keys(notice.key, is_orderly)
            if not (is_orderly and self._orders.is_blocked(key, notice.header.attempt_id))
        )

    def _keys(self, key: OrderKey, is_orderly: bool) -> Iterator[OrderKey]:
        """The queues that a pop may look at."""
        topic, group, queue_id = key
        if queue_id == ANY_QUEUE:
            yield from (OrderKey(topic, group, n) for n in range(self._topics.read_queues(topic)))
        else:
            yield key
        if not is_orderly:
            for retry_topic in pop_retry_topics(topic, group):
                retry_queues = self._topics.read_queues(retry_topic)
                yield from (OrderKey(retry_topic, group, n) for n in range(retry_queues))
