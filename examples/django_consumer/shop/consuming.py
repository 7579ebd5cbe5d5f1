"""How a Django command consumes. Independent of Django: the command passes the function for a message."""

from __future__ import annotations

from collections.abc import Callable

from kourou import MessageExt, PushConsumer

GROUP = "site-billing"


def with_fresh_connections(
    handler: Callable[[MessageExt], None], close_old_connections: Callable[[], None]
) -> Callable[[MessageExt], None]:
    """Do for each message what Django does for each request: drop database connections that are too old
    or broken. Handlers run in threads of the consumer, and each thread has its own connections."""

    def handle(message: MessageExt) -> None:
        close_old_connections()
        try:
            handler(message)
        finally:
            close_old_connections()

    return handle


def consume(namesrv: str, topic: str, handler: Callable[[MessageExt], None], *, concurrency: int) -> None:
    """Consume until Ctrl-C or SIGTERM; running handlers finish first."""
    with PushConsumer(GROUP, namesrv=namesrv, concurrency=concurrency, consume_from="first") as consumer:
        consumer.subscribe(topic, handler)
        consumer.run()
