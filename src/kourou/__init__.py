"""Kourou: RocketMQ in Python.

Names here are loaded on first use, so that `import kourou` stays light.
"""

from __future__ import annotations

import atexit
import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    from kourou.client.core.credentials import Credentials
    from kourou.client.idempotence.idempotence import idempotent
    from kourou.client.producer.producer import AsyncProducer
    from kourou.client.producer.send_result import SendResult, SendStatus
    from kourou.client.pull.lite_pull_consumer import AsyncLitePullConsumer
    from kourou.client.pull.pull_consumer import AsyncPullConsumer
    from kourou.client.pull.queue_reader import QueueReader
    from kourou.client.push.consume_result import ConsumeContext, ConsumeResult
    from kourou.client.push.push_consumer import AsyncPushConsumer
    from kourou.client.sync.lite_pull_consumer import LitePullConsumer
    from kourou.client.sync.producer import Producer
    from kourou.client.sync.pull_consumer import PullConsumer
    from kourou.client.sync.push_consumer import PushConsumer
    from kourou.client.sync.transaction_producer import TransactionProducer
    from kourou.client.transactions.transaction_producer import AsyncTransactionProducer
    from kourou.client.transactions.transaction_state import TransactionState
    from kourou.embed import Broker
    from kourou.errors import KourouError
    from kourou.namesrv.server import NameServer
    from kourou.protocol.bodies.message_queue import MessageQueue
    from kourou.protocol.message import Message, MessageExt

__version__ = "0.1.0"
__all__ = [
    "AsyncLitePullConsumer",
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

_HOMES = {
    "AsyncLitePullConsumer": "kourou.client.pull.lite_pull_consumer",
    "AsyncProducer": "kourou.client.producer.producer",
    "AsyncPullConsumer": "kourou.client.pull.pull_consumer",
    "AsyncPushConsumer": "kourou.client.push.push_consumer",
    "AsyncTransactionProducer": "kourou.client.transactions.transaction_producer",
    "Broker": "kourou.embed",
    "ConsumeContext": "kourou.client.push.consume_result",
    "ConsumeResult": "kourou.client.push.consume_result",
    "Credentials": "kourou.client.core.credentials",
    "KourouError": "kourou.errors",
    "LitePullConsumer": "kourou.client.sync.lite_pull_consumer",
    "Message": "kourou.protocol.message",
    "MessageExt": "kourou.protocol.message",
    "MessageQueue": "kourou.protocol.bodies.message_queue",
    "NameServer": "kourou.namesrv.server",
    "Producer": "kourou.client.sync.producer",
    "PullConsumer": "kourou.client.sync.pull_consumer",
    "PushConsumer": "kourou.client.sync.push_consumer",
    "QueueReader": "kourou.client.pull.queue_reader",
    "SendResult": "kourou.client.producer.send_result",
    "SendStatus": "kourou.client.producer.send_result",
    "TransactionProducer": "kourou.client.sync.transaction_producer",
    "TransactionState": "kourou.client.transactions.transaction_state",
    "idempotent": "kourou.client.idempotence.idempotence",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise _no_attribute(name, sys._getframe(1))
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


_MODULES = ("kourou.testing", "kourou.errors", "kourou.embed")


def _no_attribute(name: str, caller: FrameType) -> Exception:
    """The error for a name that does not exist. `from kourou import NAME` would replace an AttributeError by
    an ImportError without the hint, so it gets an ImportError here."""
    from opcode import opname

    if opname[caller.f_code.co_code[caller.f_lasti]] == "IMPORT_FROM":
        return ImportError(f"cannot import name '{name}' from 'kourou'{_hint(name)}", name=name)
    # Python itself looks for such names, and for a submodule before it loads that: no hint is seen.
    is_probe = name.startswith("__") or caller.f_globals.get("__name__") == "importlib._bootstrap"
    return AttributeError(f"module 'kourou' has no attribute '{name}'{'' if is_probe else _hint(name)}")


def _hint(name: str) -> str:
    from kourou.wording import suggestion

    for module in _MODULES:
        found = import_module(module)
        if name in getattr(found, "__all__", dir(found)):
            return f"; it is in {module}: from {module} import {name}"
    if longer := [known for known in __all__ if known.endswith(name) and not known.startswith("Async")]:
        return f"; did you mean {' or '.join(longer)}?"
    return suggestion(name, __all__) or f"; it offers {', '.join(__all__)}"


def _stand_still() -> None:
    if (event_loop := sys.modules.get("kourou.transport.event_loop")) is not None:
        event_loop.park_all()


# Here, and not where it is needed: what is registered first is called last, after all that stops clients.
atexit.register(_stand_still)
