"""Producer and TransactionProducer, from plain threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.producer_hooks import ProducerHook
from kourou.client.producer.send_result import SendStatus
from kourou.client.sync.producer import Producer
from kourou.client.sync.pull_consumer import PullConsumer
from kourou.client.sync.push_consumer import PushConsumer
from kourou.client.sync.transaction_producer import TransactionProducer
from kourou.errors import ClientStateError, MessageRefusedError, TooManyRequestsError
from kourou.protocol.message import Message, MessageExt
from tests.e2e.client.kit.pull_kit import TOPIC, ClusterThread, cluster_thread, numbered

pytestmark = pytest.mark.e2e


@pytest.fixture
def running(tmp_path: Path) -> Iterator[ClusterThread]:
    with cluster_thread(tmp_path, transaction_check_interval=100, transaction_time_out=100) as cluster:
        yield cluster


def stored(running: ClusterThread) -> list[bytes]:
    """Every body of the topic."""
    with PullConsumer("readers", namesrv=running.namesrv_addr) as consumer:
        return [
            message.body
            for queue in consumer.fetch_queues(TOPIC)
            for chunk in consumer.read(queue)
            for message in chunk.messages()
        ]


def test_many_threads_send_at_once(running: ClusterThread) -> None:
    with Producer("producers", namesrv=running.namesrv_addr) as producer:

        def send(first: int) -> list[str]:
            return [producer.send(Message(TOPIC, body)).msg_id for body in numbered(25, first)]

        with ThreadPoolExecutor(32) as pool:
            ids = [msg_id for some in pool.map(send, range(0, 32 * 25, 25)) for msg_id in some]
        assert len(set(ids)) == 800
        assert producer.stats().in_flight == 0
    assert sorted(stored(running)) == sorted(numbered(800))


def test_sends_with_choices_batches_and_one_way(running: ClusterThread) -> None:
    with Producer("producers", namesrv=running.namesrv_addr) as producer:
        assert producer.group == "producers" and producer.options.send_timeout_ms == 3_000
        first = producer.send(Message(TOPIC, b"0"))
        assert first.status is SendStatus.SEND_OK
        queues = producer.queues(TOPIC)
        assert producer.send(Message(TOPIC, b"1"), queue=queues[2]).queue == queues[2]
        chosen = producer.send(Message(TOPIC, b"2"), selector=lambda all_, message, arg: all_[1], arg=None)
        assert chosen.queue == queues[1]
        same = {producer.send(Message(TOPIC, b"3"), sharding_key="order-1").queue for _ in range(5)}
        assert len(same) == 1
        assert len(producer.send_many(Message(TOPIC, body) for body in numbered(10))) == 10
        producer.send_oneway(Message(TOPIC, b"4"))
        producer.send(Message(TOPIC, bytes(100_000)))  # large: compressed in a thread
        producer.flush()
        with pytest.raises(MessageRefusedError):
            producer.send(Message("SCHEDULE_TOPIC_XXXX", b"x"))


def test_pipelined_sends_of_one_thread_keep_their_order(running: ClusterThread) -> None:
    with Producer("producers", namesrv=running.namesrv_addr) as producer:
        producer.send(Message(TOPIC, b"first"))
        queue = producer.queues(TOPIC)[0]
        sends = [producer.send_nowait(Message(TOPIC, body), queue=queue) for body in numbered(500)]
        offsets = [each.result(10).queue_offset for each in sends]
        assert offsets == sorted(offsets)


def test_sends_beyond_the_limit_wait_and_nowait_is_refused(running: ClusterThread) -> None:
    with Producer("producers", namesrv=running.namesrv_addr, max_in_flight=2) as producer:
        producer.send(Message(TOPIC, b"first"))
        with ThreadPoolExecutor(16) as pool:
            assert len(list(pool.map(lambda body: producer.send(Message(TOPIC, body)), numbered(200)))) == 200
        futures = [producer.send_nowait(Message(TOPIC, b"x")) for _ in range(50)]
        problems = [each.exception(10) for each in futures]
        assert any(isinstance(problem, TooManyRequestsError) for problem in problems)
        assert None in problems


def test_a_request_gets_its_reply(running: ClusterThread) -> None:
    namesrv = running.namesrv_addr
    with (
        Producer("repliers", namesrv=namesrv) as replier,
        Producer("requesters", namesrv=namesrv) as requester,
        PushConsumer("answering", namesrv=namesrv, consume_from="first") as consumer,
    ):
        requester.send(Message(TOPIC, b"makes the topic"), timeout_ms=5_000)

        def answer(message: MessageExt) -> None:
            if message.body == b"ping":
                replier.send(replier.reply_to(message, b"pong"))

        consumer.subscribe(TOPIC, answer)
        reply = requester.request(Message(TOPIC, b"ping"), timeout_ms=10_000)
        assert reply.body == b"pong"


# -- transactions --------------------------------------------------------------------------------


def test_a_block_commits_rolls_back_or_leaves_it_to_the_check(running: ClusterThread) -> None:
    asked = threading.Event()

    def check(message: MessageExt) -> TransactionState:
        asked.set()
        return TransactionState.COMMIT if message.body == b"unknown" else TransactionState.ROLLBACK

    with TransactionProducer("in-transactions", namesrv=running.namesrv_addr, check=check) as producer:
        with producer.transaction(Message(TOPIC, b"committed")) as transaction:
            assert transaction.msg_id
        with pytest.raises(ZeroDivisionError), producer.transaction(Message(TOPIC, b"failed")):
            raise ZeroDivisionError
        with producer.transaction(Message(TOPIC, b"rolled back")) as transaction:
            transaction.rollback()
        with producer.transaction(Message(TOPIC, b"unknown")) as transaction:
            transaction.unknown()
        assert asked.wait(20)
        for _ in range(200):
            if b"unknown" in stored(running):
                break
        assert sorted(stored(running)) == [b"committed", b"unknown"]


def test_ctrl_c_in_a_block_rolls_back(running: ClusterThread) -> None:
    def check(message: MessageExt) -> TransactionState:
        return TransactionState.UNKNOWN

    with TransactionProducer("in-transactions", namesrv=running.namesrv_addr, check=check) as producer:
        with pytest.raises(KeyboardInterrupt), producer.transaction(Message(TOPIC, b"interrupted")) as tx:
            raise KeyboardInterrupt
        assert tx.state is TransactionState.ROLLBACK
        assert producer.stats().transactions_rolled_back == 1
        assert producer.send(Message(TOPIC, b"plain")).status is SendStatus.SEND_OK
    assert stored(running) == [b"plain"]


def test_a_local_transaction_runs_in_the_callers_thread(running: ClusterThread) -> None:
    threads: list[threading.Thread] = []

    def local(message: Message) -> TransactionState:
        threads.append(threading.current_thread())
        if message.body == b"raises":
            raise ValueError("in the local transaction")
        return TransactionState.COMMIT

    def interrupted(message: Message) -> TransactionState:
        raise KeyboardInterrupt

    def check(message: MessageExt) -> TransactionState:
        return TransactionState.ROLLBACK

    with TransactionProducer("in-transactions", namesrv=running.namesrv_addr, check=check) as producer:
        result = producer.send_in_transaction(Message(TOPIC, b"committed"), local)
        assert (result.state, result.error) == (TransactionState.COMMIT, None)
        result = producer.send_in_transaction(Message(TOPIC, b"raises"), local)
        assert result.state is TransactionState.UNKNOWN and isinstance(result.error, ValueError)
        with pytest.raises(MessageRefusedError, match="delayed"):
            producer.send_in_transaction(Message(TOPIC, b"x", delay_time_level=3), local)
        assert threads == [threading.current_thread()] * 2
        with pytest.raises(KeyboardInterrupt):
            producer.send_in_transaction(Message(TOPIC, b"interrupted"), interrupted)
        producer.send(Message(TOPIC, b"plain"))
    assert producer.stats().transactions_unknown == 2
    assert sorted(stored(running)) == [b"committed", b"plain"]
    with pytest.raises(ClientStateError, match="is stopped"):
        producer.send_in_transaction(Message(TOPIC, b"x"), local)


def test_a_hook_sees_the_context_variables_of_callers(running: ClusterThread) -> None:
    """Of many threads at once, whose calls share a wake-up of the loop."""
    caller: ContextVar[str] = ContextVar("caller")

    class Hook(ProducerHook):
        def prepare(self, messages: Sequence[Message]) -> None:
            for message in messages:
                message.put_user_property("caller", caller.get())

    options: Any = {"namesrv": running.namesrv_addr, "hooks": [Hook()]}
    with (
        Producer("producers", **options) as producer,
        TransactionProducer("tx", check=lambda message: TransactionState.COMMIT, **options) as transactions,
    ):

        def send(number: int) -> list[Message]:
            caller.set(str(number))
            messages = [Message(TOPIC, b"x") for _ in range(6)]
            producer.send(messages[0])
            producer.send_nowait(messages[1]).result()
            producer.send_oneway(messages[2])
            producer.send_many(messages[3:5])
            with transactions.transaction(messages[5]):
                pass
            return messages

        with ThreadPoolExecutor(8) as pool:
            for number, messages in enumerate(pool.map(send, range(8))):
                assert {message.properties["caller"] for message in messages} == {str(number)}
