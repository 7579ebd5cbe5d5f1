"""Kourou: RocketMQ in Python. The names of everyday use; more are in `kourou.client` and `kourou.errors`.

They are loaded on first use, so that `import kourou` stays light.
"""

from __future__ import annotations

import atexit
import sys
from typing import TYPE_CHECKING

from kourou.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from kourou.client.core.credentials import Credentials
    from kourou.client.core.transaction_state import TransactionState
    from kourou.client.idempotence.idempotence import idempotent
    from kourou.client.pop.pop_consumer import AsyncPopConsumer
    from kourou.client.producer.producer import AsyncProducer
    from kourou.client.producer.send_result import SendResult, SendStatus
    from kourou.client.pull.lite_pull_consumer import AsyncLitePullConsumer
    from kourou.client.pull.pull_consumer import AsyncPullConsumer
    from kourou.client.pull.queue_reader import QueueReader
    from kourou.client.push.consume_result import ConsumeContext, ConsumeResult
    from kourou.client.push.push_consumer import AsyncPushConsumer
    from kourou.client.sync.lite_pull_consumer import LitePullConsumer
    from kourou.client.sync.pop_consumer import PopConsumer
    from kourou.client.sync.producer import Producer
    from kourou.client.sync.pull_consumer import PullConsumer
    from kourou.client.sync.push_consumer import PushConsumer
    from kourou.client.sync.transaction_producer import TransactionProducer
    from kourou.client.transactions.transaction_producer import AsyncTransactionProducer
    from kourou.embed import Broker
    from kourou.errors import KourouError
    from kourou.namesrv.server import NameServer
    from kourou.protocol.bodies.message_queue import MessageQueue
    from kourou.protocol.message import Message, MessageExt
else:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "kourou.client.core.credentials": ("Credentials",),
            "kourou.client.idempotence.idempotence": ("idempotent",),
            "kourou.client.pop.pop_consumer": ("AsyncPopConsumer",),
            "kourou.client.producer.producer": ("AsyncProducer",),
            "kourou.client.producer.send_result": ("SendResult", "SendStatus"),
            "kourou.client.pull.lite_pull_consumer": ("AsyncLitePullConsumer",),
            "kourou.client.pull.pull_consumer": ("AsyncPullConsumer",),
            "kourou.client.pull.queue_reader": ("QueueReader",),
            "kourou.client.push.consume_result": ("ConsumeContext", "ConsumeResult"),
            "kourou.client.push.push_consumer": ("AsyncPushConsumer",),
            "kourou.client.sync.lite_pull_consumer": ("LitePullConsumer",),
            "kourou.client.sync.pop_consumer": ("PopConsumer",),
            "kourou.client.sync.producer": ("Producer",),
            "kourou.client.sync.pull_consumer": ("PullConsumer",),
            "kourou.client.sync.push_consumer": ("PushConsumer",),
            "kourou.client.sync.transaction_producer": ("TransactionProducer",),
            "kourou.client.transactions.transaction_producer": ("AsyncTransactionProducer",),
            "kourou.client.core.transaction_state": ("TransactionState",),
            "kourou.embed": ("Broker",),
            "kourou.errors": ("KourouError",),
            "kourou.namesrv.server": ("NameServer",),
            "kourou.protocol.bodies.message_queue": ("MessageQueue",),
            "kourou.protocol.message": ("Message", "MessageExt"),
        },
        see_also=("kourou.client", "kourou.testing", "kourou.errors", "kourou.embed"),
    )

__version__ = "0.1.0"
__all__ = [
    "AsyncLitePullConsumer",
    "AsyncPopConsumer",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "AsyncTransactionProducer",
    "Broker",
    "ConsumeContext",
    "ConsumeResult",
    "Credentials",
    "KourouError",
    "LitePullConsumer",
    "Message",
    "MessageExt",
    "MessageQueue",
    "NameServer",
    "PopConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "QueueReader",
    "SendResult",
    "SendStatus",
    "TransactionProducer",
    "TransactionState",
    "idempotent",
    "__version__",
]


def _park_event_loops() -> None:
    if (event_loop := sys.modules.get("kourou.transport.event_loop")) is not None:
        event_loop.park_all()


# Registered here, before anything else: atexit calls it last, after everything that stops clients.
atexit.register(_park_event_loops)
