"""Producers and consumers of a broker as a part: heartbeats, members, locks, and clients that have gone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kourou.broker.groups import (
    client_manage_processor,
    consumer_call_processor,
    consumer_manage_processor,
    lock_processor,
)
from kourou.broker.groups.consumer_ids_notifier import ConsumerIdsNotifier
from kourou.broker.part import BrokerPart, every
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices

_SCAN_CLIENTS_S: Final = 10.0
_NOTIFY_HELD_S: Final = 15.0


class GroupsPart(BrokerPart):
    """The clients of one broker."""

    def __init__(self, services: BrokerServices, notifier: ConsumerIdsNotifier) -> None:
        self._services = services
        self._notifier = notifier

    def processors(self) -> Mapping[int, Processor]:
        services = self._services
        return {
            **client_manage_processor.processors(services),
            **consumer_manage_processor.processors(services),
            **consumer_call_processor.processors(services),
            **lock_processor.processors(services),
        }

    async def start(self, tasks: TaskOwner) -> None:
        tasks.start(every(_NOTIFY_HELD_S, self._notifier.send_held), "notify-members")
        tasks.start(every(_SCAN_CLIENTS_S, self._scan), "scan-clients")

    def _scan(self) -> None:
        services = self._services
        services.cycles.open()
        expired_ms, now_ms = services.config.channel_expired_timeout, services.monotonic_ms()
        services.producers.scan(now_ms, expired_ms)
        services.consumers.scan(now_ms, expired_ms)
