"""Every request of every client is signed: heartbeats, one-way requests and those to name servers, too."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from typing import Any

import msgspec
import pytest

from kourou import (
    AsyncProducer,
    AsyncPullConsumer,
    ConsumeResult,
    Credentials,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    QueueReader,
    TransactionProducer,
    TransactionState,
)
from kourou.access.model import AccessCall, Needs
from kourou.access.signatures import is_signed_by
from kourou.admin.session import Admin
from kourou.admin.topics import topic_names
from kourou.protocol.codes import RequestCode
from kourou.protocol.frame import FrameDecoder
from kourou.testing import LocalCluster
from kourou.transport.connection import Connection

pytestmark = pytest.mark.e2e

KEYS = Credentials("ann", "the-secret", "a-token")
TOPIC = "SignedOrders"
_ONEWAY = 2
# What brokers send: they have keys of their own.
_OF_BROKERS = {
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.QUERY_DATA_VERSION,
    RequestCode.BROKER_HEARTBEAT,
    RequestCode.GET_BROKER_MEMBER_GROUP,
    RequestCode.END_KOUROU_ATOMIC,
}


@dataclass
class Recorder:
    """The requests that servers have received from clients."""

    ports: set[str] = field(default_factory=set)
    signed: set[tuple[int, bool]] = field(default_factory=set)
    """Code, and whether it was one-way."""
    unsigned: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    changed: threading.Event = field(default_factory=threading.Event)
    _decoders: dict[Connection, FrameDecoder] = field(default_factory=dict)

    def record(self, connection: Connection, data: bytes) -> None:
        if connection.local_address.rpartition(":")[2] not in self.ports:
            return
        for _, header, frame_body in self._decoders.setdefault(connection, FrameDecoder(2**24)).feed(data):
            head = msgspec.json.decode(header)
            if not head["flag"] & 1 and head["code"] not in _OF_BROKERS:
                self._request(head, bytes(frame_body))

    def _request(self, head: dict[str, Any], body: bytes) -> None:
        code, fields = head["code"], {key: str(value) for key, value in (head.get("extFields") or {}).items()}
        call = AccessCall(
            code=code, version=head["version"], fields=fields, body=body, address="", needs=Needs()
        )
        if call.access_key == KEYS.access_key and is_signed_by(call, KEYS.secret_key):
            self.signed.add((code, bool(head["flag"] & _ONEWAY)))
        else:
            self.unsigned.append((code, fields))
        self.changed.set()

    def wait(self, *codes: int) -> None:
        """Wait until requests of these codes have come."""
        while missing := {*codes} - {code for code, _ in self.signed}:
            assert not self.unsigned, self.unsigned
            self.changed.clear()
            assert self.changed.wait(20), f"not seen: {missing}"


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    received = Connection.data_received

    def data_received(self: Connection, data: bytes) -> None:
        recorder.record(self, data)
        received(self, data)

    monkeypatch.setattr(Connection, "data_received", data_received)
    return recorder


@pytest.fixture
def cluster(recorder: Recorder) -> Iterator[LocalCluster]:
    """Its own requests, which are not signed, come before the recording."""
    soon = {"transaction_time_out": 50, "transaction_check_interval": 50, "transaction_check_max": 1000}
    with LocalCluster(**soon) as running:
        running.create_topic(TOPIC, queues=1)
        recorder.ports = {
            address.rpartition(":")[2] for address in (running.namesrv, *running.broker_addresses)
        }
        yield running
        recorder.ports = set()
    assert recorder.unsigned == []


def sent(cluster: LocalCluster, *bodies: bytes) -> None:
    with Producer("senders", namesrv=cluster.namesrv, credentials=KEYS) as producer:
        producer.send_many([Message(TOPIC, body, keys=body.decode()) for body in bodies])


def test_producers(cluster: LocalCluster, recorder: Recorder) -> None:
    message = Message(TOPIC, b"order", keys="1")
    with Producer("senders", namesrv=cluster.namesrv, credentials=KEYS, trace=True) as producer:
        producer.send(message)
        producer.send_oneway(message)
        producer.send_many([message, message])
        producer.send(message, sharding_key="ann")
        recorder.wait(RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.HEART_BEAT)
    recorder.wait(RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.UNREGISTER_CLIENT)
    assert (RequestCode.SEND_MESSAGE_V2, True) in recorder.signed


def test_idempotent_and_atomic_producers(cluster: LocalCluster, recorder: Recorder) -> None:
    with Producer(
        "once", namesrv=cluster.namesrv, credentials=KEYS, idempotent=True, name="signed"
    ) as producer:
        producer.send(Message(TOPIC, b"order"))
        with producer.atomic() as batch:
            batch.send(Message(TOPIC, b"together"))
    recorder.wait(RequestCode.OPEN_KOUROU_PRODUCER, RequestCode.SEND_MESSAGE_V2)
    assert len({code for code, _ in recorder.signed if code >= 29_000}) >= 3, recorder.signed


def test_transactions_and_their_checks(cluster: LocalCluster, recorder: Recorder) -> None:
    checked = threading.Event()

    def check(message: MessageExt) -> TransactionState:
        checked.set()
        return TransactionState.COMMIT

    with TransactionProducer("deals", namesrv=cluster.namesrv, credentials=KEYS, check=check) as producer:
        producer.send_in_transaction(Message(TOPIC, b"deal"), lambda _: TransactionState.UNKNOWN)
        assert checked.wait(20)
        recorder.wait(RequestCode.END_TRANSACTION)
    assert (RequestCode.END_TRANSACTION, True) in recorder.signed


def test_request_and_reply(cluster: LocalCluster, recorder: Recorder) -> None:
    options: dict[str, Any] = {"namesrv": cluster.namesrv, "credentials": KEYS}
    with Producer("answers", **options) as replies, Producer("questions", **options) as producer:

        def answer(message: MessageExt) -> None:
            replies.send(replies.reply_to(message, b"yes"))

        with PushConsumer("answering", **options, consume_from="first") as consumer:
            consumer.subscribe(TOPIC, answer)
            assert producer.request(Message(TOPIC, b"is it signed?"), timeout_ms=20_000).body == b"yes"
    recorder.wait(RequestCode.SEND_REPLY_MESSAGE_V2)


@pytest.mark.parametrize("options", [{}, {"orderly": True}, {"model": "broadcasting"}], ids=repr)
def test_push_consumers(
    cluster: LocalCluster, recorder: Recorder, options: dict[str, Any], tmp_path: Path
) -> None:
    sent(cluster, b"1", b"2")
    seen: Queue[bytes] = Queue()

    def handle(message: MessageExt) -> ConsumeResult:
        seen.put(message.body)
        return ConsumeResult.SUCCESS if message.body == b"2" else ConsumeResult.LATER

    keys: dict[str, Any] = {"namesrv": cluster.namesrv, "credentials": KEYS, "trace": True}
    with PushConsumer(
        "billing", **keys, **options, consume_from="first", offset_store_dir=tmp_path, persist_interval_ms=50
    ) as consumer:
        consumer.subscribe(TOPIC, handle)
        seen.get(timeout=20)
        recorder.wait(RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT)
        if options.get("orderly"):
            recorder.wait(RequestCode.LOCK_BATCH_MQ)
        elif not options:
            recorder.wait(RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.UPDATE_CONSUMER_OFFSET)
    recorder.wait(RequestCode.UNREGISTER_CLIENT)


def test_lite_pull_consumers(cluster: LocalCluster, recorder: Recorder) -> None:
    sent(cluster, b"1", b"2")
    with LitePullConsumer(
        "lite", namesrv=cluster.namesrv, credentials=KEYS, consume_from="first"
    ) as consumer:
        consumer.subscribe(TOPIC)
        while not consumer.poll(timeout_ms=5_000):
            continue
        consumer.commit()
    recorder.wait(
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    )


async def test_pull_consumers_and_readers(cluster: LocalCluster, recorder: Recorder) -> None:
    options: dict[str, Any] = {"namesrv": cluster.namesrv, "credentials": KEYS}
    async with AsyncProducer("senders", **options) as producer:
        await producer.send(Message(TOPIC, b"1"))
    async with AsyncPullConsumer("reports", **options) as consumer:
        [queue] = await consumer.fetch_queues(TOPIC)
        assert (await consumer.pull(queue, queue_offset=0)).messages()
        await consumer.commit(queue, 1)
        await consumer.committed(queue)
        await consumer.max_offset(queue)
        await consumer.min_offset(queue)
        await consumer.search_offset(queue, 0)
        async with QueueReader(queue, begin_offset=0, end_offset=1, **options) as reader:
            assert [chunk async for chunk in reader]
    assert {code for code, _ in recorder.signed} >= {
        RequestCode.PULL_MESSAGE,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    }


async def test_admin_sessions(cluster: LocalCluster, recorder: Recorder) -> None:
    async with Admin(namesrv=cluster.namesrv, credentials=KEYS) as admin:
        assert TOPIC in await topic_names(admin)
        for broker in await admin.brokers():
            assert broker
    assert RequestCode.GET_BROKER_CLUSTER_INFO in {code for code, _ in recorder.signed}
