"""OverflowService: keeps the backlogs of topics with an overflow policy within their limits.

It measures a topic when so much has come since the last measurement that a limit may be reached, at most
every 10 ms, and once a second. So a limit is exceeded by what comes in 10 ms and one commit cycle; with a
policy that drops also by what comes while the floors are written, and for `dead-letter` while the copies are
stored. While it rejects sends it measures every 100 ms, and takes them again at 90 % of the limit.

Sends are rejected by a `MessageCheck` of the admission, which is registered only while a topic is over its
limit and sees its messages only: the fast path stays open for all other topics, and for the topic itself
while it is within its limits. What the broker itself puts (delayed messages, committed transactions and
atomic publishes, retries) was acknowledged before, and is never rejected. Without a policy there is no hook
and no timer. On slaves nothing is decided: floors follow the master.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kourou.broker.admission import MessageCheck
from kourou.broker.overflow.backlog_meter import BacklogMeter
from kourou.broker.overflow.topic_watch import TopicWatch
from kourou.errors import ProtocolError, RequestError, StorageError
from kourou.protocol.codes import ResponseCode
from kourou.protocol.over_limit import WAIT_FIELD, Limited, OverLimit
from kourou.protocol.overflow_rule import OverflowRule
from kourou.store.queue.cq_unit import UNIT_BYTES

if TYPE_CHECKING:
    from kourou.broker.admission import Admission
    from kourou.broker.hooks import SendContext
    from kourou.broker.overflow.backlog_meter import GroupBacklog
    from kourou.broker.overflow.drops import Drops
    from kourou.broker.settings import LiveConfig
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.tables.live_groups import LiveGroups
    from kourou.broker.tables.offsets import ConsumerOffsetManager
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.protocol.bodies.topics import TopicConfig
    from kourou.store.dispatcher import Dispatcher
    from kourou.store.log.commit_log import CommitLog
    from kourou.store.log.put_batch import GrownQueue

_log = logging.getLogger(__name__)

_SHORTEST_S: Final = 0.01
_WHILE_OVER_S: Final = 0.1
_UPKEEP_S: Final = 1.0
_CALM_MS: Final = 60_000
"""Drops that are further apart are not one overflow: its end is logged."""
_RETRY_MS: Final = 1_000


class OverflowService:
    """The policies of one broker. `watches` are the topics that have one."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        live_groups: LiveGroups,
        drops: Drops,
        new_meter: Callable[[str], BacklogMeter],
        admission: Admission,
        dispatcher: Dispatcher,
        log: CommitLog,
        disk: DiskThreads,
        now_ms: Callable[[], int],
        monotonic_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._topics = topics
        self._offsets = offsets
        self._floors = offsets.floors
        self._live_groups = live_groups
        self._drops = drops
        self._new_meter = new_meter
        self._admission = admission
        self._dispatcher = dispatcher
        self._commit_log = log
        self._disk = disk
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self.watches: dict[str, TopicWatch] = {}
        self._rejecting: frozenset[str] = frozenset()
        self._check = MessageCheck(self._reject, lambda topic: topic in self._rejecting)
        self._due: set[TopicWatch] = set()
        self._wake = asyncio.Event()

    # -- which topics ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Follow the topics and the floors from now on."""
        self._topics.watchers.append(self._topic_changed)
        self._floors.on_change = self._wake.set
        self._offsets.on_larger_backlog = self._backlog_grown
        self._topic_changed(None)

    def _topic_changed(self, config: TopicConfig | None) -> None:
        """Have the watches fit the attributes of a topic, or of all."""
        had_watches = bool(self.watches)
        if config is not None:
            if config.attributes or config.topic_name in self.watches:
                self._set_rule(config.topic_name, _rule_of(config))
        else:
            for topic in self.watches.keys() - self._topics.table.keys():
                self._set_rule(topic, None)
            for each in self._topics.table.values():
                if each.attributes or each.topic_name in self.watches:
                    self._set_rule(each.topic_name, _rule_of(each))
        self._fit_check()
        if bool(self.watches) != had_watches:
            hooks = self._dispatcher.on_publish
            hooks.remove(self._published) if had_watches else hooks.append(self._published)

    def _set_rule(self, topic: str, rule: OverflowRule | None) -> None:
        watch = self.watches.get(topic)
        if rule is None or self._config.current.is_slave:
            if watch is not None:
                _log.info("topic %s has no overflow policy any more; %s", topic, _numbers(watch))
                del self.watches[topic]
                self._due.discard(watch)
            return
        if watch is None or watch.rule != rule:
            _log.info("topic %s has an overflow policy: %s", topic, rule)
            rejected = 0 if watch is None else watch.rejected
            new = TopicWatch(topic, rule, self._new_meter(topic), rejected=rejected)
            self.watches[topic] = new
            self._due.add(new)
            self._wake.set()

    # -- when ------------------------------------------------------------------------------------

    def _backlog_grown(self, topic: str) -> None:
        watch = self.watches.get(topic)
        if watch is not None:
            self._due.add(watch)
            self._wake.set()

    def _published(self, grown: Sequence[GrownQueue], _: int, __: int) -> None:
        watches, end_phy_offset = self.watches, self._dispatcher.dispatched_phy_offset
        for queue, _, units in grown:
            watch = watches.get(queue.topic)
            if watch is not None:
                watch.arrived += len(units) // UNIT_BYTES
                if watch.is_due(end_phy_offset) and watch not in self._due:
                    self._due.add(watch)
                    self._wake.set()

    async def run(self) -> None:
        """Measure and decide, until cancelled."""
        next_upkeep_ms = self._monotonic_ms()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s()):
                    await self._wake.wait()
            self._wake.clear()
            await self._write_floors()
            now_ms = self._monotonic_ms()
            if now_ms >= next_upkeep_ms:
                next_upkeep_ms = now_ms + int(_UPKEEP_S * 1000)
                self._due.update(self.watches.values())
            self._due.update(watch for watch in self.watches.values() if watch.gate.is_closed)
            await self.evaluate_due()
            await asyncio.sleep(_SHORTEST_S)

    def _pause_s(self) -> float | None:
        if not self.watches:
            return _UPKEEP_S if self._floors.is_dirty else None
        return _WHILE_OVER_S if self._rejecting else _UPKEEP_S

    async def evaluate_due(self) -> None:
        """Measure the topics that are due."""
        due, self._due = self._due, set()
        for watch in due:
            if self.watches.get(watch.topic) is watch:
                await self._evaluate(watch)

    async def evaluate_all(self) -> None:
        """Measure every topic."""
        self._due.update(self.watches.values())
        await self.evaluate_due()

    async def _evaluate(self, watch: TopicWatch) -> None:
        if self._offsets.may_commit is not None and not self._offsets.may_commit():
            return  # deposed: another broker decides
        groups = self._live_groups.of_topic(watch.topic)
        # What comes while it is measured counts for the next time.
        log_end, watch.arrived = self._commit_log.max_phy_offset, 0
        try:
            backlogs = await watch.meter.measure(groups, watch.rule)
        except (OSError, StorageError) as error:
            self._note_problem(watch, error)
            return
        watch.measured(backlogs, log_end)
        if self.watches.get(watch.topic) is not watch:
            return
        if watch.rejects:
            watch.problem = ""
            self._update_gate(watch)
        else:
            await self._drop(watch, backlogs)

    # -- rejecting -------------------------------------------------------------------------------

    def _update_gate(self, watch: TopicWatch) -> None:
        if not watch.gate.update(watch.share):
            return
        if watch.gate.is_closed:
            watch.over_since_ms, watch.rejected_before = self._now_ms(), watch.rejected
            watch.wait.begin(watch.share, self._monotonic_ms())
            _log.warning("topic %s is over its limit, sends are rejected: %s", watch.topic, watch.describe())
        else:
            _log.info("topic %s takes sends again: %s; %s", watch.topic, watch.describe(), _numbers(watch))
            watch.over_since_ms = None
        self._fit_check()

    def _fit_check(self) -> None:
        """Have the admission see the messages of the topics that are over their limit, and no others."""
        rejecting = frozenset(topic for topic, watch in self.watches.items() if watch.gate.is_closed)
        if rejecting == self._rejecting:
            return
        before, self._rejecting = self._rejecting, rejecting
        if before and rejecting:
            self._admission.invalidate()
        elif rejecting:
            self._admission.add(self._check)
        else:
            self._admission.remove(self._check)

    def _reject(self, context: SendContext) -> None:
        watch = self.watches.get(context.topic)
        if watch is None or not watch.gate.is_closed:
            return
        watch.rejected += 1
        wait_ms = watch.wait.wait_ms(watch.share, self._monotonic_ms())
        over = OverLimit(Limited.TOPIC, watch.topic, watch.describe(), wait_ms)
        # Stock clients of RocketMQ 5 try another broker, those of 4 report it.
        raise RequestError(ResponseCode.SYSTEM_BUSY, over.remark(), {WAIT_FIELD: str(wait_ms)})

    # -- dropping --------------------------------------------------------------------------------

    async def _drop(self, watch: TopicWatch, backlogs: list[GroupBacklog]) -> None:
        now_ms = self._monotonic_ms()
        if watch.problem and now_ms < watch.retry_ms:
            return
        try:
            for backlog in backlogs:
                dropped = await self._drops.shrink(watch.topic, watch.rule, backlog)
                if dropped.messages:
                    self._note_drop(watch, backlog, dropped.messages)
                    self._due.add(watch)  # there may be more than a round takes
                    self._wake.set()
        except (OSError, StorageError) as error:
            self._note_problem(watch, error)
            return
        watch.problem = ""
        if watch.over_since_ms is not None and now_ms - watch.last_drop_ms >= _CALM_MS:
            _log.info(
                "topic %s is within its limits again: %s; %s", watch.topic, watch.describe(), _numbers(watch)
            )
            watch.over_since_ms = None

    def _note_problem(self, watch: TopicWatch, error: Exception) -> None:
        if not watch.problem:
            _log.error("topic %s: the overflow policy cannot be applied, retrying: %s", watch.topic, error)
        watch.problem, watch.retry_ms = str(error), self._monotonic_ms() + _RETRY_MS

    def _note_drop(self, watch: TopicWatch, backlog: GroupBacklog, messages: int) -> None:
        if watch.over_since_ms is None:
            watch.over_since_ms, watch.dropped = self._now_ms(), 0
            _log.warning(
                "topic %s is over its limit, %s: %s", watch.topic, watch.rule.policy, watch.describe()
            )
        watch.dropped += messages
        watch.last_drop_ms = self._monotonic_ms()
        _log.debug("%s@%s: %s of %d messages", watch.topic, backlog.group, watch.rule.policy, messages)

    # -- the floors ------------------------------------------------------------------------------

    async def _write_floors(self) -> None:
        """Write floors that were removed, taken back, or copied from the master."""
        if not self._floors.is_dirty:
            return
        try:
            async with self._floors.writing:
                await self._disk.run_steps(self._floors.persist_steps())
        except OSError as error:
            _log.error("%s cannot be written: %s", self._floors.path, error.strerror or error)

    def dropped_by_topic(self) -> Iterator[tuple[str, str, int, int]]:
        """Topic, group, and how many messages were dropped and dead-lettered ever."""
        for key, entry in self._floors.table.items():
            topic, _, group = key.partition("@")
            yield topic, group, entry.dropped, entry.dead_lettered


def _rule_of(config: TopicConfig) -> OverflowRule | None:
    try:
        return OverflowRule.of(config.attributes)
    except ProtocolError as error:
        # An update would have been refused: the file was written by another program.
        _log.error("topic %s has no overflow policy, its attributes are wrong: %s", config.topic_name, error)
        return None


def _numbers(watch: TopicWatch) -> str:
    if watch.rejects:
        return f"{watch.rejected - watch.rejected_before} sends were rejected"
    return f"{watch.dropped} messages by {watch.rule.policy}"
