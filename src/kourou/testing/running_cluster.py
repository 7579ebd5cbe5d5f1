"""RunningCluster: the servers behind a LocalCluster, each with its own loop and thread.

Its methods run on the name server's loop, which a held broker does not block.
Not here: threads that call and wait (local_cluster.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kourou.access.inner_keys import inner_keys
from kourou.argument_types import check_int
from kourou.broker.tables.name_checks import check_topic_name
from kourou.broker.tables.topics import check_queue_nums
from kourou.config import BrokerConfig, NamesrvConfig
from kourou.config.broker import MASTER_ID
from kourou.config.host import LOOPBACK
from kourou.config.keys import attribute_name
from kourou.embed import Broker, BrokerHooks, NameServer
from kourou.errors import KourouError
from kourou.protocol.bodies import TopicConfig
from kourou.protocol.codes import PermName
from kourou.protocol.message import MessageExt
from kourou.protocol.names import is_inner_topic
from kourou.standalone.accounts import StandaloneAccounts
from kourou.standalone.following import wait_followed
from kourou.testing.cluster import broker_config
from kourou.testing.errors import ClusterStateError, NotConsumedError, UnknownTopicError
from kourou.testing.group_lag import GroupLag, broker_lag, broker_topics, merged
from kourou.testing.loop_thread import LoopThread
from kourou.testing.stored_messages import broker_messages, in_store_order

if TYPE_CHECKING:
    from kourou.proxy.assembly import Proxy

_LOOK_S: Final = 0.02
_ROUTE_TIMEOUT_S: Final = 10.0
_STOP_TIMEOUT_MS: Final = 2_000
_FOLLOW_TIMEOUT_S: Final = 30.0


def _attributes(keys: Mapping[str, str]) -> dict[str, Any]:
    """Attributes of a configuration, from the keys of a file; no value is a number."""
    return {attribute_name(key): text == "true" or text for key, text in keys.items()}


def _proxy(namesrv: str, accounts: StandaloneAccounts | None) -> Proxy:
    """A proxy in front of the brokers, whose loops are other ones: by TCP."""
    from kourou.embed import GrpcServerConfig, Proxy, ProxySettings
    from kourou.proxy.settings import SELF_MADE_TLS

    return Proxy(
        ProxySettings(
            grpc=GrpcServerConfig(host=LOOPBACK, port=0, tls=SELF_MADE_TLS),
            namesrv=namesrv,
            own_keys=None if accounts is None else accounts.inner,
            follows_users=accounts is not None,
        )
    )


class BrokerPlace:
    """One broker of the cluster, which may be stopped and started again at the same address."""

    def __init__(self, config: BrokerConfig, hooks: BrokerHooks | None) -> None:
        self.config = config
        self._hooks = hooks
        self._watch: asyncio.Task[None] | None = None
        self.thread = LoopThread(f"kourou-{self.name}")
        self.broker: Broker | None = None
        self.failure: BaseException | None = None

    @property
    def name(self) -> str:
        """Its name; `broker-a-s1` of the first slave of `broker-a`."""
        config = self.config
        return f"{config.broker_name}-s{config.broker_id}" if config.is_slave else config.broker_name

    async def start(self) -> None:
        """Start the broker; called on its own loop."""
        broker = Broker(self.config, hooks=self._hooks)
        await broker.start()
        # The same port next time: clients and message ids contain the address.
        self.config = replace(self.config, listen_port=broker.port, fast_listen_port=0)
        self.broker = broker
        self._watch = asyncio.create_task(self._wait_failed(broker), name=f"watch-{self.name}")

    async def _wait_failed(self, broker: Broker) -> None:
        try:
            await broker.wait_failed()
        except Exception as error:
            self.failure = error

    async def stop(self) -> None:
        """Stop the broker cleanly; called on its own loop."""
        broker, self.broker = self.broker, None
        if broker is None:
            return
        try:
            await broker.stop(_STOP_TIMEOUT_MS)
        finally:
            if self._watch is not None:
                self._watch.cancel()
                await asyncio.gather(self._watch, return_exceptions=True)

    def running(self) -> Broker:
        """The broker, if it is available; ClusterStateError or KourouError if not."""
        if self.failure is not None:
            raise KourouError(f"{self.name} has failed: {self.failure!r}") from self.failure
        if self.thread.is_held:
            raise ClusterStateError(f"{self.name} is paused; resume() it first")
        if self.broker is None:
            raise ClusterStateError(f"{self.name} is stopped; start_broker() it first")
        return self.broker


class RunningCluster:
    """A name server and its brokers. Created and closed on the name server's loop."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self._changing = asyncio.Lock()
        self._namesrv: NameServer
        self.proxy: Proxy | None = None
        self.masters: list[BrokerPlace] = []
        self.slaves: list[list[BrokerPlace]] = []
        """Of each master."""

    @property
    def places(self) -> list[BrokerPlace]:
        """All brokers, masters first."""
        return [*self.masters, *(slave for slaves in self.slaves for slave in slaves)]

    async def open(
        self,
        folder: Path,
        brokers: int,
        slaves: int,
        hooks: BrokerHooks | None,
        accounts: StandaloneAccounts | None = None,
        *,
        has_grpc: bool = False,
        **settings: Any,
    ) -> str:
        """Start everything; returns the name server's address. After a failure nothing is left running."""
        try:
            of_namesrv: dict[str, Any] = {}
            if accounts is not None:
                of_namesrv = _attributes(accounts.namesrv_keys)
                of_namesrv["rocketmq_home"] = str(folder)
                of_namesrv["access_users_folder"] = str(folder / "broker-a" / "config")
                settings = {**_attributes(accounts.broker_keys), **settings}
            namesrv = NameServer(NamesrvConfig(bind_address=LOOPBACK, listen_port=0, **of_namesrv))
            self._namesrv = await self._stack.enter_async_context(namesrv)

            def place(index: int, broker_id: int = MASTER_ID) -> BrokerPlace:
                config = broker_config(folder, index, namesrv.address, broker_id=broker_id, **settings)
                return self._opened(BrokerPlace(config, hooks))

            self.masters = [place(index) for index in range(brokers)]
            self.slaves = [[place(index, 1 + each) for each in range(slaves)] for index in range(brokers)]
            await self._all_done(place.thread.run(place.start) for place in self.places)
            await self._wait_followed(slaves)
            if has_grpc:
                self.proxy = await self._stack.enter_async_context(_proxy(namesrv.address, accounts))
            return namesrv.address
        except BaseException:
            await self.close()
            raise

    def _opened(self, place: BrokerPlace) -> BrokerPlace:
        place.thread.start()
        self._stack.callback(place.thread.stop)
        return place

    async def _wait_followed(self, slaves: int) -> None:
        if not slaves:
            return
        addresses = [place.running().address for place in self.masters]
        keys = inner_keys(self.masters[0].config)
        if left := await wait_followed(addresses, slaves, _FOLLOW_TIMEOUT_S, keys):
            raise KourouError(
                f"not every slave of {', '.join(left)} follows it after {_FOLLOW_TIMEOUT_S:g} s"
            )

    async def close(self) -> None:
        """Stop everything, brokers first. Raises the error of a failed broker."""
        async with self._changing:
            try:
                if self.proxy is not None:
                    await self.proxy.stop(_STOP_TIMEOUT_MS)
                # Slaves first: they would look for their masters.
                for places in (chain.from_iterable(self.slaves), self.masters):
                    await self._all_done(place.thread.run(place.stop) for place in places)
            finally:
                await self._stack.aclose()
        for place in self.places:
            if place.failure is not None:
                raise KourouError(f"{place.name} has failed: {place.failure!r}") from place.failure

    async def _all_done(self, works: Iterable[Awaitable[None]]) -> None:
        """Wait for all of them, also when one fails."""
        for result in await asyncio.gather(*works, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    def _running(self) -> list[tuple[BrokerPlace, Broker]]:
        return [(place, place.running()) for place in self.masters]

    # -- stopping and starting brokers -------------------------------------------------------------

    def place(self, index: int, broker_id: int = MASTER_ID) -> BrokerPlace:
        """The master with that index, or its slave of that id."""
        if not 0 <= index < len(self.masters):
            raise ClusterStateError(f"there is no broker {index}: indexes are 0 to {len(self.masters) - 1}")
        if broker_id == MASTER_ID:
            return self.masters[index]
        slaves = self.slaves[index]
        if not 0 < broker_id <= len(slaves):
            ids = f"ids are 0, the master's, to {len(slaves)}"
            raise ClusterStateError(f"{self.masters[index].name} has no broker_id {broker_id}: {ids}")
        return slaves[broker_id - 1]

    async def stop_broker(self, index: int, broker_id: int) -> None:
        place = self.place(index, broker_id)
        async with self._changing:
            place.running()
            await place.thread.run(place.stop)

    async def start_broker(self, index: int, broker_id: int) -> None:
        place = self.place(index, broker_id)
        async with self._changing:
            if place.broker is not None:
                raise ClusterStateError(f"{place.name} is running already")
            if place.thread.is_held:
                raise ClusterStateError(f"{place.name} is paused; resume() it first")
            await place.thread.run(place.start)

    # -- topics and messages ---------------------------------------------------------------------------

    async def create_topic(self, name: str, queues: int) -> None:
        """Create or change a topic on every broker. On return clients find it."""
        check_topic_name(name)
        check_int("queues", queues, at_least=1)
        check_queue_nums(name, queues)
        config = TopicConfig(
            topic_name=name,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=int(PermName.READ | PermName.WRITE),
        )

        async def make(broker: Broker) -> None:
            broker.services.topics.update(config)

        running = self._running()
        await asyncio.gather(*(place.thread.run(partial(make, broker)) for place, broker in running))
        async with asyncio.timeout(_ROUTE_TIMEOUT_S):
            while not self._has_route(name, queues):  # noqa: ASYNC110 (the name server has no notification)
                await asyncio.sleep(0.001)

    def _has_route(self, topic: str, queues: int) -> bool:
        route = self._namesrv.state.views.route(topic)
        found = [] if route is None else route.queue_datas
        return sum(data.write_queue_nums == queues for data in found) == len(self.masters)

    async def messages(self, topic: str) -> list[MessageExt]:
        """All messages of a topic in the order in which they were stored. UnknownTopicError if no broker has
        it."""
        if (unknown := await self._unknown(topic)) is not None:
            raise unknown
        asked = (
            place.thread.run(partial(broker_messages, broker, topic)) for place, broker in self._running()
        )
        return in_store_order(await asyncio.gather(*asked))

    async def _unknown(self, topic: str) -> UnknownTopicError | None:
        """The error about a topic that no broker has; None if one has it."""

        async def names(broker: Broker) -> tuple[bool, list[str]]:
            topics = broker.services.topics
            return topic in topics.table, [
                name for name in topics.table if not (topics.is_system(name) or is_inner_topic(name))
            ]

        asked = (place.thread.run(partial(names, broker)) for place, broker in self._running())
        answers = await asyncio.gather(*asked)
        if any(is_there for is_there, _ in answers):
            return None
        return UnknownTopicError(topic, {name for _, known in answers for name in known})

    # -- groups ----------------------------------------------------------------------------------------

    async def wait_consumed(self, group: str, topic: str | None, timeout_s: float) -> None:
        """Wait until nothing is left for a group. NotConsumedError lists what is."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        zeros = 0
        while True:
            lag = await self._lag(group, topic)
            # Twice: brokers are not inspected at the same instant, and a handler that sends or rejects a
            # message moves it to where the first pass has already looked.
            zeros = zeros + 1 if lag.is_zero else 0
            if zeros == 2:
                return
            if not zeros and loop.time() >= deadline:
                raise NotConsumedError(group, timeout_s, await self._left(lag, group, topic))
            if not zeros:
                await asyncio.sleep(_LOOK_S)

    async def _left(self, lag: GroupLag, group: str, topic: str | None) -> str:
        """A description of what is left."""
        if lag.topics:
            return str(lag)
        if topic is None:
            missing = f"group {group!r} has no subscriptions or offsets; pass topic="
        else:
            missing = str(await self._unknown(topic) or "")
        return "; ".join(filter(None, [str(lag), missing]))

    async def _lag(self, group: str, topic: str | None) -> GroupLag:
        running = self._running()
        topics = {topic} if topic is not None else set()
        if topic is None:
            # From all brokers: one that has just started may not know the group yet.
            known = (place.thread.run(partial(broker_topics, broker, group)) for place, broker in running)
            topics = set().union(*await asyncio.gather(*known))
        asked = (place.thread.run(partial(broker_lag, broker, group, topics)) for place, broker in running)
        return merged(await asyncio.gather(*asked))
