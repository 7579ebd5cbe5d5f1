"""What our clients, async and plain, do at our broker and at Apache's of both lines: each scenario is written
once, and has to hold in all six.

Not here: consumers that pull (test_client_conformance_pull.py), ours beside Java's (test_client_mixed.py).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.queue_choice import select_by_hash
from kourou.client.producer.send_result import SendStatus
from kourou.client.push.consume_result import ConsumeContext, ConsumeResult
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.errors import ClientError, NoReplyError, ResponseError
from kourou.protocol.bodies import MessageQueue
from kourou.protocol.codes import MessageSysFlag, ResponseCode
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.names import dlq_topic
from tests.interop.kit.client_kit import ClientKit, Inbox, together, until
from tests.interop.kit.client_messages import (
    names,
    now_ms,
    select_by_number,
    send_all,
    send_around,
    send_colours,
)
from tests.interop.kit.kourou_broker import BROKER_NAME
from tests.interop.kit.lanes import DELAY_LEVELS_S, KOUROU

pytestmark = pytest.mark.interop

_COMPRESSED: Final = MessageSysFlag.COMPRESSED.value
_TRANSACTION_MASK: Final = MessageSysFlag.TRANSACTION_MASK.value

with_timers = pytest.mark.parametrize("kit_broker", [KOUROU, "5.5.0"])


# -- send ----------------------------------------------------------------------------------------------------


async def test_a_send_result_has_the_position_of_the_message(kit: ClientKit) -> None:
    topic = await kit.new_topic("send")
    sent = Message(topic, b"hello", tags="TagA", keys=["k1", "k2"], flag=3, properties={"colour": "grün"})
    async with kit.producer() as producer:
        result = await producer.send(sent)
        (record,) = (await kit.stored(topic, 1)).values()
    assert result.status is SendStatus.SEND_OK and result.is_ok
    assert (result.queue.topic, result.queue.broker_name) == (topic, BROKER_NAME)
    assert (record.queue_id, record.queue_offset) == (result.queue.queue_id, result.queue_offset)
    assert (record.msg_id, record.offset_msg_id) == (result.msg_id, result.offset_msg_id)
    assert (result.recall_handle, result.region_id, result.trace_on) == (None, "DefaultRegion", True)
    assert (record.body, record.tags, record.keys, record.flag) == (b"hello", "TagA", ("k1", "k2"), 3)
    assert record.get_property("colour") == "grün" and record.topic == topic
    assert 0 <= record.store_timestamp - record.born_timestamp < 30_000


async def test_sends_in_flight_together_and_one_way(kit: ClientKit) -> None:
    topic = await kit.new_topic("piped")
    async with kit.producer() as producer:
        results = await asyncio.gather(
            *(producer.send_nowait(Message(topic, body)) for body in names("piped", 50))
        )
        for body in names("one-way", 3):
            await producer.send_oneway(Message(topic, body))
        await producer.flush()
        stored = await kit.stored(topic, 53)
        assert producer.stats().failed == 0
    assert sorted(message.body for message in stored.values()) == sorted(
        names("piped", 50) + names("one-way", 3)
    )
    assert [stored[result.msg_id].body for result in results] == names("piped", 50)
    for result in results:
        record = stored[result.msg_id]
        assert (record.queue_id, record.queue_offset) == (result.queue.queue_id, result.queue_offset)


async def test_batches_are_split_by_size_and_reported_one_by_one(kit: ClientKit) -> None:
    topic, other = await kit.new_topic("batch"), await kit.new_topic("batch-other")
    messages = [Message(topic, body.ljust(1_000, b"."), tags="T", keys=["k"]) for body in names("b", 10)]
    messages.insert(5, Message(other, b"another topic"))
    async with kit.producer(max_batch_bytes=4_000) as producer:
        results = await producer.send_many(messages)
        stored = {**await kit.stored(topic, 10), **await kit.stored(other, 1)}
    assert len({result.msg_id for result in results}) == len(messages) == len(stored)
    for message, result in zip(messages, results, strict=True):
        record = stored[result.msg_id]
        assert (record.topic, record.body, record.tags) == (message.topic, message.body, message.tags)
        assert (record.queue_id, record.queue_offset) == (result.queue.queue_id, result.queue_offset)
        assert record.offset_msg_id == result.offset_msg_id
    # Batches of one topic take turns at its queues, so there were several.
    assert 3 <= len({result.queue for result in results}) <= 5


async def test_the_queue_is_chosen_by_the_sender(kit: ClientKit) -> None:
    topic = await kit.new_topic("chosen")
    async with kit.producer() as producer:
        queues = await producer.queues(topic)
        assert queues == [MessageQueue(topic, BROKER_NAME, number) for number in range(4)]
        for queue in queues:
            result = await producer.send(Message(topic, b"chosen"), queue=queue)
            assert result.queue == queue
            result = await producer.send(
                Message(topic, b"selected"),
                selector=select_by_number,
                arg=queue.queue_id,
            )
            assert result.queue == queue
            one_way = Message(topic, b"%d" % queue.queue_id, tags="oneway")
            await producer.send_oneway(one_way, queue=queue)
        sharded: dict[str, set[MessageQueue]] = defaultdict(set)
        for key in ("order-1", "order-2", "order-3") * 3:
            result = await producer.send(Message(topic, b"sharded"), sharding_key=key)
            sharded[key].add(result.queue)
            hashed = await producer.send(Message(topic, b"hashed"), selector=select_by_hash, arg=key)
            sharded[key].add(hashed.queue)
        assert [len(each) for each in sharded.values()] == [1, 1, 1]
        stored = await kit.stored(topic, 12 + 18)
    assert all(int(m.body) == m.queue_id for m in stored.values() if m.tags == "oneway")


async def test_bodies_of_4_kib_and_more_travel_compressed(kit: ClientKit) -> None:
    topic = await kit.new_topic("compressed")
    bodies = [b"x" * 4_095, b"y" * 4_096, b"large and again " * 20_000, b"in a batch " * 1_000]
    inbox = Inbox()
    async with kit.producer() as producer, kit.push_consumer(topic, inbox):
        results = await send_all(producer, topic, bodies[:3])
        results += await producer.send_many([Message(topic, bodies[3]), Message(topic, b"small")])
        await inbox.wait(5)
        stored = await kit.stored(topic, 5)
    assert sorted(inbox.bodies) == sorted([*bodies, b"small"])
    records = [stored[result.msg_id] for result in results]
    assert [bool(record.sys_flag & _COMPRESSED) for record in records] == [False, True, True, False, False]
    assert len(records[2].stored_body) < 10_000 and len(records[0].stored_body) == 4_095


# -- delays --------------------------------------------------------------------------------------------------


async def test_a_delay_level_holds_a_message_back(kit: ClientKit) -> None:
    topic, inbox = await kit.new_topic("delay", queues=1), Inbox()
    async with kit.producer() as producer, kit.push_consumer(topic, inbox):
        delayed = await producer.send(Message(topic, b"delayed", tags="D", delay_time_level=1))
        await producer.send(Message(topic, b"at once"))
        at_once, late = await inbox.wait(2)
    assert (at_once.body, late.body, late.tags) == (b"at once", b"delayed", "D")
    assert late.msg_id == delayed.msg_id and delayed.is_ok
    assert late.store_timestamp - late.born_timestamp >= DELAY_LEVELS_S[0] * 1_000


@with_timers
async def test_a_timer_message_comes_at_its_time_unless_it_is_recalled(kits: list[ClientKit]) -> None:
    await together(_time_and_recall, kits)


async def _time_and_recall(kit: ClientKit) -> None:
    topic, inbox = await kit.new_topic("timer", queues=1), Inbox()
    async with kit.producer() as producer, kit.push_consumer(topic, inbox):
        due_ms = now_ms() + 2_500
        recalled = await producer.send(Message(topic, b"recalled", delay_time_ms=2_000))
        timed = await producer.send(Message(topic, b"timed", deliver_time_ms=due_ms))
        assert recalled.recall_handle and timed.recall_handle
        assert await producer.recall(topic, recalled.recall_handle) == recalled.msg_id
        (came, *_) = await inbox.wait(1)
        assert (came.body, came.msg_id, came.topic) == (b"timed", timed.msg_id, topic)
        # A broker's wheel turns once a second, and looks a tick ahead.
        assert came.store_timestamp >= due_ms - 1_000
        with pytest.raises(ResponseError):
            await producer.recall(topic, timed.recall_handle)
    assert inbox.bodies == [b"timed"]


@pytest.mark.parametrize("kit_broker", ["4.9.7"])
async def test_a_broker_that_knows_no_recall_says_so(kit: ClientKit) -> None:
    topic = await kit.new_topic("recall", queues=1)
    async with kit.producer() as producer:
        result = await producer.send(Message(topic, b"no timer there", delay_time_ms=60_000))
        assert result.recall_handle is None
        handle = "djEgdG9waWMgYnJva2VyLWEgMTcwMDAwMDAwMDAwMCBOT05F"  # v1 topic broker-a 1700000000000 NONE
        with pytest.raises(ResponseError) as caught:
            await producer.recall(topic, handle)
        assert caught.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


# -- request and reply ---------------------------------------------------------------------------------------


async def test_a_request_gets_the_reply_of_who_consumes_it(kit: ClientKit) -> None:
    topic, inbox = await kit.new_topic("request"), Inbox()
    async with kit.producer() as asker, kit.producer() as replier, kit.push_consumer(topic, inbox):
        asking = [
            asyncio.ensure_future(asker.request(Message(topic, body), timeout_ms=20_000))
            for body in names("ask", 3)
        ]
        # In another order than they were asked, and one of them large.
        for request in reversed(await inbox.wait(3)):
            body = b"reply to %s" % request.body * (1_000 if request.body == b"ask-1" else 1)
            assert (await replier.send(replier.reply_to(request, body))).is_ok
        replies = await asyncio.gather(*asking)
        assert [reply.body for reply in replies] == [
            b"reply to ask-0",
            b"reply to ask-1" * 1_000,
            b"reply to ask-2",
        ]
        with pytest.raises(NoReplyError):
            await asker.request(Message(topic, b"anybody?"), timeout_ms=500)


# -- transactions --------------------------------------------------------------------------------------------


async def test_transactions_end_as_requested_or_are_checked(kits: list[ClientKit]) -> None:
    await together(_end_transactions, kits)


async def _end_transactions(kit: ClientKit) -> None:
    topic, inbox = await kit.new_topic("transactions"), Inbox()
    asked: list[MessageExt] = []

    def check(message: MessageExt) -> TransactionState:
        asked.append(message)
        return (
            TransactionState.COMMIT if message.body.startswith(b"asked: yes") else TransactionState.ROLLBACK
        )

    async with kit.push_consumer(topic, inbox), kit.transaction_producer(check) as producer:
        async with producer.transaction(Message(topic, b"committed", tags="T", keys=["k"])) as committed:
            pass
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction(Message(topic, b"failed")):
                _ = 1 // 0
        async with producer.transaction(Message(topic, b"rolled back")) as rolled_back:
            rolled_back.rollback()
        async with producer.transaction(Message(topic, b"asked: yes" * 1_000)) as yes:
            yes.unknown()
        async with producer.transaction(Message(topic, b"asked: no")) as no:
            no.unknown()
        by_function = await producer.send_in_transaction(
            Message(topic, b"by function"), lambda message: TransactionState.COMMIT
        )
        assert by_function.state is TransactionState.COMMIT and by_function.half.is_ok
        came = {message.msg_id: message for message in await inbox.wait(3)}
        await until(lambda: no.msg_id in {message.msg_id for message in asked}, "the question for a rollback")
        assert {message.msg_id for message in asked} == {yes.msg_id, no.msg_id}
        assert {message.topic for message in asked} == {topic}
    assert set(came) == {committed.msg_id, yes.msg_id, by_function.msg_id}
    assert came[yes.msg_id].body == b"asked: yes" * 1_000
    assert (came[committed.msg_id].tags, came[committed.msg_id].keys) == ("T", ("k",))
    committed_bits = MessageSysFlag.TRANSACTION_COMMIT_TYPE.value
    assert {message.sys_flag & _TRANSACTION_MASK for message in came.values()} == {committed_bits}
    assert len(inbox.calls) == 3


# -- push ----------------------------------------------------------------------------------------------------


async def test_a_group_shares_the_messages_of_several_topics(kit: ClientKit) -> None:
    topic, other = await kit.new_topic("push"), await kit.new_topic("push-other")
    group, first, second = kit.new_name("group"), Inbox(), Inbox()
    async with (
        kit.producer() as producer,
        kit.push_consumer(topic, first, group=group) as one,
        kit.push_consumer(topic, second, group=group) as two,
    ):
        for consumer, inbox in ((one, first), (two, second)):
            await consumer.subscribe(other, kit.adapter.function(inbox.take))
        await until(lambda: _owned(one, topic) == _owned(two, topic) == 2, "the queues shared")
        await until(lambda: _owned(one, other) == _owned(two, other) == 2, "the queues of the other shared")
        for each in (topic, other):
            for queue_id in range(4):
                await send_all(producer, each, names(f"{each}-{queue_id}", 5), queue_id=queue_id)
        await until(lambda: len(first.calls) + len(second.calls) >= 40, "all messages")
        await until(lambda: one.stats().consumed + two.stats().consumed == 40, "the count of them")
    assert len(first.calls) == len(second.calls) == 20
    assert len({message.msg_id for message in first.calls + second.calls}) == 40
    assert Counter(message.topic for message in first.calls + second.calls) == {topic: 20, other: 20}


def _owned(consumer: AsyncPushConsumer, topic: str) -> int:
    return sum(queue.topic == topic for queue in consumer.queues)


async def test_the_next_consumer_of_a_group_begins_where_the_last_ended(
    kit: ClientKit, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = await kit.new_topic("offsets", queues=2), kit.new_name("group")
    async with kit.producer() as producer:
        for label in ("first", "second"):
            inbox = Inbox()
            await send_all(producer, topic, names(label, 6))
            async with kit.push_consumer(topic, inbox, group=group):
                while missing := set(names(label, 6)) - set(inbox.bodies):
                    await inbox.wait(len(inbox.bodies) + len(missing))
            # Unless a broker did not take an offset in time, and we said so.
            if f"group {group}: offset" not in caplog.text:
                assert sorted(inbox.bodies) == names(label, 6), "nothing comes twice after a stop in order"


async def test_a_handler_of_batches_gets_lists_and_a_context(kit: ClientKit) -> None:
    topic = await kit.new_topic("lists", queues=1)
    batches: list[list[bytes]] = []
    queues: set[MessageQueue] = set()

    def take(messages: Sequence[MessageExt], context: ConsumeContext) -> None:
        batches.append([message.body for message in messages])
        queues.add(context.queue)

    async def take_async(messages: Sequence[MessageExt], context: ConsumeContext) -> None:
        take(messages, context)

    async with kit.producer() as producer:
        await send_all(producer, topic, names("m", 10))
    options = kit.with_defaults({"batch_size": 4, "consume_from": "first"})
    async with kit.adapter.use(AsyncPushConsumer, kit.new_name("group"), **options) as consumer:
        await consumer.subscribe(topic, take if kit.is_plain else take_async)
        await until(lambda: sum(map(len, batches)) == 10, "all messages")
    assert sorted(body for batch in batches for body in batch) == sorted(names("m", 10))
    assert max(map(len, batches)) == 4 and queues == {MessageQueue(topic, BROKER_NAME, 0)}


async def test_an_orderly_consumer_keeps_the_order_whatever_fails(kit: ClientKit) -> None:
    topic, failing = await kit.new_topic("orderly", queues=2), {b"q0-1", b"q1-3"}

    def verdict(message: MessageExt) -> ConsumeResult:
        if message.body in failing and message.reconsume_times == 0:
            return ConsumeResult.SUSPEND
        return ConsumeResult.SUCCESS

    inbox = Inbox(verdict)
    async with kit.producer() as producer:
        for queue_id in range(2):
            await send_all(producer, topic, names(f"q{queue_id}", 6), queue_id=queue_id)
    async with kit.push_consumer(topic, inbox, orderly=True, suspend_ms=50):
        await inbox.wait(14)
    for queue_id in range(2):
        came = [message.body for message in inbox.calls if message.queue_id == queue_id]
        expected = [body for body in names(f"q{queue_id}", 6) for _ in range(1 + (body in failing))]
        assert came == expected


async def test_every_broadcasting_consumer_gets_everything_once(kit: ClientKit, tmp_path: Path) -> None:
    topic, group = await kit.new_topic("broadcast"), kit.new_name("group")
    inboxes = [Inbox(), Inbox(), Inbox()]

    def options(number: int) -> dict[str, Any]:
        return {
            "group": group,
            "model": "broadcasting",
            "instance_name": f"member-{number}",
            "offset_store_dir": tmp_path,
        }

    async with kit.producer() as producer:
        await send_all(producer, topic, names("m", 8))
        async with (
            kit.push_consumer(topic, inboxes[0], **options(0)),
            kit.push_consumer(topic, inboxes[1], **options(1)),
        ):
            for inbox in inboxes[:2]:
                await inbox.wait(8)
        await send_all(producer, topic, names("later", 4))
        # The offsets are in a file of the member's.
        async with kit.push_consumer(topic, inboxes[2], **options(0)):
            await inboxes[2].wait(4)
    for inbox in inboxes[:2]:
        assert sorted(inbox.bodies) == names("m", 8)
    assert sorted(inboxes[2].bodies) == names("later", 4)


async def test_what_fails_comes_again_and_ends_among_the_dead_letters(kit: ClientKit) -> None:
    topic, group = await kit.new_topic("retry", queues=1), kit.new_name("group")

    def verdict(message: MessageExt) -> ConsumeResult | None:
        if message.body == b"always":
            return ConsumeResult.LATER
        if message.body == b"once" and message.reconsume_times == 0:
            raise RuntimeError("the handler fails on purpose")
        return None

    inbox = Inbox(verdict)
    async with kit.producer() as producer:
        results = await send_all(producer, topic, [b"always", b"once", b"never"])
    async with kit.push_consumer(topic, inbox, group=group, max_reconsume_times=1):
        await inbox.wait(5)
        await kit.wait_topic(dlq_topic(group))
        (dead,) = (await kit.stored(dlq_topic(group), 1)).values()
    assert Counter((message.body, message.reconsume_times) for message in inbox.calls) == Counter(
        [(b"always", 0), (b"always", 1), (b"once", 0), (b"once", 1), (b"never", 0)]
    )
    assert {message.topic for message in inbox.calls} == {topic}
    again = [message for message in inbox.calls if message.reconsume_times]
    assert {message.msg_id for message in again} == {result.msg_id for result in results[:2]}
    assert (dead.body, dead.msg_id) == (b"always", results[0].msg_id)
    assert dead.get_property("RETRY_TOPIC") == topic


async def test_a_negative_delay_level_is_for_the_dead_letters_at_once(kit: ClientKit) -> None:
    topic, group = await kit.new_topic("dead", queues=1), kit.new_name("group")

    def give_up(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
        context.delay_level = -1
        return ConsumeResult.LATER

    async def give_up_async(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
        return give_up(message, context)

    async with kit.producer() as producer:
        (result,) = await send_all(producer, topic, [b"hopeless"])
    options = kit.with_defaults({"consume_from": "first"})
    async with kit.adapter.use(AsyncPushConsumer, group, **options) as consumer:
        await consumer.subscribe(topic, give_up if kit.is_plain else give_up_async)
        await kit.wait_topic(dlq_topic(group))
        assert set(await kit.stored(dlq_topic(group), 1)) == {result.msg_id}


# -- what is subscribed to -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression_type", "expression", "expected"),
    [
        ("TAG", "red || blue", [b"red 0", b"red 3", b"red 6", b"blue 2", b"blue 5", b"blue 8"]),
        ("SQL92", "colour = 'green' AND size BETWEEN 2 AND 7", [b"green 4", b"green 7"]),
        ("SQL92", "colour IN ('red', 'blue') AND size > 5 OR TAGS = 'green'", None),
    ],
    ids=["tags", "sql", "sql-with-tags"],
)
async def test_a_subscription_selects(
    kit: ClientKit, expression_type: str, expression: str, expected: list[bytes] | None
) -> None:
    topic, inbox = await kit.new_topic("subscription"), Inbox()
    expected = expected or [b"green 1", b"green 4", b"red 6", b"green 7", b"blue 8"]
    async with kit.producer() as producer:
        await send_colours(producer, topic)
        async with kit.push_consumer(topic, inbox, expression, expression_type=expression_type):
            await inbox.wait(len(expected))
            # What comes last shows that nothing else was on its way.
            for queue in await producer.queues(topic):
                last = Message(topic, b"last", tags="red", properties={"colour": "green", "size": "7"})
                if expression_type == "SQL92" and "TAGS" in expression:
                    last = Message(topic, b"last", tags="green")
                await producer.send(last, queue=queue)
            await inbox.wait(len(expected) + 4)
    assert sorted(inbox.bodies) == sorted([*expected, *[b"last"] * 4])


async def test_a_condition_that_does_not_parse_is_refused(kit: ClientKit) -> None:
    topic = await kit.new_topic("bad-sql")
    with pytest.raises(ClientError, match=r"(?s)rejects SQL92 'colour >'.*code 23.*correct the expression"):
        async with kit.push_consumer(topic, Inbox(), "colour >", expression_type="SQL92"):
            pass


async def test_a_consumer_begins_at_the_first_message_or_at_a_time(kit: ClientKit, tmp_path: Path) -> None:
    topic, all_of_it, newer = await kit.new_topic("from", queues=2), Inbox(), Inbox()
    when = await send_around(kit, topic)
    async with kit.push_consumer(topic, all_of_it, consume_from="first"):
        await all_of_it.wait(8)
    # Of a queue that is young, brokers let every group begin with the first message, unless it keeps its
    # offsets itself.
    options: dict[str, Any] = {"model": "broadcasting", "offset_store_dir": tmp_path, "consume_from": when}
    async with kit.push_consumer(topic, newer, **options):
        await newer.wait(4)
    assert sorted(all_of_it.bodies) == sorted(names("old", 4) + names("new", 4))
    assert sorted(newer.bodies) == names("new", 4)


# -- namespaces ----------------------------------------------------------------------------------------------


async def test_in_a_namespace_names_are_as_users_write_them(kits: list[ClientKit]) -> None:
    await together(_stay_in_a_namespace, kits)


async def _stay_in_a_namespace(kit: ClientKit) -> None:
    inner = await kit.new_topic("shop%orders", queues=1)
    topic, group, asked = inner.removeprefix("shop%"), kit.new_name("group"), set[tuple[str, bytes]]()

    def verdict(message: MessageExt) -> ConsumeResult:
        is_first_failure = message.body == b"m-0" and message.reconsume_times == 0
        return ConsumeResult.LATER if is_first_failure else ConsumeResult.SUCCESS

    def check(message: MessageExt) -> TransactionState:
        asked.add((message.topic, message.body))
        return TransactionState.COMMIT

    inbox = Inbox(verdict)
    async with (
        kit.transaction_producer(check, namespace="shop") as producer,
        kit.push_consumer(topic, inbox, group=group, namespace="shop"),
    ):
        results = await producer.send_many(Message(topic, body) for body in names("m", 2))
        assert {result.queue.topic for result in results} == {topic}
        async with producer.transaction(Message(topic, b"asked")) as transaction:
            transaction.unknown()
        await inbox.wait(4)
    assert sorted(inbox.bodies) == [b"asked", b"m-0", b"m-0", b"m-1"]
    assert {message.topic for message in inbox.calls} == {topic} and asked == {(topic, b"asked")}
    async with kit.lite_pull_consumer(namespace="shop", consume_from="first") as consumer:
        await consumer.subscribe(topic)
        polled = await consumer.poll(timeout_ms=10_000)
        while len(polled) < 3:  # a poll returns what is there: the rest may still be on its way
            found = await consumer.poll(timeout_ms=10_000)
            assert found, polled
            polled += found
    assert {message.topic for message in polled} == {topic}
    assert {message.msg_id for message in polled} == {message.msg_id for message in inbox.calls}
    assert {message.topic for message in (await kit.stored(inner, 3)).values()} == {inner}
