"""Which request code goes where: all processors of a broker but those of sends, pulls and transactions, in
one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.broker.admin import config_processor
from kourou.broker.delay import timer_processor
from kourou.broker.groups import (
    client_manage_processor,
    consumer_call_processor,
    consumer_manage_processor,
    lock_processor,
)
from kourou.broker.pull import query_message_processor
from kourou.broker.send import reply_processor, send_back_processor
from kourou.broker.stats import stats_processor
from kourou.broker.tables import group_processor, offset_processor, reset_offset, topic_processor
from kourou.transport.request import Processor

if TYPE_CHECKING:
    from kourou.broker.services import BrokerServices
    from kourou.broker.storage.retention_service import RetentionService

_MODULES = (
    reply_processor,
    send_back_processor,
    timer_processor,
    query_message_processor,
    client_manage_processor,
    consumer_manage_processor,
    lock_processor,
    offset_processor,
    reset_offset,
    topic_processor,
    group_processor,
    stats_processor,
    consumer_call_processor,
)


def broker_processors(services: BrokerServices, retention: RetentionService) -> dict[int, Processor]:
    """Every processor by request code; each code has one."""
    table = config_processor.processors(services, retention)
    for module in _MODULES:
        for code, processor in module.processors(services).items():
            assert code not in table, f"request code {code} has two processors"
            table[code] = processor
    return table
