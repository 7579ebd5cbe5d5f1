"""Our clients, async and plain, beside Java's: bodies and queues are the same to both, producers of one group
answer for each other's transactions, and mqadmin shows what ours trace."""

from __future__ import annotations

import asyncio
import zlib
from typing import Final

import pytest

from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.queue_choice import select_by_hash
from kourou.protocol.codes import MessageSysFlag
from kourou.protocol.message import Message, MessageExt
from tests.interop.kit.client_kit import ClientKit, Inbox, kits_at, together, until
from tests.interop.kit.lanes import KOUROU, Lanes
from tests.interop.kit.transactions import TransactionProducer, start_producer

pytestmark = pytest.mark.interop

_COMPRESSED: Final = MessageSysFlag.COMPRESSED.value


@pytest.fixture
def java_kits(shared_lanes: Lanes, lane_name: str) -> list[ClientKit]:
    """Our clients at the broker of a lane whose Java client takes part."""
    return kits_at(shared_lanes[lane_name])


# Each version of client and broker once; which client is at which broker makes no difference to ours.
_LANES: Final = (f"5.5.0-{KOUROU}", "4.9.8-4.9.7")
_NIGHTLY_LANES: Final = (f"4.9.8-{KOUROU}", "5.5.0-5.5.0")
every_java_lane = pytest.mark.parametrize(
    "lane_name", [*_LANES, *(pytest.param(name, marks=pytest.mark.nightly) for name in _NIGHTLY_LANES)]
)
_CHECKED: Final = {"commit": TransactionState.COMMIT, "rollback": TransactionState.ROLLBACK}


@every_java_lane
async def test_large_bodies_and_hashed_queues_are_the_same_to_java(
    java_kits: list[ClientKit],
) -> None:
    await together(_agree_with_java, java_kits)


async def _agree_with_java(kit: ClientKit) -> None:
    lane = kit.lane
    topic, inbox = await kit.new_topic("java"), Inbox()
    theirs = lane.client.send(lane.sender, "hash", topic, 6, keys=6, label="java", size=10_000)
    async with kit.producer() as producer, kit.push_consumer(topic, inbox):
        ours = [
            await producer.send(
                Message(topic, b"ours-%d|" % number + b"x" * 9_000), selector=select_by_hash, arg=number
            )
            for number in range(6)
        ]
        await inbox.wait(12)
    assert [result.queue.queue_id for result in ours] == [message["queueId"] for message in theirs]
    by_id = {message.msg_id: message for message in inbox.calls}
    for message in theirs:
        record = by_id[message["msgId"]]
        assert (len(record.body), zlib.crc32(record.body)) == (message["size"], message["crc"])
        assert record.sys_flag & _COMPRESSED and record.keys == (message["keys"],)
    consumer = lane.start_consumer(topic)
    received = {message["msgId"]: message for message in lane.client.received(consumer, 12)}
    lane.client.stop(consumer)
    for result in ours:
        message, record = received[result.msg_id], by_id[result.msg_id]
        assert (message["size"], message["crc"]) == (9_007, zlib.crc32(record.body))
        assert record.sys_flag & _COMPRESSED


@every_java_lane
async def test_java_is_asked_for_transactions_of_a_python_producer_that_has_gone(
    java_kits: list[ClientKit],
) -> None:
    await together(_leave_transactions_to_java, java_kits)


async def _leave_transactions_to_java(kit: ClientKit) -> None:
    lane = kit.lane
    topic, group, inbox = await kit.new_topic("left-python"), kit.new_name("tx-group"), Inbox()
    heir = start_producer(lane, group)
    heir.wait_known()

    def never(message: MessageExt) -> TransactionState:
        raise AssertionError(f"{message} is nothing to ask of who has gone")

    sent: dict[str, tuple[str, Message]] = {}
    async with kit.push_consumer(topic, inbox):
        async with kit.transaction_producer(never, group) as producer:
            for end in _CHECKED:
                message = Message(topic, b"python-%s|" % end.encode() + b"x" * 9_000, keys=[f"k-{end}"])
                message.put_user_property("checked", end)
                async with producer.transaction(message) as transaction:
                    transaction.unknown()
                sent[end] = (transaction.msg_id, message)
        await until(lambda: len(heir.checks()) >= 2, "the questions to Java")
        asked = {question["transactionId"]: question for question in heir.checks()}
        assert set(asked) == {msg_id for msg_id, _ in sent.values()}
        for msg_id, message in sent.values():
            question = asked[msg_id]
            assert (question["topic"], question["keys"]) == (topic, message.keys[0])
            assert (question["crc"], question["properties"]["PGROUP"]) == (zlib.crc32(message.body), group)
        await inbox.wait(1)
        assert [message.msg_id for message in inbox.calls] == [sent["commit"][0]]
        assert inbox.bodies == [sent["commit"][1].body]
    heir.stop()


@every_java_lane
async def test_python_is_asked_for_transactions_of_a_java_producer_that_has_gone(
    java_kits: list[ClientKit],
) -> None:
    await together(_answer_for_java, java_kits)


async def _answer_for_java(kit: ClientKit) -> None:
    lane = kit.lane
    topic, group, inbox = await kit.new_topic("left-java"), kit.new_name("tx-group"), Inbox()
    asked: list[MessageExt] = []

    def check(message: MessageExt) -> TransactionState:
        asked.append(message)
        return _CHECKED[message.properties["checked"]]

    name = kit.new_name("heir")
    async with (
        kit.push_consumer(topic, inbox),
        kit.transaction_producer(check, group, instance_name=name) as heir,
    ):
        async with heir.transaction(Message(topic, b"first")) as first:
            pass
        await asyncio.to_thread(TransactionProducer(lane, name, group).wait_known)
        gone = start_producer(lane, group)
        options = {"local": "unknown", "size": 10_000}
        sent = {end: gone.send(topic, f"java-{end}", 1, checked=end, **options)[0] for end in _CHECKED}
        assert {message["state"] for message in sent.values()} == {"UNKNOW"}
        gone.stop()
        await until(lambda: len(asked) >= 2, "the questions to Python")
        questions = {message.msg_id: message for message in asked}
        assert set(questions) == {message["msgId"] for message in sent.values()}
        for message in sent.values():
            question = questions[message["msgId"]]
            assert (question.topic, question.keys) == (topic, (message["keys"],))
            assert (len(question.body), zlib.crc32(question.body)) == (message["size"], message["crc"])
            assert question.transaction_id == message["msgId"]
            assert question.get_property("PGROUP") == group
        await inbox.wait(2)
        assert {message.msg_id for message in inbox.calls} == {first.msg_id, sent["commit"]["msgId"]}


@every_java_lane
async def test_producers_of_both_answer_for_the_group_while_both_are_there(
    java_kits: list[ClientKit],
) -> None:
    await together(_share_a_group, java_kits)


async def _share_a_group(kit: ClientKit) -> None:
    lane, asked = kit.lane, list[str]()
    topic, group, inbox = await kit.new_topic("both"), kit.new_name("tx-group"), Inbox()

    def check(message: MessageExt) -> TransactionState:
        asked.append(message.msg_id)
        return _CHECKED[message.properties["checked"]]

    java = start_producer(lane, group)
    async with kit.push_consumer(topic, inbox), kit.transaction_producer(check, group) as python:
        sent: dict[str, set[str]] = {end: set() for end in _CHECKED}
        for end, ids in sent.items():
            halves = java.send(topic, f"java-{end}", 3, local="unknown", checked=end)
            ids |= {half["msgId"] for half in halves}
            for number in range(3):
                message = Message(topic, b"python-%d" % number, properties={"checked": end})
                half = await python.send_in_transaction(message, lambda _: TransactionState.UNKNOWN)
                ids.add(half.msg_id)
        everything = sent["commit"] | sent["rollback"]

        def is_asked() -> bool:
            return everything == {*asked, *(question["transactionId"] for question in java.checks())}

        await until(is_asked, "a question for every transaction, to either")
        await inbox.wait(6)
        assert {message.msg_id for message in inbox.calls} == sent["commit"]
    java.stop()


async def test_mqadmin_shows_what_python_clients_trace(kit: ClientKit) -> None:
    topic, group, inbox = await kit.new_topic("traced", queues=1), kit.new_name("group"), Inbox()
    async with (
        kit.producer(trace=True) as producer,
        kit.push_consumer(topic, inbox, group=group, trace=True),
    ):
        result = await producer.send(Message(topic, b"traced", tags="T", keys=["k"]))
        senders = producer.group
        await inbox.wait(1)

    # What is traced was sent when the clients had stopped; the index of a broker follows.
    def is_shown() -> bool:
        shown = kit.lane.run_admin("queryMsgTraceById", "-i", result.msg_id)
        rows = [line.split() for line in shown.stdout.splitlines()]
        ended = {tuple(row[:2]) for row in rows if row and row[-1] == "success"}
        return ended == {("Pub", senders), ("Sub", group)}

    await until(is_shown, f"the trace of {result.msg_id}")
