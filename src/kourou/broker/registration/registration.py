"""Registration: keeps the name servers up to date about this broker.

All topics at the start, again 10 s later and then every `registerNameServerPeriod`; a registration
that failed is retried soon, then less and less often, so that the name server may be started after the
broker. A change is registered at once, and simultaneous changes together. With many topics it is done less
often: where they are created one after the other, that takes about a tenth of the time.
It is the last part of a broker: it registers when all others serve, and unregisters before any of them stops.
Not here: the request itself (out_api.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kourou.broker.part import BrokerPart
from kourou.broker.registration.out_api import BrokerIdentity, BrokerOuterApi
from kourou.clock import Clock
from kourou.config.broker import BrokerConfig
from kourou.transport.addresses import join_address
from kourou.transport.client import RemotingClient
from kourou.transport.tasks import TaskOwner

if TYPE_CHECKING:
    from kourou.broker.registration.out_api import RegisterBrokerResult
    from kourou.broker.replication.reign import Reign
    from kourou.broker.settings import LiveConfig
    from kourou.broker.tables.topics import TopicConfigManager
    from kourou.protocol.bodies.topics import TopicConfig

_log = logging.getLogger(__name__)

_SECOND_ROUND_S: Final = 10.0
_SHORTEST_S: Final = 10.0
_FIRST_RETRY_S: Final = 0.1
_LONGEST_S: Final = 60.0
PAUSE_PER_TOPIC_S: Final = 0.000_030
"""About ten times of what it takes to tell of one topic."""


class ChangeSignal(asyncio.Event):
    """Set when the name servers are to be updated. It exists before the tables whose changes set it."""

    def soon(self, topic: TopicConfig | None = None) -> None:
        """Something has changed: register all of it together at the next moment."""
        # The whole table each time: a name server that missed one change would miss it for half a
        # minute, and 5.x refuses parts before it has received the whole.
        self.set()


class Registration:
    """Registers one broker until stopped. A slave learns where its master is: `master_found` is called with
    the address of its HA port, and its address for requests. With a `reign`, as long as that is good."""

    def __init__(
        self,
        *,
        config: LiveConfig,
        clock: Clock,
        topics: TopicConfigManager,
        out_api: BrokerOuterApi,
        changed: ChangeSignal,
        master_found: Callable[[str | None, str | None], None] | None = None,
        reign: Reign | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._topics = topics
        self._out_api = out_api
        self._changed = changed
        self._master_found = master_found
        self._reign = reign

    @property
    def has_reign(self) -> bool:
        """Whether this is the master of a fail-over set."""
        return self._reign is not None

    async def begin(self, tasks: TaskOwner) -> None:
        """Find the name servers and register for the first time, then go on doing so."""
        await self._out_api.namesrvs.refresh()
        await self._register()
        tasks.start(self._keep_registered(), "register")
        tasks.start(self._refresh_addresses(), "name-server-addresses")

    async def _keep_registered(self) -> None:
        out_api = self._out_api
        wait_s, retry_s = _SECOND_ROUND_S, _FIRST_RETRY_S
        due_s = self._now_s() + wait_s
        while True:
            left_s = max(0.0, due_s - self._now_s())
            is_retry = bool(out_api.failing) and retry_s < left_s
            try:
                async with asyncio.timeout(retry_s if is_retry else left_s):
                    await self._changed.wait()
            except TimeoutError:
                if not is_retry:
                    period_s = self._config.current.register_name_server_period / 1000
                    wait_s = min(max(period_s, _SHORTEST_S), _LONGEST_S)
            # A change may come in the same turn of the loop as the timeout.
            is_retry = is_retry and not self._changed.is_set()
            if not is_retry:
                # Retries do not put the next round off: name servers forget a broker after two minutes.
                due_s = self._now_s() + wait_s
            await self._register(out_api.failing if is_retry else None)
            retry_s = min(retry_s * 2, _LONGEST_S) if out_api.failing else _FIRST_RETRY_S
            await asyncio.sleep(len(self._topics.table) * PAUSE_PER_TOPIC_S)

    def _now_s(self) -> float:
        return self._clock.monotonic_ms() / 1000

    async def _register(self, only: frozenset[str] | None = None) -> None:
        self._changed.clear()
        if not self._out_api.namesrvs.current or (self._reign is not None and not self._reign.is_good()):
            return
        topics = self._topics.wrapper(registered=True)
        self._take_up(await self._out_api.register_all(topics, only=only))

    def _take_up(self, results: list[RegisterBrokerResult]) -> None:
        order_topics: dict[str, str] = {}
        for result in results:
            order_topics.update(result.order_topics)
            if self._master_found is not None and (result.ha_server_addr or result.master_addr):
                self._master_found(result.ha_server_addr, result.master_addr)
        if results:
            self._topics.update_order_config(order_topics)

    async def _refresh_addresses(self) -> None:
        while True:
            await asyncio.sleep(self._config.current.update_name_server_addr_period / 1000)
            await self._out_api.namesrvs.refresh()


class OutboundPart(BrokerPart):
    """The connections to name servers: they outlive whatever registers."""

    def __init__(self, client: RemotingClient) -> None:
        self._client = client

    async def stop(self, timeout_ms: int) -> None:
        await self._client.stop()


class RegistrationPart(BrokerPart):
    """Registers one broker with all name servers."""

    def __init__(
        self, registration: Registration, out_api: BrokerOuterApi, changed: ChangeSignal, tasks: TaskOwner
    ) -> None:
        self._registration = registration
        self._out_api = out_api
        self._changed = changed
        self._tasks = tasks

    async def start(self, tasks: TaskOwner) -> None:
        await self._registration.begin(tasks)

    def config_changed(self, old: BrokerConfig, new: BrokerConfig) -> None:
        if new.broker_permission != old.broker_permission:
            self._changed.soon()
        if new.namesrv_addr != old.namesrv_addr:
            self._tasks.start(self._out_api.namesrvs.refresh(), "name-servers-changed")

    async def stop(self, timeout_ms: int) -> None:
        # Name servers would unregister whichever broker is master of this name by then.
        if self._registration.has_reign:
            await self._out_api.stop_telling()
        else:
            await self._out_api.unregister_all()


def identity_of(config: BrokerConfig, address: str) -> BrokerIdentity:
    """What the name servers know the broker by."""
    return BrokerIdentity(
        cluster_name=config.broker_cluster_name,
        broker_name=config.broker_name,
        broker_id=config.broker_id,
        broker_addr=address,
        ha_server_addr=join_address(config.broker_ip2, config.ha_listen_port or config.listen_port + 1),
    )
