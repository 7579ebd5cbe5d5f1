"""A name server among peers that misbehave: it stays up, memory stays bounded, others are served."""

from __future__ import annotations

import random
import resource
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kourou.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand, decode_command
from kourou.protocol.frame import FrameDecoder
from kourou.protocol.headers import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from kourou.protocol.record import body_crc

pytestmark = pytest.mark.e2e

START_TIMEOUT_S = 20
IDLE_CONNECTIONS = 5_000


class Namesrv:
    """The process under test, and one well-behaved connection to it."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port
        self.good = self.connect()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    @property
    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize()

    def register(self, topic: str) -> None:
        wrapper = TopicConfigSerializeWrapper(
            topic_config_table={name: TopicConfig(topic_name=name) for name in (topic, "other")},
            data_version=DataVersion(timestamp=1),
        )
        body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).encode(compressed=False)
        header = RegisterBrokerRequestHeader(
            broker_name="broker-a",
            broker_addr="127.0.0.1:10911",
            cluster_name="c",
            ha_server_addr="127.0.0.1:10912",
            broker_id=0,
            body_crc32=body_crc(body),
        )
        answer = call(self.good, RemotingCommand.request(RequestCode.REGISTER_BROKER, header, body))
        assert answer.code == 0, answer.remark

    def assert_serves(self, topic: str) -> None:
        header = GetRouteInfoRequestHeader(topic=topic)
        for connection in (self.good, self.connect()):
            answer = call(connection, RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header))
            assert (answer.code, b"broker-a" in answer.body) == (0, True)
            if connection is not self.good:
                connection.close()
        assert self.process.poll() is None


def call(connection: socket.socket, command: RemotingCommand) -> RemotingCommand:
    connection.sendall(command.encode())
    decoder = FrameDecoder()
    while not (frames := decoder.feed(connection.recv(65_536))):
        pass
    return decode_command(frames[0])


@pytest.fixture
def namesrv(tmp_path: Path) -> Iterator[Namesrv]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = tmp_path / "namesrv.conf"
    config.write_text(f"listenPort={port}\nbindAddress=127.0.0.1\nrocketmqHome={tmp_path}\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "kourou.cli.mqnamesrv", "-c", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _wait_for_port(process, port)
        server = Namesrv(process, port)
        server.register("orders")
        yield server
        server.good.close()
        process.terminate()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()


def _wait_for_port(process: subprocess.Popen[str], port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"the name server ended: {process.communicate()[1]}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise AssertionError("the name server does not listen")


def test_random_bytes(namesrv: Namesrv) -> None:
    seed = 20261115
    print(f"seed {seed}")
    random_source = random.Random(seed)
    before = namesrv.resident_bytes
    for _ in range(300):
        with namesrv.connect() as peer:
            try:
                peer.sendall(random_source.randbytes(random_source.randrange(1, 5_000)))
            except OSError:
                pass  # closed while we were still sending
    namesrv.assert_serves("orders")
    assert namesrv.resident_bytes - before < 20_000_000


def test_half_frames_and_frames_in_single_bytes(namesrv: Namesrv) -> None:
    frame = RemotingCommand.request(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="orders")
    ).encode()
    with ExitStack() as open_peers:
        for length in range(1, len(frame)):
            peer = open_peers.enter_context(namesrv.connect())
            peer.sendall(frame[:length])
        namesrv.assert_serves("orders")
        slow = open_peers.enter_context(namesrv.connect())
        for byte in frame[:-1]:
            slow.sendall(bytes([byte]))
        assert call(slow, _Rest(frame[-1:])).code == 0  # type: ignore[arg-type]


class _Rest:
    """The last bytes of a frame whose beginning is sent already."""

    def __init__(self, rest: bytes) -> None:
        self._rest = rest

    def encode(self) -> bytes:
        return self._rest


def test_oversize_frames_are_refused_before_a_byte_is_kept(namesrv: Namesrv) -> None:
    before = namesrv.resident_bytes
    for length in (16_777_213, 2**31 - 1, 2**32 - 1):
        with namesrv.connect() as peer:
            peer.sendall(struct.pack(">I", length) + b"x" * 1_000)
            assert _ends(peer)
    namesrv.assert_serves("orders")
    assert namesrv.resident_bytes - before < 5_000_000


def test_peers_that_ask_and_never_read(namesrv: Namesrv) -> None:
    ask = RemotingCommand.request(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="orders")
    ).encode()
    before = namesrv.resident_bytes
    with ExitStack() as open_peers:
        for _ in range(5):
            peer = open_peers.enter_context(namesrv.connect())
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            peer.settimeout(0.2)
            sent = 0
            try:
                while sent < 50_000_000:
                    sent += peer.send(ask * 1_000)
            except TimeoutError:
                pass
            # The server has stopped reading: our own socket is full long before all is sent.
            assert sent < 50_000_000
        namesrv.assert_serves("orders")
        assert namesrv.resident_bytes - before < 60_000_000


def test_a_slow_reader_gets_everything(namesrv: Namesrv) -> None:
    ask = RemotingCommand.request(
        RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic="orders")
    ).encode()
    asked = 1_000
    decoder = FrameDecoder()
    seen = 0
    with namesrv.connect() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
        peer.sendall(ask * asked)
        while seen < asked:
            seen += len(decoder.feed(peer.recv(5_000)))
    assert seen == asked
    namesrv.assert_serves("orders")


def test_five_thousand_idle_connections(namesrv: Namesrv) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * IDLE_CONNECTIONS:
        pytest.skip(f"the limit of open files here is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    before = namesrv.resident_bytes
    peers = [namesrv.connect() for _ in range(IDLE_CONNECTIONS)]
    try:
        namesrv.assert_serves("orders")
        per_connection = (namesrv.resident_bytes - before) / IDLE_CONNECTIONS
        assert per_connection < 20_000
    finally:
        for peer in peers:
            peer.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    namesrv.assert_serves("orders")


def _ends(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except ConnectionResetError:
        return True
