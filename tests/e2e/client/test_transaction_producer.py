"""AsyncTransactionProducer: each half ends once, and as the application says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.producer_hooks import EndTransactionContext, ProducerHook
from kourou.client.transactions.transaction_producer import AsyncTransactionProducer
from kourou.errors import ClientStateError, MessageRefusedError, SendFailedError
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.transactions import EndTransactionRequestHeader
from kourou.protocol.message import Message, MessageExt
from kourou.testing.cluster import Cluster, cluster
from kourou.transport.request import Request
from tests.e2e.broker.transaction_kit import halves, until
from tests.e2e.client.kit.producer_kit import TOPIC, all_stored, linked_broker, pair
from tests.e2e.client.kit.scripted_broker import scripted, stored

pytestmark = pytest.mark.e2e

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
# Halves are asked about soon: milliseconds, as the broker's keys are.
SOON: dict[str, Any] = {
    "transaction_time_out": 50,
    "transaction_check_interval": 50,
    "transaction_check_max": 1000,
}


class Check:
    """The application's check: `answers` by key, UNKNOWN for others."""

    def __init__(self, **answers: TransactionState) -> None:
        self.answers = answers
        self.asked: list[MessageExt] = []

    def __call__(self, message: MessageExt) -> TransactionState:
        self.asked.append(message)
        return self.answers.get(message.keys[0], UNKNOWN)


@asynccontextmanager
async def producing(
    namesrv_addr: str, check: Any = None, **options: Any
) -> AsyncIterator[AsyncTransactionProducer]:
    async with AsyncTransactionProducer(
        "TxGroup", namesrv=namesrv_addr, check=check or Check(), **options
    ) as producer:
        failed = asyncio.ensure_future(producer.wait_failed())
        yield producer
        assert not failed.done(), failed
    await failed


def message(key: str = "order-1", body: bytes = b"order") -> Message:
    return Message(TOPIC, body, keys=[key])


def delivered(running: Cluster) -> list[bytes]:
    return [record.body for record in all_stored(running.broker)]


# -- the block -----------------------------------------------------------------------------------------


async def test_a_block_left_in_order_commits(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        async with producer.transaction(message()) as tx:
            (half,) = halves(running.broker)
            assert half.msg_id == tx.msg_id and tx.state is None
            assert half.get_property("TRAN_MSG") == "true" and half.get_property("PGROUP") == "TxGroup"
            assert delivered(running) == []
        # The broker has confirmed it: no wait is needed.
        (record,) = all_stored(running.broker)
        assert (record.body, record.msg_id, record.transaction_id) == (b"order", tx.msg_id, tx.msg_id)
        assert tx.state is COMMIT and producer.stats().transactions_committed == 1
        with pytest.raises(ClientStateError, match="has ended; its outcome cannot change"):
            tx.rollback()


async def test_an_exception_rolls_back_and_goes_on(tmp_path: Path) -> None:
    check = Check()
    async with cluster(tmp_path, **SOON) as running, producing(running.namesrv_addr, check) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(message()):
                _ = 1 // 0
        async with producer.transaction(message("order-2", b"second")) as tx:
            tx.rollback()
        async with producer.transaction(message("order-3", b"third")):
            pass
        assert delivered(running) == [b"third"]
        assert producer.stats().transactions_rolled_back == 2
        assert check.asked == []


async def test_a_cancelled_block_rolls_back(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        inside = asyncio.Event()

        async def work() -> None:
            async with producer.transaction(message()):
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.ensure_future(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert producer.stats().transactions_rolled_back == 1
        assert delivered(running) == []


async def test_unknown_is_left_to_the_check(tmp_path: Path) -> None:
    check = Check(yes=COMMIT, no=ROLLBACK)
    async with cluster(tmp_path, **SOON) as running, producing(running.namesrv_addr, check) as producer:
        for key in ("yes", "no"):
            async with producer.transaction(message(key, key.encode())) as tx:
                tx.unknown()
                with pytest.raises(ClientStateError, match="cannot be COMMIT too"):
                    tx.commit()
        await until(lambda: delivered(running) == [b"yes"], "the committed one")
        await until(lambda: len(check.asked) >= 2, "both are asked for")
        asked = check.asked[0]
        assert (asked.topic, asked.get_property("PGROUP"), asked.broker_name) == (
            TOPIC,
            "TxGroup",
            "broker-a",
        )
        assert producer.stats().transaction_checks >= 2


async def test_an_async_check_and_one_that_fails_at_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = []

    async def check(message: MessageExt) -> TransactionState:
        asked.append(message.msg_id)
        await asyncio.sleep(0)
        if len(asked) == 1:
            raise RuntimeError("the database is away")
        return "commit" if len(asked) == 2 else COMMIT  # type: ignore[return-value]

    async with cluster(tmp_path, **SOON) as running, producing(running.namesrv_addr, check) as producer:
        async with producer.transaction(message()) as tx:
            tx.unknown()
        await until(lambda: delivered(running) == [b"order"], "the message", timeout_s=10)
    assert asked[:3] == [tx.msg_id] * 3
    assert "the database is away" in caplog.text and "it has to return a TransactionState" in caplog.text


async def test_an_open_block_is_not_decided_by_the_check(tmp_path: Path) -> None:
    check = Check(**{"order-1": ROLLBACK})
    async with cluster(tmp_path, **SOON) as running, producing(running.namesrv_addr, check) as producer:
        async with producer.transaction(message()):
            await until(lambda: producer.stats().transaction_checks >= 2, "the broker has asked")
        await until(lambda: delivered(running) == [b"order"], "the message")
        assert check.asked == []


async def test_an_end_that_did_not_reach_the_broker_is_sent_again_when_it_checks(tmp_path: Path) -> None:
    check = Check(**{"order-1": ROLLBACK})
    async with linked_broker(tmp_path, **SOON) as (namesrv, broker, link):
        async with producing(namesrv, check, heartbeat_interval_ms=50) as producer:
            async with producer.transaction(message()):
                link.freeze()
                link.cut()
            link.thaw()
            await until(lambda: len(all_stored(broker)) == 1, "the message", timeout_s=20)
            assert check.asked == [], "its outcome is known here"


async def test_what_cannot_be_sent_is_an_error_before_the_block(tmp_path: Path) -> None:
    entered = False
    async with pair(tmp_path) as running, producing(running.namesrv_addr) as producer:
        running.codes = dict.fromkeys(("broker-a", "broker-b"), 2)
        with pytest.raises(SendFailedError, match="answered code 2"):
            async with producer.transaction(message()):
                entered = True
        with pytest.raises(MessageRefusedError, match="cannot be delayed"):
            async with producer.transaction(Message(TOPIC, b"x", delay_time_level=1)):
                entered = True
        assert not entered
        running.codes.clear()
        async with producer.transaction(message()):
            pass


async def test_a_half_that_is_not_safe_is_rolled_back_and_the_block_not_run() -> None:
    ends: list[Request] = []

    def end(request: Request) -> None:
        ends.append(request)
        request.reply()

    others = {RequestCode.END_TRANSACTION: end}
    async with scripted(stored(10), others=others) as broker, producing(broker.address) as producer:
        with pytest.raises(
            SendFailedError, match="broker scripted stored the half message unsafely: FLUSH_DISK"
        ):
            async with producer.transaction(message()):
                raise AssertionError("the block was run")
        header = ends[0].header(EndTransactionRequestHeader)
        assert (header.commit_or_rollback, header.tran_state_table_offset) == (12, 5)
        result = await producer.send_in_transaction(message(), lambda message: COMMIT)
        assert (result.state, result.error) == (ROLLBACK, None)
        assert ends[1].header(EndTransactionRequestHeader).commit_or_rollback == 12


async def test_each_transaction_has_an_id_of_its_own(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        same = message()
        async with producer.transaction(same) as first:
            pass
        async with producer.transaction(same) as second:
            second.rollback()
        assert first.msg_id != second.msg_id
        assert [record.msg_id for record in all_stored(running.broker)] == [first.msg_id]


# -- as Java's -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_async", [True, False])
async def test_send_in_transaction_ends_as_the_local_transaction_says(tmp_path: Path, is_async: bool) -> None:
    def decide(sent: Message) -> TransactionState:
        if sent.body == b"fails":
            raise RuntimeError("no idea")
        return COMMIT if sent.body == b"good" else ROLLBACK

    async def decide_later(sent: Message) -> TransactionState:
        return decide(sent)

    local: Any = decide_later if is_async else decide
    check = Check(fails=COMMIT)
    async with cluster(tmp_path, **SOON) as running, producing(running.namesrv_addr, check) as producer:
        good = await producer.send_in_transaction(message(body=b"good"), local)
        bad = await producer.send_in_transaction(message(body=b"bad"), local)
        fails = await producer.send_in_transaction(message("fails", b"fails"), local)
        assert (good.state, bad.state, fails.state) == (COMMIT, ROLLBACK, UNKNOWN)
        assert good.error is bad.error is None and str(fails.error) == "no idea"
        await until(lambda: sorted(delivered(running)) == [b"fails", b"good"], "good, and the one checked")
        assert {asked.msg_id for asked in check.asked} == {fails.msg_id}


# -- life ----------------------------------------------------------------------------------------------


async def test_stop_waits_for_open_blocks(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        producer = AsyncTransactionProducer("TxGroup", namesrv=running.namesrv_addr, check=Check())
        await producer.start()
        inside, go_on = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            async with producer.transaction(message()):
                inside.set()
                await go_on.wait()

        working = asyncio.ensure_future(work())
        await inside.wait()
        stopping = asyncio.ensure_future(producer.stop())
        await asyncio.sleep(0)
        with pytest.raises(ClientStateError, match="is stopping"):
            async with producer.transaction(message()):
                pass
        assert not stopping.done()
        go_on.set()
        await asyncio.gather(working, stopping)
        assert delivered(running) == [b"order"]


async def test_a_block_that_outlives_its_producer_is_left_to_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, **SOON) as running:
        producer = AsyncTransactionProducer(
            "TxGroup", namesrv=running.namesrv_addr, check=Check(), send_timeout_ms=500
        )
        await producer.start()
        with pytest.raises(ClientStateError, match="stopped before transaction .* ended"):
            async with producer.transaction(message()):
                await producer.stop()
        assert "stopped with 1 transaction open; brokers will send checks" in caplog.text
        assert delivered(running) == []
        # The next process of the application answers for it, though it has sent nothing yet.
        check = Check(**{"order-1": COMMIT})
        async with producing(running.namesrv_addr, check):
            await until(lambda: delivered(running) == [b"order"], "the message", timeout_s=10)
            assert len(check.asked) == 1


async def test_a_group_with_and_without_transactions_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kourou.client")
    async with cluster(tmp_path) as running, producing(running.namesrv_addr):
        async with AsyncProducer("Other", namesrv=running.namesrv_addr):
            assert "with and without transactions" not in caplog.text
        async with AsyncProducer("TxGroup", namesrv=running.namesrv_addr):
            assert "producer group 'TxGroup' is used with and without transactions" in caplog.text
    caplog.clear()
    async with cluster(tmp_path / "2") as running, AsyncProducer("TxGroup", namesrv=running.namesrv_addr):
        assert caplog.text == ""


async def test_hooks_see_how_transactions_end(tmp_path: Path) -> None:
    ends: list[tuple[str, TransactionState, bool]] = []

    class Hook(ProducerHook):
        def end_transaction(self, context: EndTransactionContext) -> None:
            ends.append((context.msg_id, context.state, context.from_transaction_check))

    check = Check(**{"order-1": COMMIT})
    async with cluster(tmp_path, **SOON) as running:
        async with producing(running.namesrv_addr, check, hooks=[Hook()]) as producer:
            async with producer.transaction(message()) as tx:
                tx.unknown()
            await until(lambda: delivered(running) == [b"order"], "the message")
    assert ends[:2] == [(tx.msg_id, UNKNOWN, False), (tx.msg_id, COMMIT, True)]


async def test_a_namespace_is_not_shown_to_the_check(tmp_path: Path) -> None:
    check = Check(**{"order-1": COMMIT})
    async with cluster(tmp_path, **SOON) as running:
        async with producing(running.namesrv_addr, check, namespace="shop") as producer:
            async with producer.transaction(message()) as tx:
                tx.unknown()
            await until(lambda: len(all_stored(running.broker, f"shop%{TOPIC}")) == 1, "the message")
        assert check.asked[0].topic == TOPIC


def test_a_check_is_needed() -> None:
    with pytest.raises(TypeError, match="check is a function that gets a message"):
        AsyncTransactionProducer("TxGroup", check=None)  # type: ignore[arg-type]
