"""Transactions on a real broker: halves, their ends, the questions, restarts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kourou.embed import BrokerHooks, GivenUpTransaction, TransactionEnd
from kourou.errors import CallTimeoutError
from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.send import SendMessageResponseHeader
from kourou.protocol.headers.transactions import ResumeCheckHalfMessageRequestHeader
from kourou.protocol.names import CID_SYS_RMQ_TRANS, RMQ_SYS_TRANS_HALF_TOPIC, RMQ_SYS_TRANS_OP_HALF_TOPIC
from tests.e2e.broker.broker_kit import Peer, messages, running, send_header
from tests.e2e.broker.transaction_kit import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    Half,
    halves,
    now_ms,
    ops,
    producing,
    stored,
    until,
)

pytestmark = pytest.mark.e2e

DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
SOON: dict[str, Any] = {"transaction_time_out": 1, "transaction_check_interval": 20}
NEVER: dict[str, Any] = {"transaction_check_interval": 3_600_000}


async def visible(peer: Peer, **fields: Any) -> list[bytes]:
    """All that a consumer gets, in as many pulls as it takes."""
    bodies: list[bytes] = []
    while found := messages(await peer.pull(queue_offset=len(bodies), **fields)):
        bodies += [message.body for message in found]
    return bodies


# -- sending -----------------------------------------------------------------------------------------


async def test_a_half_is_stored_aside_and_is_not_visible(tmp_path: Path) -> None:
    async with running(tmp_path) as peer, producing(peer.controller.address) as producer:
        answer = await producer.try_half(
            b"half",
            "TX1",
            queue_id=3,
            more="REAL_TOPIC\x01Other\x02TRANSACTION_CHECK_TIMES\x019\x02__KOUROU_MOVED_FROM\x010\x02",
        )
        header = answer.header(SendMessageResponseHeader)
        assert (header.queue_id, header.queue_offset, header.transaction_id) == (3, 0, "TX1")
        (half,) = halves(peer.controller)
        assert (half.queue_id, half.sys_flag, half.stored_body) == (0, 0, b"half")
        assert header.msg_id == half.offset_msg_id
        assert half.properties == {
            "TRAN_MSG": "true",
            "PGROUP": "PG",
            "UNIQ_KEY": "TX1",
            "TAGS": "T",
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
            "CLUSTER": "DefaultCluster",
            "__transactionId__": "TX1",
            "REAL_TOPIC": "TopicTest",
            "REAL_QID": "3",
        }
        assert await visible(peer, queue_id=3) == []


async def test_what_cannot_be_a_half_is_refused_in_clear_words(tmp_path: Path) -> None:
    async with running(tmp_path) as peer, producing(peer.controller.address) as producer:
        for more in ("DELAY\x013\x02", "TIMER_DELAY_MS\x011000\x02"):
            answer = await producer.try_half(more=more)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert "cannot be delayed as well" in (answer.remark or "")
        for of_batch, of_entry in (("TRAN_MSG\x01true\x02", b""), ("", b"TRAN_MSG\x01true\x02")):
            header = send_header("TopicTest", of_batch, batch=True)
            body = encode_batch_entries([BatchEntry(0, b"a", b""), BatchEntry(0, b"b", of_entry)])
            answer = await peer.call(RequestCode.SEND_BATCH_MESSAGE, header, body)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert "a batch takes no transactional messages" in (answer.remark or "")
        assert not halves(peer.controller)


async def test_transactions_can_be_forbidden(tmp_path: Path) -> None:
    async with (
        running(tmp_path, reject_transaction_message=True) as peer,
        producing(peer.controller.address) as producer,
    ):
        answer = await producer.try_half()
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "sending transaction message is forbidden" in (answer.remark or "")


async def test_a_message_that_comes_again_is_no_half_though_it_was_one(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        header = send_header("%RETRY%CG", "TRAN_MSG\x01true\x02", reconsume_times=1)
        assert (await peer.call(RequestCode.SEND_MESSAGE_V2, header, b"again")).code == 0
        assert [record.stored_body for record in stored(peer.controller, "%RETRY%CG")] == [b"again"]


# -- ending ------------------------------------------------------------------------------------------


async def test_a_committed_message_appears_as_it_was_sent(tmp_path: Path) -> None:
    async with running(tmp_path) as peer, producing(peer.controller.address) as producer:
        half = await producer.half(b"paid", "TX1", queue_id=2, flag=5, sys_flag=4, more="KEYS\x01k1\x02")
        assert (await producer.end(half, COMMIT)).code == 0
        (message,) = messages(await peer.pull(queue_id=2))
        assert (message.stored_body, message.flag, message.sys_flag) == (b"paid", 5, COMMIT)
        assert message.prepared_transaction_offset == half.phy_offset
        assert (message.transaction_id, message.keys, message.tags) == ("TX1", ("k1",), "T")
        assert message.properties["TRAN_MSG"] == "true" and message.properties["PGROUP"] == "PG"
        assert not {"REAL_TOPIC", "REAL_QID"} & set(message.properties)
        (op,) = stored(peer.controller, RMQ_SYS_TRANS_OP_HALF_TOPIC)
        assert (op.stored_body, op.properties) == (b"0", {"WAIT": "true", "TAGS": "d"})
        assert op.phy_offset == message.phy_offset + message.store_size


async def test_a_rolled_back_message_never_appears(tmp_path: Path) -> None:
    async with running(tmp_path) as peer, producing(peer.controller.address) as producer:
        half = await producer.half()
        await producer.end_oneway(half, ROLLBACK)
        await until(lambda: ops(peer.controller) == [b"0"], "the op record")
        assert await visible(peer) == []


async def test_a_half_ends_once(tmp_path: Path) -> None:
    async with running(tmp_path) as peer, producing(peer.controller.address) as producer:
        one, two = await producer.half(b"1", "TX1"), await producer.half(b"2", "TX2")
        ends = [(one, COMMIT), (one, ROLLBACK), (two, ROLLBACK), (one, COMMIT), (two, COMMIT)]
        answers = await asyncio.gather(*(producer.end(half, end) for half, end in ends))
        assert [answer.code for answer in answers] == [0, 1, 0, 1, 1]
        assert "has ended already" in (answers[1].remark or "")
        assert (await producer.end(one, ROLLBACK)).code == 1
        assert await visible(peer) == [b"1"]
        assert ops(peer.controller) == [b"0", b"1"]


async def test_an_unknown_outcome_gets_no_response(tmp_path: Path) -> None:
    async with running(tmp_path) as peer, producing(peer.controller.address) as producer:
        half = await producer.half()
        header = producer.end_header(half, UNKNOWN)
        with pytest.raises(CallTimeoutError):
            await peer.call(RequestCode.END_TRANSACTION, header, timeout_ms=100)
        assert (await producer.end(half, COMMIT)).code == 0


async def test_an_end_that_does_not_fit_its_half_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as peer, producing(peer.controller.address) as producer:
        first, half = await producer.half(b"1", "TX1"), await producer.half(b"2", "TX2")
        plain = (await peer.send("TopicTest", b"plain", "PGROUP\x01PG\x02")).header(SendMessageResponseHeader)
        plain_offset = int(plain.msg_id[-16:], 16)
        wrong: dict[str, tuple[Half, dict[str, Any]]] = {
            "The producer group wrong": (half, {"producer_group": "Other"}),
            "The transaction state table offset wrong": (half, {"tran_state_table_offset": 0}),
        }
        for words, (which, fields) in wrong.items():
            answer = await producer.end(which, COMMIT, **fields)
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, words)
        for phy_offset in (plain_offset, half.phy_offset + 1, 1 << 40, -1):
            answer = await producer.end(Half("TX2", 1, phy_offset), COMMIT)
            assert (answer.code, answer.remark) == (1, "Find prepared transaction message failed")
        assert (await producer.end(first, COMMIT, tran_state_table_offset=7)).code == 1
        assert await visible(peer) == [b"plain"]


async def test_a_producer_that_used_up_its_time_waits_for_the_check(tmp_path: Path) -> None:
    async with running(tmp_path, **NEVER) as peer, producing(peer.controller.address) as producer:
        half = await producer.half(
            more="CHECK_IMMUNITY_TIME_IN_SECONDS\x0110\x02", born_timestamp=now_ms() - 11_000
        )
        answer = await producer.end(half, COMMIT)
        assert answer.code == ResponseCode.ILLEGAL_OPERATION
        assert "wait for the check" in (answer.remark or "")
        assert (await producer.end(half, COMMIT, from_transaction_check=True)).code == 0
        assert await visible(peer) == [b"half"]


async def test_a_slave_ends_no_transaction(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        # A broker does not start as one yet.
        services = peer.controller.services
        services.live_config.current = replace(services.config, broker_role="SLAVE", broker_id=1)
        async with producing(peer.controller.address) as producer:
            answer = await producer.end(Half("TX1", 0, 0), COMMIT)
            assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE


async def test_ends_are_durable_when_they_are_answered_under_sync_flush(tmp_path: Path) -> None:
    async with (
        running(tmp_path, flush_disk_type="SYNC_FLUSH") as peer,
        producing(peer.controller.address) as producer,
    ):
        half = await producer.half(b"paid")
        assert (await producer.end(half, COMMIT)).code == 0
        log = peer.controller.services.store.log
        assert log.flushed_phy_offset == log.max_phy_offset
        assert await visible(peer) == [b"paid"]


# -- asking ------------------------------------------------------------------------------------------


async def test_a_producer_is_asked_and_its_answer_ends_the_transaction(tmp_path: Path) -> None:
    async with running(tmp_path, **SOON) as peer, producing(peer.controller.address) as producer:
        half = await producer.half(b"paid", "TX1", queue_id=1)
        check = await producer.next_check()
        newest = halves(peer.controller)[-1]
        assert check.half == Half("TX1", newest.queue_offset, newest.phy_offset)
        assert newest.queue_offset > half.queue_offset
        assert (check.header.topic, check.header.transaction_id) == (RMQ_SYS_TRANS_HALF_TOPIC, "TX1")
        assert check.header.offset_msg_id == newest.offset_msg_id
        shown = check.message
        assert (shown.topic, shown.queue_id, shown.body) == ("TopicTest", 1, b"paid")
        assert (shown.queue_offset, shown.phy_offset) == (newest.queue_offset, newest.phy_offset)
        assert shown.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert not any(name.startswith("__KOUROU") for name in shown.properties)
        answer = await producer.end(check.half, COMMIT, from_transaction_check=True)
        assert answer.code == 0
        (message,) = messages(await peer.pull(queue_id=1))
        assert message.body == b"paid"
        assert not any(name.startswith("__KOUROU") for name in message.properties)


async def test_a_late_end_by_the_first_offset_ends_the_copy_that_was_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path, **SOON) as peer, producing(peer.controller.address) as producer:
        half = await producer.half(b"paid")
        first, second = await producer.next_check(), await producer.next_check()
        peer.controller.services.update_config({"transactionCheckInterval": "3600000"})
        assert (await producer.end(half, COMMIT)).code == 0
        for old in (half, first.half, second.half):
            assert (await producer.end(old, ROLLBACK, from_transaction_check=True)).code == 1
            assert (await producer.end(old, COMMIT, from_transaction_check=True)).code == 1
        assert await visible(peer) == [b"paid"]
        ended = [int(body) for body in ops(peer.controller)]
        assert sorted(ended) == [record.queue_offset for record in halves(peer.controller)]


async def test_any_live_producer_of_the_group_is_asked_in_turn(tmp_path: Path) -> None:
    async with running(tmp_path, transaction_time_out=300, transaction_check_interval=20) as peer:
        address = peer.controller.address
        async with (
            producing(address, "c1", "c2", "c3") as (gone, one, two),
            producing(address, "other", group="Other") as stranger,
        ):
            await gone.half(b"1", "TX1")
            await gone.half(b"2", "TX2")
            await gone.client.stop()
            for producer in (one, two):
                producer.decide = lambda message: COMMIT if message.body == b"2" else ROLLBACK
            await until(lambda: len(stored(peer.controller, "TopicTest")) == 1, "the commit")
            assert await visible(peer) == [b"2"]
            assert (one.checks.qsize(), two.checks.qsize(), stranger.checks.qsize()) == (1, 1, 0)


async def test_a_half_that_is_never_ended_is_given_up_after_so_many_checks(tmp_path: Path) -> None:
    async with (
        running(tmp_path, transaction_check_max=3, **SOON) as peer,
        producing(peer.controller.address) as producer,
    ):
        half = await producer.half(b"lost", "TX9")
        await until(lambda: bool(stored(peer.controller, DISCARD_TOPIC)), "given up")
        assert producer.checks.qsize() == 3
        (given_up,) = stored(peer.controller, DISCARD_TOPIC)
        assert given_up.stored_body == b"lost"
        assert given_up.properties["TRANSACTION_CHECK_TIMES"] == "3"
        assert given_up.properties["REAL_TOPIC"] == "TopicTest"
        assert (await producer.end(half, COMMIT)).code == 1
        assert await visible(peer) == []
        # ... and an operator may have the producers asked again.
        producer.decide = lambda _: COMMIT
        resume = ResumeCheckHalfMessageRequestHeader(msg_id=given_up.offset_msg_id)
        assert (await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume)).code == 0
        again = await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume)
        assert (again.code, again.remark) == (1, "the half message is resumed already")
        await until(lambda: bool(stored(peer.controller, "TopicTest")), "the commit")
        assert await visible(peer) == [b"lost"]


async def test_only_what_was_given_up_is_resumed(tmp_path: Path) -> None:
    async with running(tmp_path) as peer, producing(peer.controller.address) as producer:
        await producer.half()
        for msg_id, words in {
            halves(peer.controller)[0].offset_msg_id: "only one in TRANS_CHECK_MAX_TIME_TOPIC",
            f"7F00000100002A9F{999_999:016X}": "can not find message",
        }.items():
            resume = ResumeCheckHalfMessageRequestHeader(msg_id=msg_id)
            answer = await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume)
            assert answer.code == 1 and words in (answer.remark or "")
        assert (await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE)).code == 1


async def test_a_hook_says_how_a_transaction_that_was_given_up_ends(tmp_path: Path) -> None:
    seen: list[GivenUpTransaction] = []

    def decide(given_up: GivenUpTransaction) -> TransactionEnd | None:
        seen.append(given_up)
        return {"TX1": TransactionEnd.COMMIT, "TX2": TransactionEnd.ROLLBACK}.get(given_up.msg_id)

    def broken(_: GivenUpTransaction) -> TransactionEnd | None:
        raise ValueError("a hook of somebody's")

    hooks = BrokerHooks(transaction_given_up=[broken, decide])
    async with (
        running(tmp_path, hooks=hooks, transaction_check_max=1, **SOON) as peer,
        producing(peer.controller.address) as producer,
    ):
        for number in (1, 2, 3):
            await producer.half(b"%d" % number, f"TX{number}")
        await until(lambda: bool(stored(peer.controller, DISCARD_TOPIC)), "given up")
        assert [record.stored_body for record in stored(peer.controller, DISCARD_TOPIC)] == [b"3"]
        assert await visible(peer) == [b"1"]
        assert [each.msg_id for each in seen] == ["TX1", "TX2", "TX3"]
        assert (seen[0].topic, seen[0].producer_group, seen[0].check_times) == ("TopicTest", "PG", 1)


async def test_a_half_that_wants_time_is_put_again_and_not_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path, **SOON) as peer, producing(peer.controller.address) as producer:
        half = await producer.half(b"slow", more="CHECK_IMMUNITY_TIME_IN_SECONDS\x01600\x02")
        await until(lambda: len(halves(peer.controller)) > 2, "copies")
        assert not producer.checks.qsize()
        assert "TRANSACTION_CHECK_TIMES" not in halves(peer.controller)[-1].properties
        assert (await producer.end(half, COMMIT)).code == 0
        assert await visible(peer) == [b"slow"]


# -- restarts ----------------------------------------------------------------------------------------


async def test_a_restart_forgets_no_end_and_no_open_half(tmp_path: Path) -> None:
    async with running(tmp_path, **NEVER) as peer, producing(peer.controller.address) as producer:
        ended = await producer.half(b"1", "TX1")
        undone = await producer.half(b"2", "TX2")
        open_half = await producer.half(b"3", "TX3")
        assert (await producer.end(ended, COMMIT)).code == 0
        assert (await producer.end(undone, ROLLBACK)).code == 0
    async with running(tmp_path, **NEVER) as peer, producing(peer.controller.address) as producer:
        for half in (ended, undone):
            for end in (COMMIT, ROLLBACK):
                assert (await producer.end(half, end)).code == 1
        assert (await producer.end(open_half, COMMIT)).code == 0
        assert await visible(peer) == [b"1", b"3"]


async def test_after_a_restart_open_halves_are_asked_for_and_old_offsets_still_lead_to_them(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, **SOON) as peer, producing(peer.controller.address) as producer:
        half = await producer.half(b"paid")
        await producer.next_check()
    async with running(tmp_path, **NEVER) as peer, producing(peer.controller.address) as producer:
        assert (await producer.end(half, COMMIT)).code == 0
        assert (await producer.end(half, COMMIT)).code == 1
        assert await visible(peer) == [b"paid"]
    async with running(tmp_path, **SOON) as peer, producing(peer.controller.address) as producer:
        await asyncio.sleep(0.1)
        assert not producer.checks.qsize()
        assert await visible(peer) == [b"paid"]


async def test_progress_is_noted_where_apache_looks_for_it(tmp_path: Path) -> None:
    async with running(tmp_path, **SOON) as peer, producing(peer.controller.address) as producer:
        for number in range(5):
            half = await producer.half(msg_id=f"TX{number}")
            await producer.end(half, ROLLBACK)
        controller = peer.controller

        def noted(topic: str) -> int:
            return controller.services.offsets.query(CID_SYS_RMQ_TRANS, topic, 0)

        await until(
            lambda: (
                noted(RMQ_SYS_TRANS_HALF_TOPIC) == len(halves(controller))
                and noted(RMQ_SYS_TRANS_OP_HALF_TOPIC) == len(ops(controller))
            ),
            "the progress",
            timeout_s=15,
        )


async def test_the_binary_form_works_as_well(tmp_path: Path) -> None:
    async with running(tmp_path) as peer, producing(peer.controller.address) as producer:
        half = await producer.half(b"paid")
        command = RemotingCommand.request(RequestCode.END_TRANSACTION, producer.end_header(half, COMMIT))
        command.serialize_type = 1
        assert (await peer.client.call(peer.controller.address, command, 5_000)).code == 0
        assert await visible(peer) == [b"paid"]
