"""BrokerOuterApi: registration (103) and unregistration (104) with the name servers.

The broker registers with each name server independently: one that does not respond neither stops nor
delays the registration with another. Not here: when to register (registration.py), the table of topics
(topics.py).
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from kourou.config.broker import BrokerConfig
from kourou.config.checks import split_addresses
from kourou.errors import KourouError, ProtocolError, RemotingError, ResponseError
from kourou.protocol.bodies import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
    decode_body,
    encode_body,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from kourou.transport.address_service import AddressService
from kourou.transport.client import RemotingClient

_log = logging.getLogger(__name__)
# A stop must not wait long for a name server that is gone; it misses us soon by itself.
UNREGISTER_TIMEOUT_MS: Final = 1_000
QUERY_TIMEOUT_MS: Final = 3_000
# How long a registration waits for the answers of all: a name server that hangs must not keep a
# broker from starting, nor the next change from the others.
PATIENCE_MS: Final = 1_000


def address_service(config: BrokerConfig) -> AddressService | None:
    """The service that is to be asked: one is configured, and `namesrvAddr` is not."""
    if config.namesrv_addr or not config.rmq_address_server_domain:
        return None
    return AddressService(config.rmq_address_server_domain, config.rmq_address_server_sub_group)


class NamesrvAddresses:
    """The current name servers. `on_change` gets those added and those removed."""

    def __init__(
        self, config: Callable[[], BrokerConfig], on_change: Callable[[list[str], list[str]], None]
    ) -> None:
        self._config = config
        self._on_change = on_change
        self._current: tuple[str, ...] = ()

    @property
    def current(self) -> tuple[str, ...]:
        """The addresses, in the order they were given."""
        return self._current

    def update(self, new: Iterable[str]) -> None:
        """Use these from now on."""
        before, self._current = self._current, tuple(dict.fromkeys(new))
        added = [address for address in self._current if address not in before]
        removed = [address for address in before if address not in self._current]
        if added or removed:
            _log.info("name servers: %s", ";".join(self._current) or "none")
            self._on_change(added, removed)

    async def refresh(self) -> None:
        """Take the list from the configuration, or ask the address service. If that fails, the
        list stays as it is."""
        config = self._config()
        service = address_service(config)
        if service is None:
            self.update(split_addresses(config.namesrv_addr or ""))
            return
        try:
            self.update(await service.fetch())
        except (RemotingError, ProtocolError) as error:
            _log.warning("keeping the known name servers: %s", error)


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The registered broker. `broker_addr` is advertised to clients, `ha_server_addr` to slaves."""

    cluster_name: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str


@dataclass(frozen=True, slots=True)
class RegisterBrokerResult:
    """The response of a name server. The addresses are the master's, for slaves only."""

    namesrv: str
    ha_server_addr: str | None = None
    master_addr: str | None = None
    # Topic to `brokerName:queues;…`, for the topics with a fixed order of queues.
    order_topics: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _News:
    """A registration to be sent."""

    command: RemotingCommand
    version: DataVersion


class BrokerOuterApi:
    """Talks to the name servers of one broker. `namesrv_added` is called when there is a new one,
    with which the broker has to register at once."""

    def __init__(
        self,
        client: RemotingClient,
        identity: BrokerIdentity,
        config: Callable[[], BrokerConfig],
        namesrv_added: Callable[[], None],
    ) -> None:
        self.namesrvs = NamesrvAddresses(config, self._changed)
        self._client = client
        self._identity = identity
        self._config = config
        self._namesrv_added = namesrv_added
        # One registration at a time for each server: none overtakes an older one, because the last
        # counts there. What comes meanwhile waits in `_news`, only the newest of it.
        self._tellers: dict[str, asyncio.Task[RegisterBrokerResult | None]] = {}
        self._news: dict[str, _News] = {}
        self._failing: set[str] = set()
        # Whether a name server has known what we serve, at any time.
        self.has_registered = False

    def _changed(self, added: list[str], removed: list[str]) -> None:
        # One that is left out forgets us as soon as the connection ends.
        for address in removed:
            self._client.close_connection(address, "no longer a name server of this broker")
            self._news.pop(address, None)
            if (teller := self._tellers.pop(address, None)) is not None:
                teller.cancel()
            self._failing.discard(address)
        if added:
            self._namesrv_added()

    # -- registration ----------------------------------------------------------------------------

    @property
    def failing(self) -> frozenset[str]:
        """The name servers with which the last registration failed."""
        return frozenset(self._failing)

    async def register_all(
        self, topics: TopicConfigSerializeWrapper, *, only: frozenset[str] | None = None
    ) -> list[RegisterBrokerResult]:
        """Tell every name server, or `only` these, of these topics; returns what those said that answered
        soon.

        One that takes long hears of it all the same, in its time. Never one-way: 4.9 does not ask for an
        answer after a send has made a topic, 5.x does, and so do we.
        """
        news = _News(self._registration(topics), topics.data_version)
        tellers = [
            self._hand_over(address, news)
            for address in self.namesrvs.current
            if only is None or address in only
        ]
        if not tellers:
            return []
        done, _ = await asyncio.wait(tellers, timeout=PATIENCE_MS / 1000)
        # One is cancelled when its name server is taken from the list.
        results = [teller.result() for teller in tellers if teller in done and not teller.cancelled()]
        return [result for result in results if result is not None]

    def _hand_over(self, address: str, news: _News) -> asyncio.Task[RegisterBrokerResult | None]:
        self._news[address] = news
        teller = self._tellers.get(address)
        if teller is None or teller.done():
            if teller is not None and not teller.cancelled():
                teller.result()  # raises what it died of after we had lost patience
            teller = asyncio.create_task(self._tell(address), name=f"register-{address}")
            self._tellers[address] = teller
        return teller

    async def _tell(self, address: str) -> RegisterBrokerResult | None:
        result = None
        while (news := self._news.pop(address, None)) is not None:
            result = await self._register(address, news)
        return result

    def _registration(self, topics: TopicConfigSerializeWrapper) -> RemotingCommand:
        identity, compressed = self._identity, self._config().compressed_register
        body = RegisterBrokerBody(topic_config_serialize_wrapper=topics).encode(compressed=compressed)
        header = RegisterBrokerRequestHeader(
            broker_name=identity.broker_name,
            broker_addr=identity.broker_addr,
            cluster_name=identity.cluster_name,
            ha_server_addr=identity.ha_server_addr,
            broker_id=identity.broker_id,
            enable_acting_master=False,
            compressed=compressed,
            # Java's integers have a sign; it leaves the first bit out.
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        return RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body)

    async def _register(self, address: str, news: _News) -> RegisterBrokerResult | None:
        try:
            if not await self._needs_registration(address, news.version):
                self._works(address)
                return None
            answer = await self._call(address, news.command, self._config().register_broker_timeout_mills)
            return self._registered(address, answer)
        except KourouError as error:
            self._failed(address, error)
            return None

    async def _needs_registration(self, address: str, version: DataVersion) -> bool:
        """Whether the name server knows less than `version`; asked only where `forceRegister` is off."""
        if self._config().force_register:
            return True
        identity = self._identity
        header = QueryDataVersionRequestHeader(
            broker_name=identity.broker_name,
            broker_addr=identity.broker_addr,
            cluster_name=identity.cluster_name,
            broker_id=identity.broker_id,
        )
        command = RemotingCommand.request(RequestCode.QUERY_DATA_VERSION, header, encode_body(version))
        try:
            answer = await self._call(address, command, QUERY_TIMEOUT_MS)
            return answer.header(QueryDataVersionResponseHeader).changed
        except KourouError as error:
            _log.info(
                "name server %s did not report its version of the topics (%s); registering", address, error
            )
            return True

    def _registered(self, address: str, answer: RemotingCommand) -> RegisterBrokerResult:
        self._works(address)
        header = answer.header(RegisterBrokerResponseHeader)
        table = decode_body(answer.body, KVTable).table if answer.body else {}
        return RegisterBrokerResult(address, header.ha_server_addr, header.master_addr, table)

    def _works(self, address: str) -> None:
        if address in self._failing:
            self._failing.discard(address)
            _log.info("registered with name server %s", address)
        self.has_registered = True

    def _failed(self, address: str, error: KourouError) -> None:
        # Said once, until it works again: a name server may be away for hours.
        if address not in self._failing:
            self._failing.add(address)
            hint = ""
            if isinstance(error, ResponseError) and error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                hint = "; it is not a name server: check namesrvAddr"
            elif isinstance(error, ResponseError) and (
                error.code == ResponseCode.NO_PERMISSION or "AclException" in str(error)
            ):
                hint = "; it lets in administrators only: check innerClientAuthenticationCredentials"
            _log.warning("not registered with name server %s, retrying: %s%s", address, error, hint)

    # -- leaving ---------------------------------------------------------------------------------

    async def unregister_all(self, timeout_ms: int = UNREGISTER_TIMEOUT_MS) -> None:
        """Tell every name server that this broker goes; those that do not answer find out later."""
        await self.stop_telling()
        identity = self._identity
        header = UnRegisterBrokerRequestHeader(
            broker_name=identity.broker_name,
            broker_addr=identity.broker_addr,
            cluster_name=identity.cluster_name,
            broker_id=identity.broker_id,
        )
        command = RemotingCommand.request(RequestCode.UNREGISTER_BROKER, header)
        await asyncio.gather(
            *(self._unregister(address, command, timeout_ms) for address in self.namesrvs.current)
        )

    async def stop_telling(self) -> None:
        """Give up registrations that are under way."""
        self._news.clear()
        for teller in self._tellers.values():
            teller.cancel()
        await asyncio.gather(*self._tellers.values(), return_exceptions=True)

    async def _unregister(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        try:
            await self._call(address, command, timeout_ms)
        except KourouError as error:
            _log.info("not unregistered from name server %s: %s", address, error)

    async def _call(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        # A copy: each call gives its command a number of its own.
        answer = await self._client.call(address, replace(command), timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark or "", address)
        return answer
