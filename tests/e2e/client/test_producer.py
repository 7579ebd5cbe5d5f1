"""AsyncProducer against brokers of ours: what is sent is stored, and what cannot be sent is said so."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from kourou.client.producer.producer import AsyncProducer
from kourou.client.producer.producer_hooks import ProducerHook, SendContext
from kourou.client.producer.queue_choice import select_by_hash
from kourou.client.producer.send_result import SendResult, SendStatus
from kourou.errors import (
    ClientStateError,
    MessageRefusedError,
    NoNameServerError,
    NoRouteError,
    PartlySentError,
    ResponseError,
    SendFailedError,
    TooManyRequestsError,
)
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import ResponseCode
from kourou.protocol.message import Message
from kourou.testing.cluster import cluster
from tests.e2e.broker.transaction_kit import stored, until
from tests.e2e.client.kit.producer_kit import TOPIC, all_stored, linked_broker, pair, producing

pytestmark = pytest.mark.e2e


# -- what is sent is stored --------------------------------------------------------------------------


async def test_a_message_is_stored_as_it_was_sent(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        message = Message(
            TOPIC, b"hello", tags="TagA", keys=["k1", "k2"], flag=7, properties={"colour": "grün\n"}
        )
        result = await producer.send(message)
        assert (result.status, result.is_ok) == (SendStatus.SEND_OK, True)
        assert (result.queue.topic, result.queue.broker_name) == (TOPIC, "broker-a")
        (record,) = stored(running.broker, TOPIC, result.queue.queue_id)
        assert (record.body, record.flag, record.tags, record.keys) == (b"hello", 7, "TagA", ("k1", "k2"))
        assert record.get_property("colour") == "grün\n"
        assert (record.msg_id, record.offset_msg_id) == (result.msg_id, result.offset_msg_id)
        assert (record.queue_offset, record.sys_flag) == (result.queue_offset, 0)
        assert len(result.msg_id) == 32 and result.msg_id == message.get_property("UNIQ_KEY")


async def test_queues_take_turns(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        results = [await producer.send(Message(TOPIC, b"x")) for _ in range(8)]
        assert sorted(result.queue.queue_id for result in results) == [0, 0, 1, 1, 2, 2, 3, 3]
        assert len({result.msg_id for result in results}) == 8


async def test_pipelined_sends_keep_their_order_in_a_queue(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        queue = MessageQueue(TOPIC, "broker-a", 1)
        # The first ones wait for route and connection, and the later ones must not overtake them.
        futures = [producer.send_nowait(Message(TOPIC, b"%d" % n), queue=queue) for n in range(50)]
        await futures[0]
        futures += [producer.send_nowait(Message(TOPIC, b"%d" % n), queue=queue) for n in range(50, 300)]
        await producer.flush()
        assert [future.result().queue_offset for future in futures] == list(range(300))
        assert [record.body for record in stored(running.broker, TOPIC, 1)] == [b"%d" % n for n in range(300)]
        assert (producer.stats().sent, producer.stats().in_flight) == (300, 0)


async def test_many_messages_travel_in_batches_and_each_has_its_result(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as running,
        producing(running.namesrv_addr, max_batch_bytes=1000) as producer,
    ):
        messages = [Message(TOPIC, b"%03d" % n * 10, tags="T", keys=[f"k{n}"]) for n in range(40)]
        messages.append(Message("Other", b"alone"))
        messages.append(Message(TOPIC, b"later", delay_time_level=1))
        results = await producer.send_many(messages)
        assert [result.msg_id for result in results] == [m.get_property("UNIQ_KEY") for m in messages]
        by_id = {record.msg_id: record for record in all_stored(running.broker)}
        assert len(by_id) == 40
        for message, result in zip(messages[:40], results, strict=False):
            record = by_id[result.msg_id]
            assert (record.body, record.tags, record.keys) == (message.body, "T", message.keys)
            assert (record.queue_id, record.queue_offset) == (result.queue.queue_id, result.queue_offset)
            assert record.offset_msg_id == result.offset_msg_id
        assert results[40].queue.topic == "Other"
        assert len({(r.queue.queue_id) for r in results[:40]}) > 1, "one batch would not hold them all"
        assert await producer.send_many([]) == []


async def test_one_way_messages_arrive(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        for number in range(20):
            await producer.send_oneway(Message(TOPIC, b"%d" % number))
        await until(lambda: len(all_stored(running.broker)) == 20, "all stored")
        assert producer.stats().oneway == 20


async def test_a_large_body_travels_compressed_and_a_dense_one_does_not(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        queue = MessageQueue(TOPIC, "broker-a", 0)
        dense = bytes((n * n * 2654435761 >> 13) & 0xFF for n in range(5_000))
        for body in (b"a" * 4095, b"a" * 4096, b"ab" * 100_000, dense):
            await producer.send(Message(TOPIC, body), queue=queue)
        small, large, larger, as_is = stored(running.broker, TOPIC, 0)
        assert (small.sys_flag, large.sys_flag, larger.sys_flag) == (0, 0x301, 0x301)
        assert len(large.stored_body) < 100 and large.body == b"a" * 4096
        assert larger.body == b"ab" * 100_000
        assert as_is.body == dense and (as_is.sys_flag == 0) == (as_is.stored_body == dense)


async def test_sharding_key_and_selector_choose_the_queue(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        queues = await producer.queues(TOPIC)
        for key in ("order-1", "order-2", "order-3"):
            expected = select_by_hash(queues, Message(TOPIC, b"x"), key)
            results = [await producer.send(Message(TOPIC, b"x"), sharding_key=key) for _ in range(3)]
            assert {result.queue for result in results} == {expected}
            record = stored(running.broker, TOPIC, expected.queue_id)[-1]
            assert record.get_property("__SHARDINGKEY") == key
        result = await producer.send(
            Message(TOPIC, b"x"), selector=lambda queues, message, arg: queues[int(str(arg))], arg=2
        )
        assert result.queue.queue_id == 2


async def test_a_delayed_message_comes_later_and_a_timer_message_can_be_recalled(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        await producer.send(Message(TOPIC, b"now"))
        await producer.send(Message(TOPIC, b"level", delay_time_level=1))
        timer = await producer.send(Message(TOPIC, b"timer", delay_time_ms=60_000))
        assert timer.recall_handle is not None
        assert [record.body for record in all_stored(running.broker)] == [b"now"]
        assert await producer.recall(TOPIC, timer.recall_handle) == timer.msg_id
        await until(lambda: len(all_stored(running.broker)) == 2, "the delayed message")
        with pytest.raises(ValueError, match="is not a recall handle"):
            await producer.recall(TOPIC, "nonsense")


async def test_a_message_that_is_sent_again_keeps_its_id(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        message = Message(TOPIC, b"x")
        first, second = await producer.send(message), await producer.send(message)
        assert first.msg_id == second.msg_id and first.offset_msg_id != second.offset_msg_id


async def test_a_namespace_is_on_the_wire_and_not_in_the_result(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr, namespace="shop") as producer:
        result = await producer.send(Message(TOPIC, b"x"))
        assert result.queue.topic == TOPIC
        (record,) = all_stored(running.broker, f"shop%{TOPIC}")
        assert record.get_property("INSTANCE_ID") == "shop"
        assert [queue.topic for queue in await producer.queues(TOPIC)] == [TOPIC] * 4
        again = await producer.send(Message(TOPIC, b"y"), queue=result.queue)
        assert again.queue == result.queue
        shown: list[MessageQueue] = []
        await producer.send(Message(TOPIC, b"z"), selector=lambda qs, m, a: shown.extend(qs) or qs[0])  # type: ignore[func-returns-value]
        assert {queue.topic for queue in shown} == {TOPIC}
        many = await producer.send_many([Message(TOPIC, b"1"), Message(TOPIC, b"2")])
        assert {each.queue.topic for each in many} == {TOPIC}


# -- retries and failures ----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205, 1500])
async def test_a_broker_that_refuses_for_now_is_passed_over(tmp_path: Path, code: int) -> None:
    async with pair(tmp_path) as running, producing(running.namesrv_addr) as producer:
        running.codes["broker-a"] = code
        for _ in range(8):
            result = await producer.send(Message(TOPIC, b"x"))
            assert result.queue.broker_name == "broker-b"
        assert running.asked.count("broker-b") == 8 and "broker-a" in running.asked
        assert producer.stats().retried == running.asked.count("broker-a")
        assert not all_stored(running.brokers["broker-a"])


async def test_other_codes_are_reported_at_once(tmp_path: Path) -> None:
    async with pair(tmp_path) as running, producing(running.namesrv_addr) as producer:
        running.codes = dict.fromkeys(("broker-a", "broker-b"), int(ResponseCode.MESSAGE_ILLEGAL))
        with pytest.raises(ResponseError, match="was told to refuse") as caught:
            await producer.send(Message(TOPIC, b"x"))
        assert caught.value.code == 13 and len(running.asked) == 1


async def test_when_all_reject_the_error_lists_each_attempt(tmp_path: Path) -> None:
    async with pair(tmp_path) as running, producing(running.namesrv_addr) as producer:
        running.codes = dict.fromkeys(("broker-a", "broker-b"), int(ResponseCode.SYSTEM_BUSY))
        with pytest.raises(SendFailedError) as caught:
            await producer.send(Message(TOPIC, b"x"))
        assert len(running.asked) == 3 and running.asked[0] == running.asked[2] != running.asked[1]
        assert str(caught.value).startswith(
            f"topic '{TOPIC}': not sent after 3 attempts within 3000 ms: broker "
        )
        assert all("answered code 2: " in attempt for attempt in caught.value.attempts)
        assert isinstance(caught.value.__cause__, ResponseError)
        assert (producer.stats().failed, producer.stats().retried) == (1, 2)


async def test_a_chosen_queue_is_the_only_one_that_is_tried(tmp_path: Path) -> None:
    async with pair(tmp_path) as running, producing(running.namesrv_addr) as producer:
        running.codes["broker-a"] = int(ResponseCode.SYSTEM_BUSY)
        with pytest.raises(SendFailedError, match="after 1 attempt"):
            await producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, "broker-a", 0))
        assert running.asked == ["broker-a"]
        with pytest.raises(SendFailedError, match="broker 'broker-z' has no master at present"):
            await producer.send(Message(TOPIC, b"x"), queue=MessageQueue(TOPIC, "broker-z", 0))


async def test_a_broker_that_stops_costs_no_message(tmp_path: Path) -> None:
    async with pair(tmp_path) as running, producing(running.namesrv_addr) as producer:
        for _ in range(8):
            await producer.send(Message(TOPIC, b"before"))
        stopping = asyncio.ensure_future(running.brokers["broker-a"].stop())
        results = [await producer.send(Message(TOPIC, b"after")) for _ in range(100)]
        await stopping
        results += [await producer.send(Message(TOPIC, b"after")) for _ in range(20)]
        assert {result.queue.broker_name for result in results[-10:]} == {"broker-b"}
        assert len({result.msg_id for result in results}) == 120


async def test_the_only_broker_is_gone_and_the_error_has_the_whole_story(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as running,
        producing(running.namesrv_addr) as producer,
        producing(running.namesrv_addr, retry_times=0) as impatient,
    ):
        await producer.send(Message(TOPIC, b"before"))
        await impatient.send(Message(TOPIC, b"before"))
        await running.broker.stop()
        with pytest.raises(SendFailedError, match="after 1 attempt .*: broker broker-a: cannot connect to "):
            await impatient.send(Message(TOPIC, b"after"))
        for reason in ("broker broker-a: cannot connect to ", "no route to topic "):
            with pytest.raises(SendFailedError, match=f"{reason}.*; no master of broker-a accepted it"):
                await producer.send(Message(TOPIC, b"after"), timeout_ms=200)


async def test_sends_go_on_without_a_name_server(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        await producer.send(Message(TOPIC, b"before"))
        await running.namesrv.stop()
        assert (await producer.send(Message(TOPIC, b"after"))).is_ok
        with pytest.raises(NoNameServerError, match="no name server answers"):
            await producer.send(Message("NewTopic", b"x"))


async def test_a_connection_that_is_cut_with_sends_in_flight(tmp_path: Path) -> None:
    async with linked_broker(tmp_path) as (namesrv, broker, link), producing(namesrv) as producer:
        await producer.send(Message(TOPIC, b"first"))
        link.freeze()
        futures = [producer.send_nowait(Message(TOPIC, b"%d" % n)) for n in range(10)]
        await asyncio.sleep(0)  # the pass is written
        link.cut()
        link.thaw()
        await asyncio.gather(*futures)
        assert {b"%d" % n for n in range(10)} <= {record.body for record in all_stored(broker)}


async def test_a_broker_that_hangs_is_given_up_after_the_timeout(tmp_path: Path) -> None:
    async with linked_broker(tmp_path) as (namesrv, broker, link), producing(namesrv) as producer:
        await producer.send(Message(TOPIC, b"first"))
        connections = link.connections
        link.freeze()
        started = time.monotonic()
        with pytest.raises(SendFailedError, match="no answer from 127.0.0.2:.* to request 310 within 300 ms"):
            await producer.send(Message(TOPIC, b"x"), timeout_ms=300)
        assert time.monotonic() - started > 0.25
        # A connection without a byte from the peer is given up: the next send opens another.
        link.thaw()
        await producer.send(Message(TOPIC, b"y"))
        assert link.connections > connections


@pytest.mark.slow
async def test_an_attempt_may_have_a_timeout_of_its_own(tmp_path: Path) -> None:
    async with (
        linked_broker(tmp_path) as (namesrv, broker, link),
        producing(namesrv, attempt_timeout_ms=100) as producer,
    ):
        await producer.send(Message(TOPIC, b"first"))
        link.freeze()
        with pytest.raises(SendFailedError, match="after 3 attempts within 3000 ms"):
            await producer.send(Message(TOPIC, b"x"))


async def test_a_broker_that_does_not_read_holds_senders_back_and_not_memory(tmp_path: Path) -> None:
    async with linked_broker(tmp_path) as (namesrv, broker, link), producing(namesrv) as producer:
        await producer.send(Message(TOPIC, b"first"))
        link.freeze()
        body = bytes(range(256)) * 4 * 1024  # 1 MiB, which compresses well
        messages = [Message(TOPIC, body, keys=[str(n)]) for n in range(60)]
        sending = asyncio.gather(
            *(producer.send(message, timeout_ms=20_000) for message in messages), return_exceptions=True
        )
        await asyncio.sleep(0)
        link.thaw()
        results = await sending
        assert all(isinstance(result, SendResult) for result in results), results
        assert len(all_stored(broker)) == 61


async def test_an_address_out_of_reach_comes_with_the_container_hint(tmp_path: Path) -> None:
    async with cluster(tmp_path, broker_ip1="127.0.0.3") as running:
        async with producing(running.namesrv_addr) as producer:
            with pytest.raises(SendFailedError) as caught:
                await producer.send(Message(TOPIC, b"x"), timeout_ms=200)
            assert "cannot connect to 127.0.0.3:" in str(caught.value)
            assert "is the server running there?" in str(caught.value)
            assert "set brokerIP1 at the broker" in str(caught.value)


async def test_slow_and_failing_brokers_are_avoided(tmp_path: Path) -> None:
    async with (
        pair(tmp_path) as running,
        producing(running.namesrv_addr, send_latency_fault=True) as producer,
    ):
        running.codes["broker-a"] = int(ResponseCode.SYSTEM_BUSY)
        while "broker-a" not in running.asked:
            await producer.send(Message(TOPIC, b"x"))
        running.codes.clear()
        running.asked.clear()
        for _ in range(16):
            assert (await producer.send(Message(TOPIC, b"x"))).queue.broker_name == "broker-b"
        assert set(running.asked) == {"broker-b"}


async def test_many_messages_of_which_some_cannot_be_stored(tmp_path: Path) -> None:
    async with pair(tmp_path, max_message_size=2_000) as running, producing(running.namesrv_addr) as producer:
        await producer.send(Message(TOPIC, b"x"))
        large = bytes((n * n * 2654435761 >> 13) & 0xFF for n in range(4_000))
        messages = [Message("Small", b"1"), Message("Large", large), Message("Small", b"2")]
        with pytest.raises(PartlySentError, match="1 of 3 messages were not stored: ") as caught:
            await producer.send_many(messages)
        first, second, third = caught.value.results
        assert isinstance(first, SendResult) and isinstance(third, SendResult)
        assert isinstance(second, ResponseError) and second.code == ResponseCode.MESSAGE_ILLEGAL


# -- what is not sent at all -------------------------------------------------------------------------


async def test_without_auto_creation_the_error_says_what_to_do(tmp_path: Path) -> None:
    async with cluster(tmp_path, auto_create_topic_enable=False) as running:
        async with producing(running.namesrv_addr) as producer:
            with pytest.raises(NoRouteError, match="kourou topic create.*autoCreateTopicEnable=true"):
                await producer.send(Message("Nowhere", b"x"))
            with pytest.raises(NoRouteError):
                await producer.send_nowait(Message("Nowhere", b"x"))
            with pytest.raises(NoRouteError):
                await producer.send_oneway(Message("Nowhere", b"x"))


async def test_no_name_server(unused_tcp_port: int) -> None:
    producer = AsyncProducer("ProducerGroup", namesrv=f"127.0.0.1:{unused_tcp_port}")
    with pytest.raises(NoNameServerError, match="no name server can be reached.*connection refused"):
        await producer.start()


async def test_what_no_broker_would_take_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        for message, words in (
            (Message(TOPIC, b""), "the body is empty"),
            (Message(TOPIC, b"x" * (4 * 1024 * 1024 + 1)), "at most 4194304 are allowed"),
            (Message("SCHEDULE_TOPIC_XXXX", b"x"), "written by brokers only"),
            (Message(TOPIC, b"x", properties={"long": "y" * 33_000}), "at most 31743 are allowed"),
        ):
            for send in (producer.send, producer.send_oneway, producer.request):
                with pytest.raises(MessageRefusedError, match=words):
                    await send(message)
            with pytest.raises(MessageRefusedError, match=words):
                await producer.send_many([Message(TOPIC, b"fine"), message])
        with pytest.raises(MessageRefusedError, match="the chosen queue is of topic 'Other'"):
            await producer.send(Message(TOPIC, b"x"), queue=MessageQueue("Other", "broker-a", 0))
        with pytest.raises(ValueError, match="give one of queue, selector and sharding_key"):
            await producer.send(Message(TOPIC, b"x"), selector=select_by_hash, sharding_key="a")
        with pytest.raises(ValueError, match="timeout_ms"):
            await producer.send(Message(TOPIC, b"x"), timeout_ms=0)
        with pytest.raises(TypeError, match=r"^timeout_ms must be an int, not str \('5'\)$"):
            await producer.send(Message(TOPIC, b"x"), timeout_ms="5")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="send takes a Message"):
            await producer.send("text")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"^send_many takes Messages, not bytes: Message\(topic, body\)$"):
            await producer.send_many([Message(TOPIC, b"x"), b"a"])  # type: ignore[list-item]
        with pytest.raises(TypeError, match=r"^messages must be a list of Message, not Message \("):
            await producer.send_many(Message(TOPIC, b"x"))  # type: ignore[arg-type]
        assert producer.stats().sent == producer.stats().failed == 0
        assert not all_stored(running.broker)


@pytest.mark.parametrize("delay_level", [0, 1])
async def test_the_longest_properties_that_the_client_takes_are_taken_by_brokers(
    tmp_path: Path, delay_level: int
) -> None:
    def message(length: int) -> Message:
        return Message(TOPIC, b"x", properties={"long": "y" * length}, delay_time_level=delay_level)

    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        with pytest.raises(MessageRefusedError) as caught:
            await producer.send(message(33_000))
        found = re.search(r"have (\d+) bytes in all; at most (\d+)", str(caught.value))
        assert found is not None
        longest = 33_000 - (int(found[1]) - int(found[2]))
        assert (await producer.send(message(longest))).is_ok
        with pytest.raises(MessageRefusedError):
            await producer.send(message(longest + 1))


async def test_a_selector_that_fails_fails_its_send(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        with pytest.raises(ZeroDivisionError):
            await producer.send(Message(TOPIC, b"x"), selector=lambda queues, message, arg: queues[1 // 0])
        with pytest.raises(TypeError, match="instead of one of the queues"):
            await producer.send(Message(TOPIC, b"x"), selector=lambda queues, message, arg: 3)  # type: ignore[arg-type,return-value]
        assert producer.stats().in_flight == 0


# -- flow ----------------------------------------------------------------------------------------------


async def test_only_so_many_are_in_flight(tmp_path: Path) -> None:
    async with (
        linked_broker(tmp_path) as (namesrv, broker, link),
        producing(namesrv, max_in_flight=4) as producer,
    ):
        await producer.send(Message(TOPIC, b"first"))
        link.freeze()
        futures = [producer.send_nowait(Message(TOPIC, b"x")) for _ in range(4)]
        with pytest.raises(
            TooManyRequestsError, match="4 sends to brokers are in flight; wait for some to finish"
        ):
            producer.send_nowait(Message(TOPIC, b"x"))
        with pytest.raises(SendFailedError, match="no room: 4 other sends are in flight"):
            await producer.send(Message(TOPIC, b"x"), timeout_ms=50)
        waiting = asyncio.ensure_future(producer.send(Message(TOPIC, b"last")))
        link.thaw()
        await waiting
        assert all(future.done() for future in futures)
        assert producer.stats().in_flight == producer.stats().in_flight_bytes == 0


async def test_a_cancelled_send_gives_its_place_back(tmp_path: Path) -> None:
    async with (
        linked_broker(tmp_path) as (namesrv, broker, link),
        producing(namesrv, max_in_flight=1) as producer,
    ):
        await producer.send(Message(TOPIC, b"first"))
        link.freeze()
        sending = asyncio.ensure_future(producer.send(Message(TOPIC, b"x")))
        waiting = asyncio.ensure_future(producer.send(Message(TOPIC, b"y")))
        await until(lambda: producer.stats().in_flight == 1, "one is in flight")
        for task in (sending, waiting):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        link.thaw()
        await producer.send(Message(TOPIC, b"z"))
        assert producer.stats().in_flight == 0


async def test_stop_waits_for_what_is_in_flight_and_refuses_what_comes_later(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        producer = AsyncProducer("ProducerGroup", namesrv=running.namesrv_addr)
        with pytest.raises(ClientStateError, match="not started"):
            await producer.send(Message(TOPIC, b"x"))
        await producer.start()
        futures = [producer.send_nowait(Message(TOPIC, b"%d" % n)) for n in range(100)]
        await producer.stop()
        assert all(isinstance(future.result(), SendResult) for future in futures)
        assert len(all_stored(running.broker)) == 100
        with pytest.raises(ClientStateError, match="is stopped"):
            await producer.send(Message(TOPIC, b"x"))
        await producer.stop()


async def test_two_who_stop_it_wait_for_the_same_end(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        producer = AsyncProducer("ProducerGroup", namesrv=running.namesrv_addr)
        await producer.stop()  # before the start: nothing to stop
        await producer.start()
        futures = [producer.send_nowait(Message(TOPIC, b"%d" % n)) for n in range(100)]
        await asyncio.gather(producer.stop(), producer.stop())
        assert all(isinstance(future.result(), SendResult) for future in futures)


async def test_a_producer_in_a_forked_process_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as running, producing(running.namesrv_addr) as producer:
        await producer.send(Message(TOPIC, b"x"))
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: 1)
            with pytest.raises(ClientStateError, match="before a fork.*make a new client in process 1"):
                await producer.send(Message(TOPIC, b"x"))
        await producer.send(Message(TOPIC, b"x"))


@pytest.mark.slow
async def test_stop_with_a_broker_that_hangs_ends_and_fails_the_sends(tmp_path: Path) -> None:
    async with linked_broker(tmp_path) as (namesrv, broker, link):
        producer = AsyncProducer("ProducerGroup", namesrv=namesrv, send_timeout_ms=100)
        await producer.start()
        await producer.send(Message(TOPIC, b"first"))
        link.freeze()
        sending = asyncio.ensure_future(producer.send(Message(TOPIC, b"x"), timeout_ms=60_000))
        await until(lambda: producer.stats().in_flight == 1, "it is in flight")
        async with asyncio.timeout(10):
            await producer.stop()
        with pytest.raises(SendFailedError, match="the client stops"):
            await sending


async def test_the_broker_knows_the_group_and_forgets_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        producers = running.broker.services.producers
        async with producing(running.namesrv_addr, heartbeat_interval_ms=50) as producer:
            await producer.send(Message(TOPIC, b"x"))
            await until(lambda: producers.find_by_client_id(producer.client_id) is not None, "a heartbeat")
        assert producers.find_by_client_id(producer.client_id) is None


# -- hooks ---------------------------------------------------------------------------------------------


async def test_hooks_see_every_attempt_and_may_add_properties(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[str, int, object]] = []

    class Hook(ProducerHook):
        def before_send(self, context: SendContext) -> None:
            context.notes["begun"] = context.attempt
            context.messages[0].put_user_property("attempt", str(context.attempt))

        def after_send(self, context: SendContext) -> None:
            assert context.notes["begun"] == context.attempt
            seen.append((context.queue.broker_name, context.attempt, context.result or context.error))
            raise RuntimeError("a hook that fails")

    async with pair(tmp_path) as running, producing(running.namesrv_addr, hooks=[Hook()]) as producer:
        running.codes["broker-a"] = int(ResponseCode.SYSTEM_BUSY)
        while len(seen) < 2 or seen[-2][0] != "broker-a":
            await producer.send(Message(TOPIC, b"x"))
        (_, first, error), (_, second, result) = seen[-2:]
        assert (first, second) == (1, 2) and isinstance(error, ResponseError)
        assert isinstance(result, SendResult)
        record = stored(running.brokers["broker-b"], TOPIC, result.queue.queue_id)[result.queue_offset]
        assert record.get_property("attempt") == "2"
        await producer.send_oneway(Message(TOPIC, b"x"))
        assert seen[-1][1:] == (1, None)
    assert "a hook that fails" in caplog.text


async def test_hooks_prepare_messages_before_they_are_encoded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also those of a batch, whose size is planned with what the hook adds."""
    calls: list[int] = []

    class Hook(ProducerHook):
        def prepare(self, messages: Sequence[Message]) -> None:
            calls.append(len(messages))
            for message in messages:
                message.put_user_property("padding", "x" * 1_000)
            if len(messages) == 1:
                raise RuntimeError("a hook that fails")

    options = {"hooks": [Hook()], "max_batch_bytes": 4_096}
    async with pair(tmp_path) as running, producing(running.namesrv_addr, **options) as producer:
        await producer.send_many([Message(TOPIC, b"%d" % number) for number in range(10)])
        assert calls == [10] and len(running.asked) == 4  # three messages in each batch
        await producer.send(Message(TOPIC, b"one"))
        await producer.send_oneway(Message(TOPIC, b"two"))
        assert calls == [10, 1, 1]
        brokers = running.brokers.values()
        await until(lambda: sum(len(all_stored(each)) for each in brokers) == 12, "the one-way message")
        for broker in brokers:
            assert all(each.get_property("padding") for each in all_stored(broker))
        assert producer.stats().sent == 11
    assert "a hook that fails" in caplog.text
