"""Producers and consumers of a broker as a part: heartbeats, members, locks, and clients that have gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kourou.broker.groups.consumers import ConsumerIdsNotifier, ConsumerManager
from kourou.broker.groups.producers import ProducerManager
from kourou.broker.groups.rebalance_lock import RebalanceLockManager, lock_processors
from kourou.broker.part import BrokerPart, Handler, every, processors_of
from kourou.broker.settings import LiveConfig
from kourou.transport.cycles import Cycles
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner

_SCAN_CLIENTS_S: Final = 10.0
_NOTIFY_HELD_S: Final = 15.0


class GroupsPart(BrokerPart):
    """The clients of one broker."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        cycles: Cycles,
        producers: ProducerManager,
        consumers: ConsumerManager,
        locks: RebalanceLockManager,
        notifier: ConsumerIdsNotifier,
        monotonic_ms: Callable[[], int],
        handlers: Sequence[Handler],
    ) -> None:
        self._config = config
        self._cycles = cycles
        self._producers = producers
        self._consumers = consumers
        self._locks = locks
        self._notifier = notifier
        self._monotonic_ms = monotonic_ms
        self._handlers = handlers

    def processors(self) -> Mapping[int, Processor]:
        return {**processors_of(self._handlers), **lock_processors(self._locks)}

    async def start(self, tasks: TaskOwner) -> None:
        tasks.start(every(_NOTIFY_HELD_S, self._notifier.send_held), "notify-members")
        tasks.start(every(_SCAN_CLIENTS_S, self._scan), "scan-clients")

    def _scan(self) -> None:
        self._cycles.open()
        expired_ms, now_ms = self._config.current.channel_expired_timeout, self._monotonic_ms()
        self._producers.scan(now_ms, expired_ms)
        self._consumers.scan(now_ms, expired_ms)
