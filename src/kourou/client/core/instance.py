"""ClientInstance: one client's connections, routes, heartbeats and timers.

Each producer and each consumer has its own instance, with its own client id. A `ClientRole` supplies what the
client produces and consumes, and the processors for requests of brokers. BrokerFeatures knows which of
Kourou's extensions each broker offers.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol, TypeAlias

from kourou.client.core.api import ClientApi
from kourou.client.core.client_blocks import ASYNC_NOT_STARTED
from kourou.client.core.master_search import MasterSearch
from kourou.client.core.namesrv_list import NamesrvList
from kourou.client.core.routes import Routes
from kourou.client.core.settings import ClientSettings
from kourou.client.core.stop_once import StopOnce
from kourou.errors import CallTimeoutError, ClientStateError, KourouError, NoNameServerError, RemotingError
from kourou.protocol.bodies import ConsumerData, HeartbeatData, ProducerData, encode_body
from kourou.protocol.bodies.route import MASTER_ID
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.features import FEATURES_FIELD, Feature, parse_features
from kourou.transport.client import RemotingClient
from kourou.transport.connection import Connection
from kourou.transport.pending_calls import Answer
from kourou.transport.request import Processor
from kourou.transport.tasks import TaskOwner

_log = logging.getLogger(__name__)

# What `Connection.state` of a client is: the features, or the answer that will tell them.
_Known: TypeAlias = "frozenset[Feature] | Answer | None"


class BrokerFeatures:
    """The features of each broker, from its response to a heartbeat."""

    def __init__(self, api: ClientApi, client_id: str, request_timeout_ms: int) -> None:
        self._api = api
        self._client_id = client_id
        self._request_timeout_ms = request_timeout_ms
        self._connected: set[str] = set()
        """Brokers that have responded, over this connection or an earlier one."""

    async def of(self, address: str, max_timeout_ms: int | None = None) -> frozenset[Feature]:
        """What the broker at `address` offers; valid for a request that is sent before the next `await`.
        RemotingError when the broker does not respond within the request timeout, or within
        `max_timeout_ms` if that is shorter."""
        connection = self._api.remoting.open_connection(address)
        if connection is not None:
            known: _Known = connection.state
            if isinstance(known, frozenset):
                return known
        timeout_ms = self._request_timeout_ms
        if max_timeout_ms is not None and max_timeout_ms < timeout_ms:
            timeout_ms = max_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while True:
                    connection = await self._api.remoting.connection(address)
                    known = connection.state
                    if known is None:
                        known = connection.state = self._request(address, connection)
                    if isinstance(known, frozenset):
                        return known
                    # Shielded: others wait for the same answer.
                    answer = await asyncio.shield(known)
                    # Not left to the callback: awaiting a response that has arrived does not run it.
                    connection.state = _announced(answer)
        except TimeoutError:
            raise CallTimeoutError(address, RequestCode.HEART_BEAT, timeout_ms) from None

    def _request(self, address: str, connection: Connection) -> Answer:
        body = encode_body(HeartbeatData(client_id=self._client_id))
        command = self._api.command(RequestCode.HEART_BEAT, body=body)
        answer = connection.call_nowait(command, self._request_timeout_ms)
        answer.add_done_callback(partial(self._answered, address, connection))
        return answer

    def _answered(self, address: str, connection: Connection, answer: Answer) -> None:
        if answer.cancelled() or answer.exception() is not None:
            connection.state = None  # the next caller sends the request again
            return
        connection.state = _announced(answer.result())
        if address in self._connected:
            _log.info("%s: connected to %s again", self._client_id, address)
        self._connected.add(address)


def _announced(command: RemotingCommand) -> frozenset[Feature]:
    if command.code != ResponseCode.SUCCESS:
        return frozenset()
    return parse_features((command.ext_fields or {}).get(FEATURES_FIELD))


_NAMESRV_REFRESH_MS: Final = 120_000
_FIRST_HEARTBEAT_MS: Final = 1_000
_PROBE_INTERVAL_S: Final = 1.0
_UNREGISTER_TIMEOUT_S: Final = 3.0


class ClientRole(Protocol):
    """What a client registers with brokers."""

    def producer_groups(self) -> Iterable[str]:
        """Its producer groups."""

    def consumer_data(self) -> Iterable[ConsumerData]:
        """Its consumer groups, with their subscriptions."""

    def topics(self) -> Iterable[str]:
        """The topics whose routes it needs, besides those already requested."""

    def processors(self) -> Mapping[int, Processor]:
        """The processors of requests that brokers send, by request code."""


class ClientInstance:
    """Connections of one client, from `start` to `stop`, on the loop that started it. `title` names the
    client in messages: its kind and its group."""

    def __init__(
        self,
        settings: ClientSettings,
        role: ClientRole,
        *,
        title: str,
        is_shared_id: bool = False,
        default_topic_queue_nums: int = 4,
        uses_all_brokers: bool = False,
    ) -> None:
        self.settings = settings
        self.client_id = settings.client_id(is_shared=is_shared_id)
        self.namesrvs = NamesrvList(settings)
        self.broker_versions: dict[str, int] = {}
        self._role = role
        self._title = title
        self._default_topic_queue_nums = default_topic_queue_nums
        # So that all of them can send requests, including brokers that nothing was sent to.
        self._uses_all_brokers = uses_all_brokers
        self._pid = 0
        self._is_stopped = False
        self._stop_once = StopOnce(f"client {self.client_id}")
        self._unreachable: set[str] = set()
        self._probing: set[str] = set()

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find a name server, then keep routes and heartbeats current."""
        if self._pid:
            raise ClientStateError("this client was started before; make a new one")
        self._pid = os.getpid()
        # Logged: in a `with` block no task waits for a failure.
        self.tasks = TaskOwner(f"client {self.client_id}", is_logged=True, title=self._title)
        self.remoting = RemotingClient(
            self.settings.remoting_config(), self._role.processors(), on_lost=self._connection_lost
        )
        self.api = ClientApi(self.remoting, self.namesrvs, self.settings)
        self.features = BrokerFeatures(self.api, self.client_id, self.settings.request_timeout_ms)
        self.routes = Routes(
            self.api, default_topic_queue_nums=self._default_topic_queue_nums, probe=self._start_probe
        )
        self.masters = MasterSearch(self.routes, self.tasks, self._look_at_routes, self._register_at)
        try:
            async with asyncio.timeout(self.settings.start_timeout_ms / 1000):
                await self._find_namesrv()
                await self.refresh_routes()
                await self.heartbeat()
        except BaseException as error:
            await self._close()
            if isinstance(error, TimeoutError):
                raise NoNameServerError(
                    f"not started within {self.settings.start_timeout_ms} ms; name servers: "
                    f"{';'.join(self.namesrvs.addresses) or 'not known yet'}"
                ) from None
            raise
        self.every(self.settings.poll_namesrv_interval_ms, self.refresh_routes, "routes")
        self.every(
            self.settings.heartbeat_interval_ms, self.heartbeat, "heartbeat", first_ms=_FIRST_HEARTBEAT_MS
        )
        self.every(_NAMESRV_REFRESH_MS, self._refresh_namesrvs, "name servers")

    async def _find_namesrv(self) -> None:
        await self.namesrvs.refresh()
        failures = []
        for _ in self.namesrvs.addresses:
            current = self.namesrvs.current
            try:
                await self.remoting.connection(current)
                return
            except KourouError as error:
                failures.append(str(error))
                self.namesrvs.move_on(current)
        raise NoNameServerError(f"no name server can be reached: {'; '.join(failures)}")

    async def stop(self) -> None:
        """Unregister from all brokers and close every connection. May be called twice."""
        if not self._pid or self._is_stopped and not self._stop_once.is_begun:
            return  # not started, or its start failed
        self._is_stopped = True
        if self._pid == os.getpid():
            await self._stop_once.wait(self._end)

    async def _end(self) -> None:
        try:
            await self._unregister()
        finally:
            await self._close()

    async def _close(self) -> None:
        self._is_stopped = True
        try:
            await self.tasks.stop()
        finally:
            await self.remoting.stop()

    @property
    def is_running(self) -> bool:
        """Whether it is started and not stopped."""
        return bool(self._pid) and not self._is_stopped

    def check_running(self) -> None:
        """ClientStateError unless the client can be used now, in this process."""
        if self._pid == os.getpid() and not self._is_stopped and self.tasks.failure is None:
            return  # the fast path: called for every send
        if not self._pid:
            raise ClientStateError(ASYNC_NOT_STARTED)
        if self._pid != os.getpid():
            raise ClientStateError(
                f"this client was started in process {self._pid}, before a fork, and its connections are "
                f"that one's: make a new client in process {os.getpid()}"
            )
        if self._is_stopped:
            raise ClientStateError("this client is stopped; make a new one")
        if (failure := self.tasks.failure) is not None:
            raise ClientStateError(
                f"this client has failed: {failure!r}; stop it and make a new one"
            ) from failure

    async def wait_failed(self) -> None:
        """Wait until a background task fails and raise its error; return after `stop`."""
        await self.tasks.wait_failed()

    def every(
        self, interval_ms: int, work: Callable[[], Awaitable[None]], name: str, *, first_ms: int | None = None
    ) -> None:
        """Repeat `work` until `stop`. Errors of a peer are logged; any other exception fails the client."""
        self.tasks.start(self._repeat(interval_ms, first_ms, work, name), name)

    async def _repeat(
        self, interval_ms: int, first_ms: int | None, work: Callable[[], Awaitable[None]], name: str
    ) -> None:
        await asyncio.sleep((interval_ms if first_ms is None else first_ms) / 1000)
        while True:
            try:
                await work()
            except KourouError as error:
                _log.warning("%s: %s: %s", self.client_id, name, error)
            await asyncio.sleep(interval_ms / 1000)

    # -- routes and name servers -----------------------------------------------------------------

    async def refresh_routes(self) -> None:
        """Refresh the routes of all topics in use; failures are logged and retried."""
        for topic in dict.fromkeys([*self._role.topics(), *self.routes.topics]):
            try:
                await self.routes.refresh(topic)
            except KourouError as error:
                if not self.api.refusals.report(self.client_id, error):
                    _log.warning("%s: route of %s: %s", self.client_id, topic, error)
        if self._uses_all_brokers:
            try:
                await self.routes.add_all_brokers()
            except KourouError as error:
                _log.warning("%s: brokers of the name server: %s", self.client_id, error)
        self.routes.forget_missing_brokers()

    async def _look_at_routes(self) -> None:
        """Refresh the routes without removing any: a broker that restarts is not in them for a moment."""
        for topic in dict.fromkeys([*self._role.topics(), *self.routes.topics]):
            try:
                await self.routes.refresh(topic, keeps=True)
            except KourouError as error:
                _log.debug("%s: route of %s: %s", self.client_id, topic, error)

    async def _refresh_namesrvs(self) -> None:
        await self.namesrvs.refresh()

    # -- heartbeat -------------------------------------------------------------------------------

    def heartbeat_data(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group) for group in self._role.producer_groups()],
            consumer_data_set=list(self._role.consumer_data()),
        )

    async def heartbeat(self) -> None:
        """Send a heartbeat to every known master, and to slaves if the client consumes."""
        data = self.heartbeat_data()
        if not data.producer_data_set and not data.consumer_data_set:
            return
        addresses = [
            address
            for brokers in self.routes.brokers.values()
            for broker_id, address in brokers.items()
            if broker_id == MASTER_ID or data.consumer_data_set
        ]
        await asyncio.gather(*(self._heartbeat_to(address, data) for address in addresses))

    def announce(self, address: str, connection: Connection) -> None:
        """Send a heartbeat first over a new connection: the broker may send requests about the next message
        long before the next regular heartbeat."""
        command = self.api.command(RequestCode.HEART_BEAT, body=encode_body(self.heartbeat_data()))
        try:
            answer = connection.call_nowait(command, self.settings.request_timeout_ms)
        except RemotingError:
            return  # already closed; its next user gets the error
        answer.add_done_callback(lambda done: self._announced(address, done))

    def _announced(self, address: str, answer: Answer) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return  # the next heartbeat reports it
        if answer.result().code == ResponseCode.SUCCESS:
            self.broker_versions[address] = answer.result().version

    def _connection_lost(self, address: str) -> None:
        if self.is_running:
            self.masters.lost(address)

    async def _register_at(self, address: str) -> bool:
        """Send a heartbeat to a broker; whether it has responded."""
        return await self._heartbeat_to(address, self.heartbeat_data())

    async def _heartbeat_to(self, address: str, data: HeartbeatData) -> bool:
        """Whether the broker has responded."""
        try:
            self.broker_versions[address] = await self.api.heartbeat(address, data)
            self._unreachable.discard(address)
            self.routes.reached(address)
            return True
        except KourouError as error:
            if not isinstance(error, RemotingError):
                self.routes.reached(address)
            elif data.consumer_data_set:
                self.routes.avoid(address, error)
            # Logged once: routes forget a broker that is gone.
            is_known = address in self._unreachable or self.routes.is_avoided(address)
            is_known |= self.api.refusals.report(f"heartbeat of {self.client_id}", error)
            self._unreachable.add(address)
            level = logging.DEBUG if is_known else logging.WARNING
            _log.log(level, "%s: heartbeat to %s: %s", self.client_id, address, error)
            return False

    def _start_probe(self, address: str) -> None:
        # One that still waits after a success continues.
        if self.is_running and address not in self._probing:
            self._probing.add(address)
            self.tasks.start(self._probe(address), f"probe {address}")

    async def _probe(self, address: str) -> None:
        """Send heartbeats to a broker that did not respond, until it does."""
        while self.routes.is_avoided(address):
            await self._heartbeat_to(address, self.heartbeat_data())
            await asyncio.sleep(_PROBE_INTERVAL_S)
        self._probing.discard(address)

    async def _unregister(self) -> None:
        data = self.heartbeat_data()
        requests = [
            self.api.unregister(address, self.client_id, **groups)
            for address in self.broker_versions
            for groups in (
                *({"producer_group": each.group_name} for each in data.producer_data_set),
                *({"consumer_group": each.group_name} for each in data.consumer_data_set),
            )
        ]
        try:
            async with asyncio.timeout(_UNREGISTER_TIMEOUT_S):
                await asyncio.gather(*requests, return_exceptions=True)
        except TimeoutError:
            _log.debug("%s: could not unregister from some brokers", self.client_id)
