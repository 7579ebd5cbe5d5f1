"""Services: the objects behind the RPCs of one proxy, made once, and their handlers by path.

A service is a class of `service/` with `handlers()`; it takes the objects that it uses as constructor
arguments. Not here: the port (http2/), the ways to brokers (links/), which assembly.py makes.
"""

from __future__ import annotations

from typing import Final

from kourou.clock import Clock
from kourou.proxy.access.grpc_login import ProxyAccess
from kourou.proxy.call_latency import CallLatency
from kourou.proxy.clients.client_settings import ClientPolicy
from kourou.proxy.clients.held_messages import HeldMessages
from kourou.proxy.clients.registry import EXPIRY_S, ClientRegistry
from kourou.proxy.clients.renewals import Renewals
from kourou.proxy.http2.call import Handler
from kourou.proxy.links.broker_link import Brokers
from kourou.proxy.messages.limits import MessageLimits
from kourou.proxy.service.acks import Acks, Handles
from kourou.proxy.service.broker_requests import BrokerRequests
from kourou.proxy.service.dead_letters import DeadLetters, Leftovers
from kourou.proxy.service.handlers import HandlerMaker, path_of
from kourou.proxy.service.heartbeats import Heartbeats, Registrations
from kourou.proxy.service.pulls import Pulls
from kourou.proxy.service.recalls import Recalls
from kourou.proxy.service.receives import Receives
from kourou.proxy.service.routes import Routes
from kourou.proxy.service.sends import Sends
from kourou.proxy.service.telemetry import Telemetry
from kourou.proxy.service.transactions import Transactions
from kourou.transport.tasks import TaskOwner

_TELEMETRY: Final = path_of("Telemetry")
STREAMS: Final = frozenset({_TELEMETRY})
"""The paths of calls with a client stream."""


class Services:
    """The services of one proxy."""

    def __init__(
        self,
        brokers: Brokers,
        access: ProxyAccess,
        tasks: TaskOwner,
        *,
        policy: ClientPolicy | None = None,
        limits: MessageLimits | None = None,
        client_expiry_s: float = EXPIRY_S,
        meter: CallLatency | None = None,
        clock: Clock | None = None,
    ) -> None:
        policy, limits, clock = policy or ClientPolicy(), limits or MessageLimits(), clock or Clock()
        self.clients = ClientRegistry(brokers, access, tasks, expiry_s=client_expiry_s)
        self.held = HeldMessages()
        self.renewals = Renewals(self.held, tasks)
        registrations = Registrations(brokers, tasks)
        self.clients.on_connect = registrations.register_at
        self.clients.on_leave.append(self.renewals.give_back_all)
        self.clients.on_stop.append(self.renewals.give_back_renewed)
        self._telemetry = Telemetry(self.clients, brokers, access, registrations, tasks, policy)
        handles = Handles(self.held, clock.wall_ms)
        leftovers = Leftovers()
        transactions = Transactions()
        self.clients.on_request = BrokerRequests(brokers, transactions, tasks).handle
        make = HandlerMaker(self.clients, tasks, meter)
        self.handlers: dict[str, Handler] = {
            _TELEMETRY: self._telemetry.telemetry,
            **Routes(brokers, access).handlers(make),
            **Sends(brokers, transactions, limits, tasks, now_ms=clock.wall_ms).handlers(make),
            **transactions.handlers(make),
            **Recalls(brokers, limits).handlers(make),
            **Heartbeats(self.clients, registrations).handlers(make),
            **Receives(brokers, self.held, leftovers, policy, tasks, clock.wall_ns).handlers(make),
            **Acks(handles).handlers(make),
            **DeadLetters(handles).handlers(make),
            **Pulls().handlers(make),
        }

    def start(self) -> None:
        """Begin what runs periodically."""
        self._telemetry.start()
        self.renewals.start()

    async def stop(self) -> None:
        """End it: what clients could not finish is given back, and the links of all are closed."""
        await self.clients.stop()
