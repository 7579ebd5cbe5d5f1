"""Services: the objects behind the RPCs of one proxy, made once, and their handlers by path.

A service is a class of `service/` with `handlers()`; it takes the objects that it uses as constructor
arguments. Not here: the port (http2/), the ways to brokers (links/), which assembly.py makes.
"""

from __future__ import annotations

from typing import Final

from kourou.proxy.access.grpc_login import ProxyAccess
from kourou.proxy.http2.call import Handler
from kourou.proxy.links.broker_link import Brokers
from kourou.transport.tasks import TaskOwner

SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
STREAMS: Final = frozenset({f"{SERVICE}Telemetry"})
"""The paths of calls with a client stream."""


class Services:
    """The services of one proxy."""

    def __init__(self, brokers: Brokers, access: ProxyAccess, tasks: TaskOwner) -> None:
        self.handlers: dict[str, Handler] = {}

    def start(self) -> None:
        """Begin what runs periodically."""

    async def stop(self) -> None:
        """End it; the links of all clients are closed."""
