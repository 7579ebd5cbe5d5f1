"""GrpcSide: a broker with its proxy, ours or Apache's, and what scenarios of clients for gRPC need of it."""

from __future__ import annotations

import itertools
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kourou import Message, MessageExt, Producer, PullConsumer
from tests.interop.kit import apache, wire
from tests.interop.kit.access_servers import AUTH_SETTINGS
from tests.interop.kit.grpc.apache_proxy import launch_apache_proxy
from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv
from tests.interop.kit.ports import free_broker_port, free_port
from tests.interop.kit.process import ServerProcess

KOUROU: Final = "kourou"
APACHE: Final = "apache"
BEFORE_APACHE: Final = "before-apache"
"""Our proxy in a process of its own, and Apache's broker."""

PROPERTIES: Final = {
    # Off in Apache's unless it is asked for, on in ours.
    "recallMessageEnable": "true",
    "enablePropertyFilter": "true",
    "enableMixedMessageType": "true",
    # Half messages are asked for every second, and three times at most. Apache's notes the end of a
    # transaction after its interval for that, and would ask in the meantime.
    "transactionTimeOut": "5000",
    "transactionCheckInterval": "1000",
    "transactionCheckMax": "3",
    "transactionOpBatchInterval": "50",
}
"""Keys of the broker of each side."""

_PROXY_AUTH: Final = {
    **AUTH_SETTINGS,
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "authenticationMetadataProvider": "org.apache.rocketmq.proxy.auth.ProxyAuthenticationMetadataProvider",
    "authorizationMetadataProvider": "org.apache.rocketmq.proxy.auth.ProxyAuthorizationMetadataProvider",
}
_names = itertools.count(1)


@dataclass(slots=True)
class GrpcSide:
    """One side: where gRPC is served, and the broker and the name server behind it."""

    name: str
    endpoints: str
    broker: str
    namesrv: str
    servers: list[ServerProcess]
    launch: Callable[[], ServerProcess]
    has_accounts: bool = False

    def new_name(self, purpose: str) -> str:
        """A name that nothing else has."""
        return f"{purpose}-{self.name}-{next(_names)}"

    def new_topic(self, purpose: str, message_type: str = "", queues: int = 4) -> str:
        """Create a topic of a message type (NORMAL where none is given)."""
        name = self.new_name(purpose)
        return wire.create_topic(self.broker, [self.namesrv], name, queues, message_type)

    def new_group(self, purpose: str = "group", *, is_orderly: bool = False, retries: int = 16) -> str:
        """Create a consumer group: Apache's proxy knows no other."""
        return wire.create_group(self.broker, self.new_name(purpose), is_orderly=is_orderly, retries=retries)

    def send(self, *messages: Message) -> None:
        """Send messages by remoting."""
        with Producer(self.new_name("remoting"), namesrv=self.namesrv) as producer:
            for message in messages:
                producer.send(message)

    def stored(self, topic: str) -> list[MessageExt]:
        """The messages of a topic, up to 32 of each queue, read by remoting."""
        with PullConsumer(self.new_name("reader"), namesrv=self.namesrv) as reader:
            queues = sorted(reader.fetch_queues(topic), key=lambda queue: queue.queue_id)
            return [
                message
                for queue in queues
                for message in reader.pull(queue, queue_offset=reader.min_offset(queue)).messages()
            ]

    def kill(self) -> None:
        """End broker and proxy of this side with SIGKILL."""
        self.servers[-1].kill()

    def start_again(self) -> None:
        """Start what was killed, with the same ports and the same store."""
        self.servers[-1] = self.launch().wait_ready()
        wire.wait_route(self.namesrv, "TBW102", self.broker)

    def close(self) -> None:
        """End all servers of this side."""
        for server in reversed(self.servers):
            server.kill()


def launch_side(name: str, work_dir: Path, *, has_accounts: bool = False) -> GrpcSide:
    """Launch a side; `wait_side` waits until it serves. With accounts, RocketMQ 5's access control is on, and
    there is none but an administrator."""
    work_dir.mkdir(parents=True, exist_ok=True)
    return _LAUNCHERS[name](work_dir, has_accounts)


def wait_side(side: GrpcSide) -> GrpcSide:
    """Wait until a side serves."""
    for server in side.servers:
        server.wait_ready()
    if side.name != KOUROU:
        wire.wait_route(side.namesrv, "TBW102", side.broker)
    elif not side.has_accounts:
        wire.set_config(side.broker, **PROPERTIES)
    return side


def _launch_apache(work_dir: Path, has_accounts: bool) -> GrpcSide:
    namesrv = launch_kourou_namesrv(work_dir)
    grpc_port, broker_port = free_port(), free_broker_port()
    store = work_dir / "store"
    settings = {
        **PROPERTIES,
        **(AUTH_SETTINGS if has_accounts else {}),
        "listenPort": str(broker_port),
        "storePathRootDir": str(store),
        "storePathCommitLog": str(store / "commitlog"),
    }

    def launch() -> ServerProcess:
        return launch_apache_proxy(
            work_dir,
            [namesrv.address],
            grpc_port=grpc_port,
            properties=settings,
            proxy_settings=_PROXY_AUTH if has_accounts else None,
        )

    broker = f"127.0.0.1:{broker_port}"
    proxy = launch()
    servers = [namesrv, proxy]
    return GrpcSide(APACHE, proxy.address, broker, namesrv.address, servers, launch, has_accounts)


def _launch_kourou(work_dir: Path, has_accounts: bool) -> GrpcSide:
    ports = {"namesrv": free_port(), "broker": free_broker_port(), "grpc": free_port()}
    home = Path(tempfile.mkdtemp(prefix="kourou-grpc-", dir=work_dir.absolute()))
    command = [sys.executable, "-m", "kourou.cli.main", "standalone", "--store", str(home / "store")]
    command += ["--auth"] if has_accounts else []
    command += [word for name, port in ports.items() for word in (f"--{name}-port", str(port))]

    def launch() -> ServerProcess:
        return ServerProcess(
            "kourou standalone",
            command,
            port=ports["grpc"],
            log_path=home / "console.log",
            ready_timeout_s=60,
            environment={"HOME": str(home)},
        )

    address = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    addresses = address["grpc"], address["broker"], address["namesrv"]
    return GrpcSide(KOUROU, *addresses, [launch()], launch, has_accounts)


def _launch_before_apache(work_dir: Path, has_accounts: bool) -> GrpcSide:
    assert not has_accounts, "there is no such test"
    namesrv = launch_kourou_namesrv(work_dir)
    grpc_port = free_port()
    broker = apache.start_broker("5.5.0", work_dir, [namesrv.address], properties=PROPERTIES, wait=False)
    home = Path(tempfile.mkdtemp(prefix="kourou-proxy-", dir=work_dir.absolute()))
    command = [sys.executable, "-m", "kourou.cli.main", "proxy", "-n", namesrv.address]
    command += ["--host", "127.0.0.1", "--port", str(grpc_port), "--home", str(home)]

    def launch() -> ServerProcess:
        return ServerProcess(
            "kourou proxy",
            command,
            port=grpc_port,
            log_path=home / "console.log",
            ready_timeout_s=60,
            environment={"HOME": str(home)},
        )

    proxy = launch()
    servers = [namesrv, broker, proxy]
    return GrpcSide(BEFORE_APACHE, proxy.address, broker.address, namesrv.address, servers, launch)


_LAUNCHERS: Final = {KOUROU: _launch_kourou, APACHE: _launch_apache, BEFORE_APACHE: _launch_before_apache}
