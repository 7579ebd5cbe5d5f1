"""A name server without a socket: real processors behind real connections on memory transports."""

from __future__ import annotations

from typing import Any

import msgspec

from kourou.config import NamesrvConfig
from kourou.namesrv.disk_worker import DiskWorker
from kourou.namesrv.kv_config import KvConfig
from kourou.namesrv.min_broker_id import MinBrokerIdChange
from kourou.namesrv.server import namesrv_processors
from kourou.namesrv.state import NamesrvState
from kourou.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from kourou.protocol.versions import CURRENT_VERSION
from kourou.testing.memory_transport import MemoryTransport
from kourou.transport.connection import Connection, InboundBudget
from kourou.transport.cycles import Cycles
from kourou.transport.dispatcher import Dispatcher, run_request
from kourou.transport.settings import ConnectionLimits
from kourou.transport.tasks import TaskOwner


class Peer:
    """One connection to the name server under test."""

    def __init__(self, namesrv: MemoryNamesrv) -> None:
        self.namesrv = namesrv
        self.connection = Connection(
            namesrv.cycles,
            namesrv.dispatch,
            ConnectionLimits(),
            InboundBudget(2**30),
            on_close=namesrv.closed,
        )
        self.transport = MemoryTransport(self.connection)

    async def send(self, frame: bytes) -> list[RemotingCommand]:
        """Let a frame arrive; everything that is answered to it."""
        self.connection.data_received(frame)
        await self.namesrv.tasks.wait_idle(5)
        self.namesrv.cycles.close()
        return self.transport.commands()

    async def call(
        self,
        code: RequestCode,
        header: msgspec.Struct | None = None,
        body: bytes = b"",
        *,
        version: int = CURRENT_VERSION,
    ) -> RemotingCommand:
        """Send a request; its one answer."""
        command = RemotingCommand.request(code, header, body)
        command.version = version
        (answer,) = await self.send(command.encode())
        return answer

    async def register(self, body: RegisterBrokerBody | None = None, **fields: Any) -> RemotingCommand:
        """Register a broker, `broker-a` by default."""
        known = {
            "cluster_name": "C",
            "broker_name": "broker-a",
            "broker_id": 0,
            "broker_addr": "10.0.0.1:10911",
            "ha_server_addr": "10.0.0.1:10912",
        }
        header = RegisterBrokerRequestHeader(**{**known, **fields})
        return await self.call(RequestCode.REGISTER_BROKER, header, (body or topics_body("T", "U")).encode())

    async def route(self, topic: str, **options: Any) -> RemotingCommand:
        """Ask for a route."""
        header = GetRouteInfoRequestHeader(topic=topic)
        return await self.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, **options)


class MemoryNamesrv:
    """State and processors of a name server. `now_ms` is its clock. Create it on a running loop."""

    def __init__(self, config: NamesrvConfig | None = None) -> None:
        self.now_ms = 1_000_000
        self.changes: list[MinBrokerIdChange] = []
        self.tasks = TaskOwner("test")
        self.cycles = Cycles()
        disk = DiskWorker(lambda request, work: run_request(self.tasks, request, work))
        self.state = NamesrvState(
            config or NamesrvConfig(),
            KvConfig(),
            clock=lambda: self.now_ms,
            disk=disk,
            on_min_broker_id_changed=self.changes.append,
        )
        self.dispatch = Dispatcher(namesrv_processors(self.state))

    def closed(self, connection: Connection) -> None:
        """What the server does when a connection ends."""
        self.state.routes.connection_closed(connection)

    def connect(self) -> Peer:
        """A new connection."""
        return Peer(self)


def topics_body(*names: str, counter: int = 0, state_version: int = 0, **settings: Any) -> RegisterBrokerBody:
    """The body of a registration of these topics, all with the same settings."""
    return RegisterBrokerBody(
        TopicConfigSerializeWrapper(
            topic_config_table={name: TopicConfig(topic_name=name, **settings) for name in names},
            data_version=DataVersion(timestamp=1, counter=counter, state_version=state_version),
        )
    )
