"""OverflowPart: overflow policies as a part of a broker, and the request for their state."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kourou.broker.part import BrokerPart
from kourou.protocol.bodies.overflow import OverflowCount, OverflowState, TopicOverflow
from kourou.protocol.codes import RequestCode

if TYPE_CHECKING:
    from kourou.broker.overflow.overflow_service import OverflowService
    from kourou.broker.overflow.topic_watch import TopicWatch
    from kourou.broker.storage.disk_threads import DiskThreads
    from kourou.broker.tables.overflow_floors import OverflowFloors
    from kourou.store.log.log_watch import LogWatch
    from kourou.transport.request import Processor, Request
    from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)


class OverflowPart(BrokerPart):
    """The policies of one broker, from its start to its stop."""

    def __init__(
        self, *, service: OverflowService, floors: OverflowFloors, log_watch: LogWatch, disk: DiskThreads
    ) -> None:
        self.service = service
        self._floors = floors
        self._log_watch = log_watch
        self._disk = disk

    def processors(self) -> Mapping[int, Processor]:
        return {RequestCode.GET_KOUROU_OVERFLOW: self.get_state}

    def recover(self) -> None:
        self._floors.load()

    async def start(self, tasks: TaskOwner) -> None:
        self.service.begin()
        # Before the first send: what was rejected before a restart is rejected after it.
        await self.service.evaluate_all()
        tasks.start(self.service.run(), "overflow")

    async def stop(self, timeout_ms: int) -> None:
        if self._log_watch.is_displaced or not self._floors.is_dirty:
            return
        try:
            async with self._floors.writing:
                await self._disk.run_steps(self._floors.persist_steps())
        except OSError as error:
            _log.error("%s cannot be written: %s", self._floors.path, error.strerror or error)

    def get_state(self, request: Request) -> None:
        """GET_KOUROU_OVERFLOW: the topics with a policy, and what was dropped."""
        counts: dict[str, list[OverflowCount]] = {}
        for topic, group, dropped, dead_lettered in self.service.dropped_by_topic():
            counts.setdefault(topic, []).append(OverflowCount(group, dropped, dead_lettered))
        topics = [_state(watch, counts.pop(topic, [])) for topic, watch in self.service.watches.items()]
        topics += [TopicOverflow(topic=topic, groups=groups) for topic, groups in counts.items()]
        request.reply(body=OverflowState(topics).encode())


def _state(watch: TopicWatch, groups: list[OverflowCount]) -> TopicOverflow:
    return TopicOverflow(
        topic=watch.topic,
        policy=watch.rule.policy.value,
        max_messages=watch.rule.messages,
        max_bytes=watch.rule.size_bytes,
        max_age_ms=watch.rule.age_ms,
        share=round(watch.share, 4),
        slowest_group=watch.group,
        messages=watch.size.messages,
        size_bytes=None if watch.rule.size_bytes is None else watch.size.size_bytes,
        age_ms=None if watch.rule.age_ms is None else watch.size.age_ms,
        over_since_ms=watch.over_since_ms,
        rejected=watch.rejected,
        problem=watch.problem,
        groups=groups,
    )
