"""What every consumer says of itself when a tool asks for its state (307), in the names of Java's clients."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Sequence

from kourou.protocol.bodies import ConsumeType
from kourou.protocol.versions import CURRENT_VERSION, version_desc


def running_properties(
    *,
    group: str,
    consume_type: ConsumeType,
    namesrv_addresses: Sequence[str],
    started_ms: int,
    is_orderly: bool = False,
    threads: int = 0,
) -> dict[str, str]:
    """The entries of a consumer; mqadmin fails without some of the PROP_ ones."""
    return {
        "consumerGroup": group,
        "PROP_NAMESERVER_ADDR": "".join(f"{address};" for address in namesrv_addresses),
        "PROP_CONSUME_TYPE": consume_type.value,
        "PROP_CLIENT_VERSION": version_desc(CURRENT_VERSION),
        "PROP_CONSUMER_START_TIMESTAMP": str(started_ms),
        "PROP_CONSUMEORDERLY": str(is_orderly).lower(),
        "PROP_THREADPOOL_CORE_SIZE": str(threads),
    }


def thread_stacks() -> str:
    """The stack of every thread, like Java's `jstack`."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )
