"""Pops from a real broker: what they take and where from, refusals, and waits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kourou.broker.groups.message_filter import MessageFilter
from kourou.broker.hooks import PullContext
from kourou.broker.pop.pop_read import Cold, PopReader
from kourou.broker.pull.filtered_read import WantedMessages
from kourou.broker.storage.inner_message import InnerMessage
from kourou.protocol.bodies import SubscriptionGroupConfig, TopicConfig, decode_body
from kourou.protocol.bodies.groups import GroupList
from kourou.protocol.bodies.subscription import QuerySubscriptionResponseBody
from kourou.protocol.codes import PermName, RequestCode, ResponseCode
from kourou.protocol.headers.groups import (
    DeleteSubscriptionGroupRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
)
from kourou.protocol.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageResponseHeader,
)
from kourou.protocol.headers.topics import QueryTopicConsumeByWhoRequestHeader
from kourou.protocol.pop.receipt_handle import ReceiptHandle
from kourou.protocol.pop.retry_topics import PopTopicKind, pop_retry_topic, pop_retry_topics
from kourou.store.log.put_status import PutStatus
from tests.e2e.broker.broker_kit import messages
from tests.e2e.broker.pop_delivery_kit import GROUP, PopPeer, popping, until
from tests.e2e.broker.pop_kit import ack

pytestmark = pytest.mark.e2e

TOPIC = "TopicTest"


async def make_topic(pops: PopPeer, queues: int = 1, topic: str = TOPIC) -> None:
    pops.peer.controller.services.topics.update(
        TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
    )


async def send(pops: PopPeer, *bodies: bytes, topic: str = TOPIC, **fields: Any) -> None:
    for body in bodies:
        assert (await pops.peer.send(topic, body, **fields)).code == 0


async def send_retry(pops: PopPeer, retry_topic: str, *bodies: bytes, properties: str = "") -> None:
    """As the broker does: clients may not send to all of these."""
    services, stored = pops.peer.controller.services, asyncio.Event()
    await make_topic(pops, topic=retry_topic)
    for body in bodies:
        stored.clear()
        message = InnerMessage(retry_topic, 0, body, properties, 0, services.store_host)
        services.writer.put_now(message, lambda *_: stored.set())
        await stored.wait()


async def test_a_pop_takes_messages_and_the_next_one_takes_those_behind(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        await send(pops, b"0", b"1", b"2")
        first = await pops.pop(max_msg_nums=2)
        assert (first.code, first.remark) == (0, "FOUND")
        assert first.bodies == [b"0", b"1"]
        assert first.header is not None and first.header.rest_num == 1
        assert first.header.start_offset_info == "0 0 0" and first.header.msg_offset_info == "0 0 0,1"
        assert first.header.invisible_time == 60_000
        assert pops.committed() == 2
        assert (await pops.pop()).bodies == [b"2"]
        none = await pops.pop()
        assert (none.code, none.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
        assert none.header is not None and none.header.msg_offset_info == ""


async def test_pops_of_one_iteration_get_different_messages(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        await send(pops, *(b"%d" % n for n in range(6)))
        answers = await asyncio.gather(*(pops.pop(max_msg_nums=2) for _ in range(3)))
        assert sorted(body for answer in answers for body in answer.bodies) == [b"%d" % n for n in range(6)]
        assert pops.committed() == 6


async def test_one_run_for_each_queue_in_the_order_of_the_body(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops, queues=3)
        for queue_id in range(3):
            await send(pops, b"%da" % queue_id, b"%db" % queue_id, queue_id=queue_id)
        pops.chances[0] = 98  # of three queues, the last one comes first
        answer = await pops.pop(max_msg_nums=5)
        assert answer.bodies == [b"2a", b"2b", b"0a", b"0b", b"1a"]
        assert [(queue.queue_id, tuple(queue.offsets)) for queue in answer.queues] == [
            (2, (0, 1)),
            (0, (0, 1)),
            (1, (0,)),
        ]
        assert answer.header is not None and answer.header.rest_num == 1
        assert {popped.revive_queue_id for popped in pops.in_flight.taken} == {answer.header.revive_qid}
        assert {popped.pop_time for popped in pops.in_flight.taken} == {answer.header.pop_time}


async def test_a_pop_of_one_queue_leaves_the_others(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops, queues=2)
        await send(pops, b"0", queue_id=0)
        await send(pops, b"1", queue_id=1)
        assert (await pops.pop(queue_id=1)).bodies == [b"1"]
        assert (await pops.pop()).bodies == [b"0"]


async def test_a_check_point_that_is_not_stored_leaves_the_group_where_it_was(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        await send(pops, b"0")
        pops.in_flight.status = PutStatus.SERVICE_NOT_AVAILABLE
        failed = await pops.pop()
        assert failed.code == ResponseCode.SERVICE_NOT_AVAILABLE and not failed.messages
        assert pops.committed() == 0
        pops.in_flight.status = None
        assert (await pops.pop()).bodies == [b"0"]


# -- where a group begins ------------------------------------------------------------------------


async def test_a_new_group_begins_at_the_oldest_message_or_at_the_newest(tmp_path: Path) -> None:
    async with popping(tmp_path, init_pop_offset_by_check_msg_in_mem=False) as pops:
        await make_topic(pops)
        await send(pops, b"0", b"1", b"2")
        assert (await pops.pop(consumer_group="newest", init_mode=1)).bodies == [b"2"]
        assert (await pops.pop(consumer_group="oldest", init_mode=0)).bodies == [b"0", b"1", b"2"]


async def test_at_the_newest_is_at_the_first_while_that_is_in_memory(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        await send(pops, b"0", b"1")
        assert (await pops.pop(init_mode=1)).bodies == [b"0", b"1"]


async def test_the_begin_is_committed_at_once(tmp_path: Path) -> None:
    async with popping(tmp_path, init_pop_offset_by_check_msg_in_mem=False) as pops:
        await make_topic(pops)
        assert (await pops.pop(init_mode=1)).code == ResponseCode.POLLING_TIMEOUT
        assert pops.committed() == 0
        await send(pops, b"0", b"1")
        assert (await pops.pop(init_mode=1)).bodies == [b"0", b"1"]


async def test_a_reset_moves_the_next_pop(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        await send(pops, b"0", b"1", b"2")
        assert len((await pops.pop()).messages) == 3
        pops.peer.controller.services.offsets.assign_reset(TOPIC, GROUP, 0, 1)
        assert (await pops.pop()).bodies == [b"1", b"2"]
        assert pops.committed() == 3


@pytest.mark.parametrize("wrong", [7, 10**18])
async def test_an_offset_beyond_the_queue_is_corrected(tmp_path: Path, wrong: int) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        await send(pops, b"0")
        pops.peer.controller.services.offsets.commit(GROUP, TOPIC, 0, wrong, "")
        assert (await pops.pop()).code == ResponseCode.POLLING_TIMEOUT
        assert pops.committed() == 1
        await send(pops, b"1")
        assert (await pops.pop()).bodies == [b"1"]


# -- retry topics --------------------------------------------------------------------------------


@pytest.mark.parametrize("is_v2", [False, True], ids=["V1", "V2"])
async def test_a_message_of_a_retry_topic_comes_with_the_topic_and_its_handle(
    tmp_path: Path, is_v2: bool
) -> None:
    async with popping(tmp_path, enable_retry_topic_v2=is_v2) as pops:
        await make_topic(pops)
        retry = pop_retry_topic(TOPIC, GROUP, is_v2=is_v2)
        await send_retry(pops, retry, b"again", properties="KEYS\x01k\x02")
        await send(pops, b"new")
        answer = await pops.pop(invisible_time=1234)
        assert answer.bodies == [b"new", b"again"]
        new, again = answer.messages
        assert "POP_CK" not in new.properties
        assert again.topic == TOPIC and again.properties["KEYS"] == "k"
        kind = PopTopicKind.RETRY_V2 if is_v2 else PopTopicKind.RETRY_V1
        assert answer.header is not None
        handle = ReceiptHandle.decode(again.properties["POP_CK"])
        assert handle == ReceiptHandle(
            0, answer.header.pop_time, 1234, answer.header.revive_qid, kind, "broker-a", 0, 0
        )
        assert [queue.kind for queue in answer.queues] == [PopTopicKind.NORMAL, kind]
        assert [popped.topic for popped in pops.in_flight.taken] == [TOPIC, retry]


async def test_a_message_that_was_popped_from_a_retry_topic_by_its_own_name_is_acknowledged(
    tmp_path: Path,
) -> None:
    topic = f"%RETRY%{GROUP}"
    async with popping(tmp_path) as pops:
        await send_retry(pops, topic, b"0")
        answer = await pops.pop(topic)
        assert answer.bodies == [b"0"] and answer.header is not None
        (queue,), header = answer.queues, answer.header
        handle = ReceiptHandle(
            queue.start_offset,
            header.pop_time,
            header.invisible_time,
            header.revive_qid,
            queue.kind,
            "broker-a",
            0,
            0,
        )
        assert (await ack(pops.peer, handle, topic=topic)).code == 0
        assert pops.in_flight.count(topic, GROUP) == 0


async def test_some_pops_look_at_the_retry_topic_first(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        retry = pop_retry_topic(TOPIC, GROUP, is_v2=False)
        await send_retry(pops, retry, b"again", b"again too")
        await send(pops, b"new", b"newer")
        pops.chances[0] = 19
        assert (await pops.pop(max_msg_nums=1)).bodies == [b"again"]
        pops.chances[0] = 20
        assert (await pops.pop(max_msg_nums=1)).bodies == [b"new"]


async def test_messages_of_a_retry_topic_as_they_are_stored(tmp_path: Path) -> None:
    async with popping(tmp_path, pop_response_return_actual_retry_topic=True) as pops:
        await make_topic(pops)
        retry = pop_retry_topic(TOPIC, GROUP, is_v2=False)
        await send_retry(pops, retry, b"again")
        (message,) = (await pops.pop()).messages
        assert message.topic == retry and "POP_CK" not in message.properties


# -- filters -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wanted", [{"exp": "b"}, {"exp": "TAGS = 'b'", "exp_type": "SQL92"}], ids=["tag", "SQL92"]
)
async def test_messages_that_are_not_wanted_are_passed_over(tmp_path: Path, wanted: dict[str, str]) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        for tag in "abab":
            await send(pops, tag.encode(), properties=f"TAGS\x01{tag}\x02")
        answer = await pops.pop(**wanted)
        assert answer.bodies == [b"b", b"b"]
        assert [tuple(queue.offsets) for queue in answer.queues] == [(1, 3)]
        assert answer.header is not None and answer.header.start_offset_info == "0 0 0"
        await send(pops, b"a", properties="TAGS\x01a\x02")
        taken = len(pops.in_flight.taken)
        assert (await pops.pop(**wanted)).code == ResponseCode.POLLING_TIMEOUT
        assert pops.committed() == 5 and len(pops.in_flight.taken) == taken


async def test_a_filter_holds_for_the_retry_topic_too(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        retry = pop_retry_topic(TOPIC, GROUP, is_v2=False)
        await send_retry(pops, retry, b"a", properties="TAGS\x01a\x02")
        await send_retry(pops, retry, b"b", properties="TAGS\x01b\x02")
        assert (await pops.pop(exp="b")).bodies == [b"b"]


# -- refusals ------------------------------------------------------------------------------------


REFUSALS: list[tuple[str, dict[str, Any], dict[str, Any], int, str]] = [
    ("late", {}, {"born_time": 1, "max_msg_nums": 33}, 210, "pop message is timeout too much"),
    ("broker", {"broker_permission": 2}, {"max_msg_nums": 33}, 16, "pop message is forbidden"),
    ("number", {}, {"max_msg_nums": 33, "topic": "none"}, 29, "pop message's num is greater than 32"),
    ("timers", {"timer_wheel_enable": False}, {"topic": "none"}, 1, "because timerWheelEnable is false"),
    ("topic", {}, {"topic": "none", "queue_id": 9}, 17, "topic[none] not exist, apply first please!"),
    ("name", {}, {"topic": "a topic"}, 17, "topic[a topic] not exist"),
    ("perm", {}, {"topic": "unreadable", "queue_id": 9}, 16, "the topic[unreadable] peeking message is"),
    ("queue", {}, {"queue_id": 1, "consumer_group": "none"}, 29, "queueId[1] is illegal, topic:[TopicTest]"),
    ("group", {}, {"consumer_group": "none", "exp": "'"}, 26, "subscription group [none] does not exist"),
    ("off", {}, {"consumer_group": "off"}, 16, "subscription group no permission, off"),
    ("filter", {}, {"exp": "a =", "exp_type": "SQL92"}, 23, "parse the consumer's subscription failed"),
    ("none", {}, {"max_msg_nums": 0}, 29, "maxMsgNums[0] is illegal"),
    ("negative", {}, {"max_msg_nums": -(2**31)}, 29, "is illegal"),
    ("backwards", {}, {"invisible_time": -1}, 29, "invisibleTime[-1] is illegal"),
    ("forever", {}, {"invisible_time": 2**63 - 1}, 29, "is illegal; it may be 0 to"),
]


@pytest.mark.parametrize(("keys", "fields", "code", "remark"), [r[1:] for r in REFUSALS], ids=lambda _: "")
async def test_refusals_come_in_the_order_of_rocketmq(
    tmp_path: Path, keys: dict[str, Any], fields: dict[str, Any], code: int, remark: str
) -> None:
    async with popping(tmp_path, auto_create_subscription_group=False, **keys) as pops:
        services = pops.peer.controller.services
        await make_topic(pops)
        services.topics.update(TopicConfig(topic_name="unreadable", perm=PermName.WRITE))
        services.groups.update(SubscriptionGroupConfig(group_name=GROUP))
        services.groups.update(SubscriptionGroupConfig(group_name="off", consume_enable=False))
        answer = await pops.pop(**{"topic": TOPIC, **fields})
        assert answer.code == code and remark in (answer.remark or "")
        assert not pops.in_flight.taken


async def test_huge_numbers_are_no_trouble(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        most = 2**63 - 1
        for fields in ({"born_time": most}, {"queue_id": -(2**31)}, {"init_mode": -7}, {"poll_time": -most}):
            assert (await pops.pop(**fields)).code == ResponseCode.POLLING_TIMEOUT, fields


@pytest.mark.parametrize("code", [RequestCode.POP_ROLLBACK, RequestCode.POP_LITE_MESSAGE])
async def test_what_is_not_there_is_refused_in_words(tmp_path: Path, code: int) -> None:
    async with popping(tmp_path) as pops:
        answer = await pops.peer.call(code)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "there " in (answer.remark or "")


# -- waiting -------------------------------------------------------------------------------------


def waiting(pops: PopPeer, **fields: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(pops.pop(**{"poll_time": 4_000, **fields}))


@pytest.mark.parametrize("queue_id", [-1, 1])
async def test_a_message_wakes_a_pop_that_waits(tmp_path: Path, queue_id: int) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops, queues=2)
        held = waiting(pops, queue_id=queue_id)
        await pops.until_held(1)
        await send(pops, b"new", queue_id=1)
        assert (await held).bodies == [b"new"]


@pytest.mark.parametrize("queue_id", [-1, 0])
@pytest.mark.parametrize("name", [0, 1], ids=["V1", "V2"])
async def test_a_message_of_a_retry_topic_wakes_a_pop(tmp_path: Path, name: int, queue_id: int) -> None:
    async with popping(tmp_path, enable_retry_topic_v2=bool(name)) as pops:
        await make_topic(pops)
        retry = pop_retry_topics(TOPIC, GROUP)[name]
        pops.chances[0] = 99
        held = waiting(pops, queue_id=queue_id)
        await pops.until_held(1)
        await send_retry(pops, retry, b"again")
        assert (await held).bodies == [b"again"]


async def test_messages_that_are_left_wake_the_next_pop(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        held = [waiting(pops, max_msg_nums=1) for _ in range(3)]
        await pops.until_held(3)
        await pops.peer.send_batch(TOPIC, [b"0", b"1", b"2"])
        answers = await asyncio.gather(*held)
        assert sorted(answer.bodies[0] for answer in answers) == [b"0", b"1", b"2"]


async def test_a_pop_goes_on_waiting_for_messages_that_it_wants(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        held = waiting(pops, exp="b")
        await pops.until_held(1)
        await send(pops, b"a", properties="TAGS\x01a\x02")
        await until(lambda: pops.committed() == 1)
        await pops.until_held(1)
        await send(pops, b"b", properties="TAGS\x01b\x02")
        assert (await held).bodies == [b"b"]


async def test_a_pop_whose_time_is_over_is_answered(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        answer = await pops.pop(poll_time=120)
        assert (answer.code, answer.remark) == (ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE")
        assert len(pops.peer.controller.services.pop_polling) == 0


@pytest.mark.parametrize("keys", [{"pop_polling_size": 1}, {"max_pop_polling_size": 1}])
async def test_more_than_may_wait_are_refused(tmp_path: Path, keys: dict[str, int]) -> None:
    async with popping(tmp_path, **keys) as pops:
        await make_topic(pops)
        held = waiting(pops)
        await pops.until_held(1)
        answer = await pops.pop(poll_time=4_000)
        assert answer.code == ResponseCode.POLLING_FULL and answer.header is not None
        await send(pops, b"0")
        assert (await held).bodies == [b"0"]


async def test_pops_of_a_connection_that_closes_wait_no_more(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        held = waiting(pops)
        await pops.until_held(1)
        polling = pops.peer.controller.services.pop_polling
        await pops.peer.client.stop()
        with pytest.raises(Exception):  # noqa: B017 (whatever the client says)
            await held
        await until(lambda: not len(polling))


async def test_a_stop_answers_pops_that_wait(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        held = waiting(pops)
        await pops.until_held(1)
        await pops.peer.controller.stop()
        assert (await held).code == ResponseCode.POLLING_TIMEOUT


async def test_a_pop_that_waits_is_refused_when_its_group_may_no_longer_consume(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        held = waiting(pops)
        await pops.until_held(1)
        pops.peer.controller.services.groups.update(
            SubscriptionGroupConfig(group_name=GROUP, consume_enable=False)
        )
        await send(pops, b"0")
        answer = await held
        assert answer.code == ResponseCode.NO_PERMISSION and not pops.in_flight.taken


async def test_a_group_with_too_much_in_flight_gets_nothing_more(tmp_path: Path) -> None:
    async with popping(tmp_path, enable_pop_message_threshold=True) as pops:
        await make_topic(pops)
        await send(pops, b"0")
        pops.in_flight.counted = 10_001
        answer = await pops.pop()
        assert answer.code == ResponseCode.POLLING_TIMEOUT
        assert answer.header is not None and answer.header.rest_num == 1
        held = waiting(pops)
        await pops.until_held(1)
        pops.in_flight.counted = 10_000
        assert (await held).bodies == [b"0"]


# -- what tools and others ask -------------------------------------------------------------------


async def test_polling_info_counts_the_pops_that_wait(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        held = [waiting(pops, queue_id=queue_id) for queue_id in (-1, 0, 0)]
        await pops.until_held(3)
        for queue_id, count in ((-1, 1), (0, 2)):
            header = PollingInfoRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=queue_id)
            answer = await pops.peer.call(RequestCode.POLLING_INFO, header)
            assert answer.header(PollingInfoResponseHeader).polling_num == count
        await pops.peer.send_batch(TOPIC, [b"0", b"1", b"2"])
        for _ in range(3):
            await send(pops, b"more")
        await asyncio.gather(*held)


async def test_a_peek_takes_nothing(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        header = PeekMessageRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=-1, max_msg_nums=2)
        empty = await pops.peer.call(RequestCode.PEEK_MESSAGE, header)
        assert empty.code == ResponseCode.PULL_NOT_FOUND
        await send(pops, b"0", b"1", b"2")
        for _ in range(2):
            answer = await pops.peer.call(RequestCode.PEEK_MESSAGE, header)
            assert [message.body for message in messages(answer)] == [b"0", b"1"]
            assert answer.header(PopMessageResponseHeader).rest_num == 3
        assert pops.committed() == -1 and not pops.in_flight.taken


async def notified(pops: PopPeer, **fields: Any) -> NotificationResponseHeader:
    header = NotificationRequestHeader(
        **{"consumer_group": GROUP, "topic": TOPIC, "queue_id": -1, "poll_time": 4_000, **fields}
    )
    answer = await pops.peer.call(RequestCode.NOTIFICATION, header)
    assert answer.code == 0
    return answer.header(NotificationResponseHeader)


async def test_a_notification_comes_with_the_message(tmp_path: Path) -> None:
    async with popping(tmp_path, max_pop_polling_size=1) as pops:
        await make_topic(pops)
        held = asyncio.create_task(notified(pops))
        polling = pops.peer.controller.services.notice_polling
        await until(lambda: len(polling) == 1)
        full = await notified(pops)
        assert (full.has_msg, full.polling_full) == (False, True)
        assert not (await notified(pops, poll_time=0)).has_msg
        await send(pops, b"0")
        assert (await held).has_msg
        assert (await notified(pops)).has_msg
        assert (await pops.pop()).bodies == [b"0"]


# -- order ---------------------------------------------------------------------------------------


async def test_orderly_pop_blocks_its_queue_and_stays_at_its_offset(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        await send(pops, b"0", b"1")
        first = await pops.pop(order=True, max_msg_nums=1, attempt_id="one")
        assert first.bodies == [b"0"] and pops.committed() == 0
        assert first.header is not None and first.header.revive_qid == 999
        assert (await pops.pop(order=True, attempt_id="two")).code == ResponseCode.POLLING_TIMEOUT
        again = await pops.pop(order=True, max_msg_nums=1, attempt_id="one")
        assert again.bodies == [b"0"]
        assert not pops.in_flight.taken


# -- accounting ----------------------------------------------------------------------------------


async def test_pops_are_counted_as_pulls_are(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        seen: list[PullContext] = []
        pops.peer.controller.services.hooks.after_pull.append(seen.append)
        await send(pops, b"0", b"1")
        await pops.pop()
        assert [(each.topic, each.consumer_group, each.message_count) for each in seen] == [(TOPIC, GROUP, 2)]
        item = pops.peer.controller.services.stats.group_gets[TOPIC, GROUP]
        assert (item.times, item.nums) == (1, 2)


# -- what is not in memory -----------------------------------------------------------------------


@pytest.fixture
def cold_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is in memory, as it looks to pops."""
    monkeypatch.setattr(PopReader, "read_nowait", lambda *_: Cold.NEEDS_TURN)


@pytest.mark.usefixtures("cold_reads")
@pytest.mark.parametrize("wanted", [{}, {"exp": "b"}, {"exp": "TAGS = 'b'", "exp_type": "SQL92"}])
async def test_messages_that_have_to_be_read_first(tmp_path: Path, wanted: dict[str, str]) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops, queues=2)
        for tag in "ab":
            await send(pops, tag.encode(), properties=f"TAGS\x01{tag}\x02", queue_id=1)
        answer = await pops.pop(**wanted)
        assert answer.bodies == ([b"b"] if wanted else [b"a", b"b"])
        assert pops.committed(queue_id=1) == 2
        assert (await pops.pop(poll_time=150, **wanted)).code == ResponseCode.POLLING_TIMEOUT


@pytest.mark.parametrize("queue_id", [-1, 0])
async def test_a_queue_that_is_read_is_locked_for_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue_id: int
) -> None:
    reading, may_read = asyncio.Event(), asyncio.Event()
    read = PopReader.read

    async def slow(self: PopReader, *args: Any) -> Any:
        reading.set()
        await may_read.wait()
        return await read(self, *args)

    async with popping(tmp_path) as pops:
        await make_topic(pops)
        await send(pops, b"0", b"1")
        with monkeypatch.context() as patch:
            patch.setattr(PopReader, "read_nowait", lambda *_: Cold.NEEDS_TURN)
            patch.setattr(PopReader, "read", slow)
            first = asyncio.create_task(pops.pop(max_msg_nums=1))
            await reading.wait()
        passed = await pops.pop()
        assert passed.code == ResponseCode.POLLING_TIMEOUT
        assert passed.header is not None and passed.header.rest_num == 2
        assert (await pops.pop(consumer_group="others")).bodies == [b"0", b"1"]
        held = waiting(pops, queue_id=queue_id, poll_time=60_000)
        await pops.until_held(1)
        may_read.set()
        assert (await first).bodies == [b"0"]
        async with asyncio.timeout(10):
            assert (await held).bodies == [b"1"]


async def test_a_message_that_comes_while_another_queue_is_read_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = PopReader.read
    async with popping(tmp_path) as pops:
        await make_topic(pops, queues=2)
        pops.chances[0] = 98  # queue 0 first, which is empty at that time
        nowait = PopReader.read_nowait

        def cold_second(self: PopReader, wanted: WantedMessages, selected: MessageFilter) -> Any:
            return Cold.NEEDS_TURN if wanted.queue_id == 1 else nowait(self, wanted, selected)

        async def read_and_send(self: PopReader, *args: Any) -> Any:
            monkeypatch.undo()
            await send(pops, b"missed?", queue_id=0)
            return await read(self, *args)

        monkeypatch.setattr(PopReader, "read_nowait", cold_second)
        monkeypatch.setattr(PopReader, "read", read_and_send)
        assert (await pops.pop(poll_time=4_000)).bodies == [b"missed?"]


async def test_what_a_pop_selects_is_shown_to_tools(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        header = QuerySubscriptionByConsumerRequestHeader(group=GROUP, topic=TOPIC)

        async def shown() -> tuple[str, str] | None:
            answer = await pops.peer.call(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header)
            data = decode_body(answer.body, QuerySubscriptionResponseBody).subscription_data
            return None if data is None else (data.sub_string, data.expression_type)

        assert await shown() is None
        await pops.pop()
        assert await shown() == ("*", "TAG")
        await pops.pop(exp="a > 1", exp_type="SQL92")
        assert await shown() == ("a > 1", "SQL92")
        by_who = QueryTopicConsumeByWhoRequestHeader(topic=TOPIC)
        groups = await pops.peer.call(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, by_who)
        assert decode_body(groups.body, GroupList).group_list == [GROUP]
        delete = DeleteSubscriptionGroupRequestHeader(group_name=GROUP)
        assert (await pops.peer.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, delete)).code == 0
        assert await shown() is None


# -- with acknowledgements -----------------------------------------------------------------------


async def test_what_is_not_acknowledged_comes_to_the_pop_that_waits_and_is_acknowledged_there(
    tmp_path: Path,
) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        await send(pops, b"acked", b"not acked")
        first = await pops.pop(invisible_time=1_500)
        assert first.header is not None
        handle = ReceiptHandle(
            0, first.header.pop_time, 1_500, first.header.revive_qid, PopTopicKind.NORMAL, "broker-a", 0, 0
        )
        assert (await ack(pops.peer, handle)).code == 0
        again = await waiting(pops, poll_time=4_500)
        assert again.bodies == [b"not acked"]
        (message,) = again.messages
        assert (message.topic, message.reconsume_times) == (TOPIC, 1)
        own = ReceiptHandle.decode(message.properties["POP_CK"])
        assert (await ack(pops.peer, own, topic=pop_retry_topic(TOPIC, GROUP, is_v2=False))).code == 0
        assert not pops.in_flight.count(pop_retry_topic(TOPIC, GROUP, is_v2=False), GROUP)
        assert not pops.in_flight.count(TOPIC, GROUP)


@pytest.mark.parametrize("most", [1, 2**31 - 1])
async def test_pops_and_peeks_count_for_the_limits_of_an_account(tmp_path: Path, most: int) -> None:
    async with popping(tmp_path) as pops:
        await make_topic(pops)
        await send(pops, b"0", b"1")
        charged: list[tuple[int, int]] = []
        processor = pops.peer.controller.running.pops.processor
        processor.charge = lambda _, messages, size_bytes: charged.append((messages, size_bytes))
        header = PeekMessageRequestHeader(consumer_group=GROUP, topic=TOPIC, queue_id=-1, max_msg_nums=most)
        peeked = await pops.peer.call(RequestCode.PEEK_MESSAGE, header)
        assert charged == [(min(most, 2), len(peeked.body))]
        popped = await pops.pop()
        await pops.pop()
        assert charged[1:] == [(2, sum(message.store_size for message in popped.messages))]
