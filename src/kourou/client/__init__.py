"""Producers and consumers for any RocketMQ: for asyncio, and sync façades over them.

The clients themselves are names of `kourou`; here are the other public ones: hooks, strategies, selectors,
stores of `@idempotent`, results. `kourou.client.otel` is public too; all other modules may change. Names are
loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kourou.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from kourou.client.core.lag import Lag, lag
    from kourou.client.core.queue_offsets import QueueEnd
    from kourou.client.core.strategies import (
        AllocateAveragely,
        AllocateAveragelyByCircle,
        AllocateByConfig,
        AllocateByMachineRoom,
        AllocateConsistentHash,
        AllocateMachineRoomNearby,
        AllocateStrategy,
    )
    from kourou.client.idempotence.idempotence import business_key, unique_id_key
    from kourou.client.idempotence.idempotence_database import (
        AsyncDbApiStore,
        AsyncSqlAlchemyStore,
        DbApiStore,
        SqlAlchemyStore,
    )
    from kourou.client.idempotence.idempotence_stores import MemoryStore, RedisStore, SqliteStore
    from kourou.client.idempotence.store_protocols import (
        AsyncTransactionalStore,
        Claim,
        IdempotenceStore,
        TransactionalStore,
    )
    from kourou.client.metrics import metrics_text
    from kourou.client.pop.pop_consumer import AsyncPopBatch, AsyncPoppedMessage
    from kourou.client.producer.atomic_batch import AsyncAtomicBatch
    from kourou.client.producer.atomic_publish import AtomicHandle, AtomicPublish, SinkBatch
    from kourou.client.producer.producer_hooks import EndTransactionContext, ProducerHook, SendContext
    from kourou.client.producer.producer_stats import ProducerStats
    from kourou.client.producer.queue_choice import (
        QueueSelector,
        select_by_hash,
        select_by_machine_room,
        select_by_random,
    )
    from kourou.client.producer.queue_processor import AsyncQueueProcessor
    from kourou.client.pull.lite_pull_consumer import LitePullStats
    from kourou.client.pull.pull_schedule import AsyncPullSchedule, PullContext
    from kourou.client.pull.pulls import PullResult, PullStatus
    from kourou.client.pull.queue_reader import QueueChunk
    from kourou.client.push.consumer_stats import ConsumerStats, TopicStats
    from kourou.client.push.handlers import ConsumeHookContext, ConsumerHook
    from kourou.client.sync.atomic_batch import AtomicBatch
    from kourou.client.sync.pop_consumer import PopBatch, PoppedMessage
    from kourou.client.sync.queue_processor import QueueProcessor
    from kourou.client.transactions.transaction_producer import Transaction, TransactionSendResult
    from kourou.protocol.compression import CompressionType
    from kourou.transport.settings import ClientTlsConfig
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "kourou.client.core.lag": ("Lag", "lag"),
            "kourou.client.core.queue_offsets": ("QueueEnd",),
            "kourou.client.core.strategies": (
                "AllocateAveragely",
                "AllocateAveragelyByCircle",
                "AllocateByConfig",
                "AllocateByMachineRoom",
                "AllocateConsistentHash",
                "AllocateMachineRoomNearby",
                "AllocateStrategy",
            ),
            "kourou.client.idempotence.idempotence": ("business_key", "unique_id_key"),
            "kourou.client.idempotence.idempotence_database": (
                "AsyncDbApiStore",
                "AsyncSqlAlchemyStore",
                "DbApiStore",
                "SqlAlchemyStore",
            ),
            "kourou.client.idempotence.idempotence_stores": ("MemoryStore", "RedisStore", "SqliteStore"),
            "kourou.client.idempotence.store_protocols": (
                "AsyncTransactionalStore",
                "Claim",
                "IdempotenceStore",
                "TransactionalStore",
            ),
            "kourou.client.metrics": ("metrics_text",),
            "kourou.client.pop.pop_consumer": ("AsyncPopBatch", "AsyncPoppedMessage"),
            "kourou.client.producer.atomic_batch": ("AsyncAtomicBatch",),
            "kourou.client.producer.atomic_publish": ("AtomicHandle", "AtomicPublish", "SinkBatch"),
            "kourou.client.producer.producer_hooks": ("EndTransactionContext", "ProducerHook", "SendContext"),
            "kourou.client.producer.producer_stats": ("ProducerStats",),
            "kourou.client.producer.queue_choice": (
                "QueueSelector",
                "select_by_hash",
                "select_by_machine_room",
                "select_by_random",
            ),
            "kourou.client.producer.queue_processor": ("AsyncQueueProcessor",),
            "kourou.client.pull.lite_pull_consumer": ("LitePullStats",),
            "kourou.client.pull.pull_schedule": ("AsyncPullSchedule", "PullContext"),
            "kourou.client.pull.pulls": ("PullResult", "PullStatus"),
            "kourou.client.pull.queue_reader": ("QueueChunk",),
            "kourou.client.push.handlers": ("ConsumeHookContext", "ConsumerHook"),
            "kourou.client.push.consumer_stats": ("ConsumerStats", "TopicStats"),
            "kourou.client.sync.pop_consumer": ("PopBatch", "PoppedMessage"),
            "kourou.client.sync.queue_processor": ("QueueProcessor",),
            "kourou.client.sync.atomic_batch": ("AtomicBatch",),
            "kourou.client.transactions.transaction_producer": ("Transaction", "TransactionSendResult"),
            "kourou.protocol.compression": ("CompressionType",),
            "kourou.transport.settings": ("ClientTlsConfig",),
        },
        see_also=("kourou", "kourou.errors", "kourou.client.otel"),
    )

__all__ = [
    "AllocateAveragely",
    "AllocateAveragelyByCircle",
    "AllocateByConfig",
    "AllocateByMachineRoom",
    "AllocateConsistentHash",
    "AllocateMachineRoomNearby",
    "AllocateStrategy",
    "AsyncAtomicBatch",
    "AsyncDbApiStore",
    "AsyncPopBatch",
    "AsyncPoppedMessage",
    "AsyncPullSchedule",
    "AsyncQueueProcessor",
    "AsyncSqlAlchemyStore",
    "AsyncTransactionalStore",
    "AtomicBatch",
    "AtomicHandle",
    "AtomicPublish",
    "Claim",
    "ClientTlsConfig",
    "CompressionType",
    "ConsumeHookContext",
    "ConsumerHook",
    "ConsumerStats",
    "DbApiStore",
    "EndTransactionContext",
    "IdempotenceStore",
    "Lag",
    "LitePullStats",
    "MemoryStore",
    "PopBatch",
    "PoppedMessage",
    "ProducerHook",
    "ProducerStats",
    "PullContext",
    "PullResult",
    "PullStatus",
    "QueueChunk",
    "QueueEnd",
    "QueueProcessor",
    "QueueSelector",
    "RedisStore",
    "SendContext",
    "SinkBatch",
    "SqlAlchemyStore",
    "SqliteStore",
    "TopicStats",
    "Transaction",
    "TransactionSendResult",
    "TransactionalStore",
    "business_key",
    "lag",
    "metrics_text",
    "select_by_hash",
    "select_by_machine_room",
    "select_by_random",
    "unique_id_key",
]
