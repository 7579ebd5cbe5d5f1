"""Sends as a part of a broker: of producers, of consumers that send back, and replies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kourou.broker.part import BrokerPart
from kourou.broker.send import reply_processor, send_back_processor
from kourou.broker.send.send_message_processor import SendMessageProcessor
from kourou.broker.transactions.half_message_cache import HalfMessageCache
from kourou.store.kernel import Kernel
from kourou.transport.connection import BulkHandler
from kourou.transport.request import Processor

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices


class SendPart(BrokerPart):
    """Takes messages; `bulk_handler` is its fast path, None without a kernel."""

    def __init__(self, services: BrokerServices, half_cache: HalfMessageCache, kernel: Kernel | None) -> None:
        self._services = services
        self._sends = SendMessageProcessor(services, half_cache)
        self.bulk_handler: BulkHandler | None = self._sends.bulk_handler(kernel)

    def processors(self) -> Mapping[int, Processor]:
        return {
            **self._sends.processors(),
            **reply_processor.processors(self._services),
            **send_back_processor.processors(self._services),
        }
