"""A broker among peers that misbehave: each gets the right error, it stays up, and others are served.

Everything goes over raw sockets to the process that a user starts.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from kourou.errors import ProtocolError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand, decode_command
from kourou.protocol.frame import FrameDecoder, encode_frame
from kourou.protocol.headers import (
    PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader,
    SendMessageRequestHeaderV2,
)

from .server_process import ServerProcess

pytestmark = pytest.mark.e2e

TOPIC = "orders"
TIMEOUT_S = 20
# What one bad peer may cost at most while it lasts; a broker that kept all would need many times that.
MEMORY_BOUND_BYTES = 120_000_000


class Peer:
    """One connection; requests out, answers in by their opaque."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self._decoder = FrameDecoder(64 * 1024 * 1024)
        self._frames: list[Any] = []

    def send(self, command: RemotingCommand) -> None:
        self.socket.sendall(command.encode())

    def receive(self) -> RemotingCommand:
        while not self._frames:
            data = self.socket.recv(1 << 20)
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            self._frames.extend(self._decoder.feed(data))
        return decode_command(self._frames.pop(0))

    def call(self, command: RemotingCommand) -> RemotingCommand:
        self.send(command)
        answer = self.receive()
        assert (answer.opaque, answer.is_response) == (command.opaque, True)
        return answer

    def call_json(self, header: dict[str, Any], body: bytes = b"") -> RemotingCommand:
        """A header as it is, with whatever types it has."""
        fields = {"language": "JAVA", "version": 479, "opaque": 7, "flag": 0, **header}
        self.socket.sendall(encode_frame(0, json.dumps(fields).encode(), body))
        answer = self.receive()
        assert answer.opaque == 7
        return answer

    def close(self) -> None:
        self.socket.close()


class Broker:
    """The process under test, and one well-behaved connection to it."""

    def __init__(self, server: ServerProcess, port: int, log_file: Path) -> None:
        self.server = server
        self.port = port
        self._log_file = log_file
        self.good = Peer(port)

    def connect(self) -> Peer:
        return Peer(self.port)

    @property
    def anonymous_bytes(self) -> int:
        """Its memory without mapped files."""
        status = Path(f"/proc/{self.server.process.pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    @property
    def log(self) -> str:
        return self._log_file.read_text() + self.server.errors

    def assert_serves(self) -> None:
        """Old and new connections send and pull, at once."""
        assert self.server.process.poll() is None, self.server.errors
        started = time.monotonic()
        new = self.connect()
        for peer in (self.good, new):
            sent = peer.call(send_command(b"still here"))
            assert sent.code == 0, sent.remark
            assert sent.ext_fields is not None
            queue_offset = int(sent.ext_fields["queueOffset"])
            pulled = peer.call(pull_command(queue_offset))
            assert (pulled.code, b"still here" in pulled.body) == (0, True)
        new.close()
        assert time.monotonic() - started < 15


def send_command(body: bytes, topic: str = TOPIC, queue_id: int = 0, **fields: Any) -> RemotingCommand:
    header = SendMessageRequestHeaderV2(
        producer_group="writers",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        flag=0,
        **fields,
    )
    return RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, body)


def pull_command(
    queue_offset: int, topic: str = TOPIC, queue_id: int = 0, suspend_ms: int = 0, max_messages: int = 32
) -> RemotingCommand:
    header = PullMessageRequestHeader(
        consumer_group="readers",
        topic=topic,
        queue_id=queue_id,
        queue_offset=queue_offset,
        max_msg_nums=max_messages,
        sys_flag=4 | (2 if suspend_ms else 0),  # the subscription is in the request; may be held
        commit_offset=0,
        suspend_timeout_millis=suspend_ms,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    )
    return RemotingCommand.request(RequestCode.PULL_MESSAGE, header)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("bad-input")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "broker.conf"
    config.write_text(
        f"listenPort={port}\nbindAddress=127.0.0.1\nbrokerIP1=127.0.0.1\nbrokerName=broker-a\n"
        f"storePathRootDir={folder}/store\n"
    )
    log_file = folder / "broker.log"
    arguments = ["-c", str(config), "--logFile", str(log_file)]
    environ = {**os.environ, "HOME": str(folder)}
    server = ServerProcess("kourou.cli.mqbroker", arguments, environ, folder / "process")
    try:
        server.wait_first_line()
        running = Broker(server, port, log_file)
        yield running
        running.good.close()
        assert server.stop() == 0
    finally:
        server.kill()


@pytest.fixture(autouse=True)
def _others_unharmed(broker: Broker) -> Iterator[None]:
    """After every test the broker serves, and nothing of what came was unforeseen."""
    yield
    broker.assert_serves()
    assert "Traceback" not in broker.log


@pytest.fixture
def peer(broker: Broker) -> Iterator[Peer]:
    connected = broker.connect()
    yield connected
    connected.close()


# -- single requests -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [-1, 0, 9, 99_999, 2**31 - 1])
def test_an_unknown_request_code_is_not_supported(peer: Peer, code: int) -> None:
    answer = peer.call(RemotingCommand(code=code))
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert str(code) in (answer.remark or "")


def test_an_unknown_one_way_request_is_passed_over(peer: Peer) -> None:
    peer.send(RemotingCommand(code=99_999, flag=2, opaque=1))
    assert peer.call(send_command(b"next")).code == 0


@pytest.mark.parametrize("fields", [None, {}, {"noSuchField": "x"}], ids=["none", "empty", "unknown"])
def test_every_request_without_its_fields_is_answered(peer: Peer, fields: dict[str, str] | None) -> None:
    """Not one of them closes the connection or leaves the caller waiting."""
    for code in RequestCode:
        header = {"code": int(code)} if fields is None else {"code": int(code), "extFields": fields}
        answer = peer.call_json(header)
        assert answer.code >= 0, code


@pytest.mark.parametrize("value", ["x", "", "-1", "99999999999999999999", "true", "%00", "東京" * 200])
def test_every_request_with_senseless_fields_is_answered(peer: Peer, value: str) -> None:
    names = (*"abcdefghijklmn", "topic", "consumerGroup", "group", "producerGroup", "queueId", "queueOffset")
    names += ("maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis", "subVersion", "offset", "key")
    names += ("timestamp", "maxNum", "beginTimestamp", "endTimestamp", "clientID", "clientId", "groupName")
    names += (
        "readQueueNums",
        "writeQueueNums",
        "perm",
        "order",
        "topicFilterType",
        "defaultTopic",
        "isForce",
    )
    fields = dict.fromkeys(names, value)
    for code in RequestCode:
        if code in _CHANGING:
            continue
        answer = peer.call_json({"code": int(code), "extFields": fields}, b"\x00garbage{")
        assert answer.code >= 0, code


# What these do with a topic called "x" is what they are for.
_CHANGING = {RequestCode.UPDATE_BROKER_CONFIG}


@pytest.mark.parametrize(
    "value", [None, 7, -1.5, True, [], {}, ["x"], {"a": {"b": 1}}], ids=lambda value: json.dumps(value)
)
def test_values_of_other_types_than_text_are_understood_or_refused(peer: Peer, value: Any) -> None:
    fields = {"a": value, "b": TOPIC, "c": "TBW102", "d": value, "e": value, "f": "0", "g": "0", "h": "0"}
    answer = peer.call_json({"code": 310, "extFields": fields}, b"body")
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER)
    if answer.code != ResponseCode.SUCCESS:
        assert answer.remark


@pytest.mark.parametrize(("field", "shown"), [("b", "topic"), ("e", "queueId"), ("g", "bornTimestamp")])
def test_a_send_without_a_field_says_which(peer: Peer, field: str, shown: str) -> None:
    fields = {"a": "g", "b": TOPIC, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "j": "0"}
    del fields[field]
    answer = peer.call_json({"code": 310, "extFields": fields}, b"body")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert shown in (answer.remark or "") or re.search(rf"\b{field}\b", answer.remark or "")


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("", ResponseCode.INVALID_PARAMETER),
        ("bad name!", ResponseCode.INVALID_PARAMETER),
        ("n" * 128, ResponseCode.INVALID_PARAMETER),
        ("SCHEDULE_TOPIC_XXXX", ResponseCode.NO_PERMISSION),
        ("RMQ_SYS_TRANS_HALF_TOPIC", ResponseCode.NO_PERMISSION),
    ],
)
def test_a_send_to_a_topic_that_cannot_be(peer: Peer, topic: str, code: int) -> None:
    answer = peer.call(send_command(b"body", topic))
    assert answer.code == code, answer.remark
    assert answer.remark


def test_sends_that_break_a_limit(peer: Peer) -> None:
    too_large = peer.call(send_command(b"x" * (4 * 1024 * 1024 + 1)))
    assert too_large.code == ResponseCode.MESSAGE_ILLEGAL
    long_properties = peer.call(send_command(b"x", properties="a\x01" + "b" * 33_000))
    assert long_properties.code == ResponseCode.MESSAGE_ILLEGAL
    for queue_id in (4_000, 2**31 - 1):
        answer = peer.call(send_command(b"x", queue_id=queue_id))
        assert "illegal" in (answer.remark or "")


@pytest.mark.parametrize(
    "body", [b"", b"x", b"\x00" * 40, b"\xff" * 40, struct.pack(">i", 2**30) + b"x" * 30]
)
def test_a_batch_that_is_none(peer: Peer, body: bytes) -> None:
    command = send_command(body, batch=True)
    command.code = RequestCode.SEND_BATCH_MESSAGE
    answer = peer.call(command)
    assert answer.code != 0
    assert answer.remark


def test_pulls_of_what_is_not_there(peer: Peer) -> None:
    peer.call(send_command(b"x"))
    assert peer.call(pull_command(0, topic="NoSuchTopic")).code == ResponseCode.TOPIC_NOT_EXIST
    assert peer.call(pull_command(0, queue_id=4_000)).code in (
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.INVALID_PARAMETER,
    )
    beyond = peer.call(pull_command(2**60))
    assert beyond.code == ResponseCode.PULL_OFFSET_MOVED
    assert beyond.ext_fields is not None and int(beyond.ext_fields["nextBeginOffset"]) < 2**59
    assert peer.call(pull_command(-5)).code in (
        ResponseCode.PULL_OFFSET_MOVED,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
    )


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.HEART_BEAT,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.CHECK_CLIENT_CONFIG,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    ],
)
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"7", b'{"clientID":[]}', b"\xff\xfe"])
def test_bodies_that_are_not_what_they_should_be(peer: Peer, code: RequestCode, body: bytes) -> None:
    """Refused, or taken as empty; the connection goes on in any case."""
    answer = peer.call(RemotingCommand(code=code, body=body))
    assert answer.code == 0 or answer.remark
    assert peer.call(send_command(b"next")).code == 0


def test_an_unknown_group_has_no_offset(peer: Peer) -> None:
    header = QueryConsumerOffsetRequestHeader(
        consumer_group="nobody", topic="NoSuchTopic", queue_id=0, set_zero_if_not_found=False
    )
    answer = peer.call(RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header))
    assert answer.code == ResponseCode.QUERY_NOT_FOUND


# -- bytes that are no requests ------------------------------------------------------------------------------


def test_random_bytes(broker: Broker) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    random_source = random.Random(seed)
    before = broker.anonymous_bytes
    for _ in range(200):
        other = broker.connect()
        try:
            other.socket.sendall(random_source.randbytes(random_source.randrange(1, 5_000)))
        except OSError:
            pass  # closed while we were still sending
        other.close()
    assert broker.anonymous_bytes - before < MEMORY_BOUND_BYTES


def test_frames_with_a_damaged_header(broker: Broker) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    random_source = random.Random(seed)
    frame = send_command(b"body").encode()
    for _ in range(300):
        damaged = bytearray(frame)
        damaged[random_source.randrange(8, len(frame))] = random_source.randrange(256)
        with closing(broker.connect()) as other:
            other.socket.sendall(damaged)
            if wants_answer(damaged):
                other.socket.recv(65_536)  # whatever it says, or the end of the connection


def wants_answer(frame: bytearray) -> bool:
    """Whether it is no frame at all, or still a request to answer: a digit of its flag makes it another."""
    try:
        command = decode_command(FrameDecoder().feed(bytes(frame))[0])
    except ProtocolError:
        return True
    return not (command.is_response or command.is_oneway)


# -- too much ------------------------------------------------------------------------------------------------


def test_a_flood_of_sends_is_answered_whole_and_others_go_on(broker: Broker) -> None:
    """Every request of four peers gets its answer: taken, or SYSTEM_BUSY; a fifth does not wait for them."""
    count = 3_000
    before = broker.anonymous_bytes
    with ExitStack() as open_peers:
        peers = [broker.connect() for _ in range(4)]
        for flooding in peers:
            open_peers.callback(flooding.close)
            flooding.socket.setblocking(False)
        frame = send_command(b"x" * 1024).encode()
        sent, received = _flood(broker, peers, frame * count, count)
        assert received == [count] * len(peers)
        assert sent == [len(frame) * count] * len(peers)
    assert broker.anonymous_bytes - before < MEMORY_BOUND_BYTES


def _flood(broker: Broker, peers: list[Peer], data: bytes, count: int) -> tuple[list[int], list[int]]:
    """Write and read as the sockets allow, and look in between whether another peer is served."""
    sent = [0] * len(peers)
    received = [0] * len(peers)
    decoders = [FrameDecoder() for _ in peers]
    deadline = time.monotonic() + 60
    looked = 0
    while min(received) < count and time.monotonic() < deadline:
        for number, peer in enumerate(peers):
            sent[number] += _write_some(peer, data, sent[number])
            received[number] += len(decoders[number].feed(_read_some(peer)))
        if min(received) > looked:
            looked += count // 5
            started = time.monotonic()
            assert broker.good.call(send_command(b"in between")).code == 0
            assert time.monotonic() - started < 10
    return sent, received


def _write_some(peer: Peer, data: bytes, begin: int) -> int:
    try:
        return peer.socket.send(memoryview(data)[begin : begin + 65_536])
    except BlockingIOError:
        return 0


def _read_some(peer: Peer) -> bytes:
    try:
        return peer.socket.recv(1 << 20)
    except BlockingIOError:
        return b""


def test_peers_that_send_and_never_read(broker: Broker) -> None:
    frame = send_command(b"x" * 100).encode()
    before = broker.anonymous_bytes
    with ExitStack() as open_peers:
        for _ in range(2):
            silent = broker.connect()
            open_peers.callback(silent.close)
            # Nobody reads: the broker stops reading too, long before all is sent.
            assert _write_until_stuck(silent, frame * 500, 60_000_000) < 60_000_000
        broker.assert_serves()
        assert broker.anonymous_bytes - before < MEMORY_BOUND_BYTES


def test_peers_that_pull_and_never_read(broker: Broker) -> None:
    """Each pull asks for megabytes; the broker keeps few of them."""
    for _ in range(64):
        assert broker.good.call(send_command(b"x" * 100_000, topic="heavy")).code == 0
    frame = pull_command(0, topic="heavy").encode()
    before = broker.anonymous_bytes
    with ExitStack() as open_peers:
        for _ in range(3):
            silent = broker.connect()
            silent.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            open_peers.callback(silent.close)
            assert _write_until_stuck(silent, frame * 500, 20_000_000) < 20_000_000
        broker.assert_serves()
        assert broker.anonymous_bytes - before < MEMORY_BOUND_BYTES


def _write_until_stuck(peer: Peer, data: bytes, limit_bytes: int) -> int:
    peer.socket.settimeout(0.5)
    sent = 0
    try:
        while sent < limit_bytes:
            sent += peer.socket.send(data)
    except (TimeoutError, ConnectionError):
        pass
    return sent


def test_thousands_of_held_pulls_go_with_their_connection(broker: Broker) -> None:
    queue_offset = _end_of_queue(broker)
    frame = pull_command(queue_offset, suspend_ms=60_000).encode()
    before = broker.anonymous_bytes
    waiting = broker.connect()
    waiting.socket.sendall(frame * 5_000)
    broker.assert_serves()
    waiting.close()
    broker.assert_serves()
    assert broker.anonymous_bytes - before < MEMORY_BOUND_BYTES


def _end_of_queue(broker: Broker) -> int:
    sent = broker.good.call(send_command(b"last"))
    assert sent.ext_fields is not None
    return int(sent.ext_fields["queueOffset"]) + 1


def test_thousands_of_connections_that_do_nothing(broker: Broker) -> None:
    count = 2_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * count:
        pytest.skip(f"the limit of open files here is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    before = broker.anonymous_bytes
    peers = [broker.connect() for _ in range(count)]
    try:
        broker.assert_serves()
        assert (broker.anonymous_bytes - before) / count < 20_000
    finally:
        for idle in peers:
            idle.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
