"""SQL92 pulls from a real broker: what is found, what is waited for, and that no other request is delayed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from kourou.protocol.bodies import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
    encode_body,
)
from kourou.protocol.codes import PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pull import PullMessageResponseHeader
from kourou.protocol.layout import MAX_TOPIC_BYTES_V1
from kourou.testing.faulty_files import FaultyFiles
from tests.e2e.broker.broker_kit import SUBSCRIPTION, SUSPEND, Peer, messages, running

pytestmark = pytest.mark.e2e

SQL = {"expression_type": "SQL92"}
WAITING = {**SQL, "sys_flag": SUBSCRIPTION | SUSPEND}


def bodies(answer: RemotingCommand) -> list[bytes]:
    return [message.body for message in messages(answer)]


def next_offset(answer: RemotingCommand) -> int:
    return answer.header(PullMessageResponseHeader).next_begin_offset


async def send_numbers(peer: Peer, numbers: range, topic: str = "TopicTest") -> None:
    """One message for each number, with it as body and as property n."""
    await asyncio.gather(
        *(peer.send(topic, body=b"%d" % number, properties=f"n\x01{number}\x02") for number in numbers)
    )


async def subscribe(
    peer: Peer, expression: str, version: int = 1, expression_type: str = "SQL92"
) -> RemotingCommand:
    """A heartbeat of a push consumer with one subscription."""
    data = ConsumerData(
        group_name="consumers",
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        subscription_data_set=[
            SubscriptionData("TopicTest", expression, sub_version=version, expression_type=expression_type)
        ],
    )
    body = encode_body(HeartbeatData(client_id=f"c{id(peer)}", consumer_data_set=[data]))
    return await peer.call(RequestCode.HEART_BEAT, body=body)


# -- finding -------------------------------------------------------------------------------------


async def test_messages_are_selected_by_property(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_numbers(peer, range(10))
        answer = await peer.pull(subscription="n BETWEEN 3 AND 5 OR n = 9", **SQL)
        assert sorted(bodies(answer)) == [b"3", b"4", b"5", b"9"]
        assert (answer.code, next_offset(answer)) == (0, 10)


async def test_when_nothing_matches_the_offset_moves_on(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_numbers(peer, range(10))
        answer = await peer.pull(subscription="n > 100", **SQL)
        assert (answer.code, answer.remark) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE")
        assert next_offset(answer) == 10


async def test_values_that_cannot_be_compared_do_not_match(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        for value in ("7", "7.5", "x", "3000000000"):
            await peer.send(body=value.encode(), properties=f"n\x01{value}\x02")
        await peer.send(body=b"none")
        assert bodies(await peer.pull(subscription="n > 5", **SQL)) == [b"7"]
        assert bodies(await peer.pull(subscription="n > 5.0", **SQL)) == [b"7", b"7.5", b"3000000000"]
        assert bodies(await peer.pull(subscription="n IS NULL", **SQL)) == [b"none"]


async def test_tags_and_system_properties_are_properties_too(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send(body=b"a", properties="TAGS\x01a\x02KEYS\x01k1 k2\x02")
        await peer.send(body=b"b", properties="TAGS\x01b\x02")
        assert bodies(await peer.pull(subscription="TAGS IN ('a', 'c')", **SQL)) == [b"a"]
        assert bodies(await peer.pull(subscription="KEYS CONTAINS 'k2'", **SQL)) == [b"a"]


async def test_numbers_and_bytes_that_the_client_wants_rule(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_numbers(peer, range(20))
        answer = await peer.pull(subscription="n >= 0", max_msg_nums=7, **SQL)
        assert (len(bodies(answer)), next_offset(answer)) == (7, 7)
        answer = await peer.pull(subscription="n >= 0", max_msg_bytes=1, **SQL)
        assert (len(bodies(answer)), next_offset(answer)) == (1, 1)
        size = messages(answer)[0].store_size
        answer = await peer.pull(subscription="n >= 0", max_msg_bytes=3 * size + 10, **SQL)
        assert (len(bodies(answer)), next_offset(answer)) == (3, 3)


async def test_a_long_topic_s_records_are_filtered_as_well(tmp_path: Path) -> None:
    topic = "T" * MAX_TOPIC_BYTES_V1
    async with running(tmp_path) as peer:
        await send_numbers(peer, range(3), topic)
        assert bodies(await peer.pull(topic, subscription="n = 1", **SQL)) == [b"1"]


# -- many messages -------------------------------------------------------------------------------


async def test_a_rare_message_is_found_in_steps_and_others_are_served_meanwhile(tmp_path: Path) -> None:
    async with running(tmp_path, max_filter_message_size=20 * 5_000) as peer:
        await send_numbers(peer, range(3_000))
        services = peer.controller.services
        steps = []
        get_message = services.store.reader.get_message

        def counted(*args: object, **rest: object) -> object:
            begin = time.process_time()
            result = get_message(*args, **rest)  # type: ignore[arg-type]
            steps.append(time.process_time() - begin)
            return result

        services.store.reader.get_message = counted  # type: ignore[method-assign, assignment]
        answer = await peer.pull(subscription="n = 2990", **SQL)
        assert bodies(answer) == [b"2990"] and next_offset(answer) == 3_000
        assert len(steps) > 8
        assert sorted(steps)[len(steps) // 2] < 0.02


async def test_a_pull_looks_at_no_more_messages_than_maxfiltermessagesize_says(tmp_path: Path) -> None:
    async with running(tmp_path, max_filter_message_size=20 * 400) as peer:
        await send_numbers(peer, range(1_000))
        answer = await peer.pull(subscription="n < 0", **SQL)
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert 400 <= next_offset(answer) < 800
        found = await peer.pull(queue_offset=next_offset(answer), subscription="n >= 990", **SQL)
        assert next_offset(found) <= 1_000


async def test_all_that_match_are_found_once_over_many_pulls(tmp_path: Path) -> None:
    async with running(tmp_path, max_filter_message_size=20 * 300) as peer:
        await send_numbers(peer, range(2_000))
        found: list[bytes] = []
        at = 0
        while at < 2_000:
            answer = await peer.pull(queue_offset=at, subscription="n CONTAINS '7'", max_msg_nums=10, **SQL)
            assert next_offset(answer) > at
            found += bodies(answer)
            at = next_offset(answer)
        assert sorted(map(int, found)) == [number for number in range(2_000) if "7" in str(number)]


async def test_a_client_that_goes_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    async with running(tmp_path, max_filter_message_size=20 * 5_000) as peer:
        await send_numbers(peer, range(2_000))
        other = Peer(peer.controller)
        pulling = asyncio.ensure_future(other.pull(subscription="n < 0", **SQL))
        await asyncio.sleep(0)
        await other.client.stop()
        await asyncio.gather(pulling, return_exceptions=True)
        assert bodies(await peer.pull(subscription="n = 1", **SQL)) == [b"1"]


# -- from disk -----------------------------------------------------------------------------------


async def test_records_that_are_not_in_memory_are_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FaultyFiles()
    async with running(tmp_path, files=files) as peer:
        await send_numbers(peer, range(500))
        store = peer.controller.services.store
        store.flush_derived(thorough=True)
        monkeypatch.setattr(store.log, "_window", 0)
        monkeypatch.setattr(store.log, "read", None)  # the loop would have to wait
        files.chill()
        answer = await peer.pull(subscription="n IN ('3', '499')", **SQL)
        assert sorted(bodies(answer)) == [b"3", b"499"] and next_offset(answer) == 500


async def test_a_disk_error_is_answered_and_the_file_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = FaultyFiles()
    async with running(tmp_path, files=files) as peer:
        await send_numbers(peer, range(5))
        store = peer.controller.services.store
        monkeypatch.setattr(store.log, "_window", 0)
        files.chill()
        files.fail("pread", part_of_path="commitlog", for_ever=True)
        answer = await peer.pull(subscription="n = 3", **SQL)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert store.log.log_files[0]._pins == 0
        files.heal()
        assert bodies(await peer.pull(subscription="n = 3", **SQL)) == [b"3"]


# -- long polling --------------------------------------------------------------------------------


async def test_only_a_message_that_matches_wakes_a_pull(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_numbers(peer, range(1))
        waiting = asyncio.ensure_future(peer.pull(queue_offset=1, subscription="n > 100", **WAITING))
        await peer.until_held(1)
        await send_numbers(peer, range(1, 5))
        assert len(peer.controller.services.holds) == 1 and not waiting.done()
        await peer.send(body=b"mine", properties="n\x01101\x02")
        answer = await waiting
        assert (bodies(answer), next_offset(answer)) == ([b"mine"], 6)


async def test_a_pull_waits_at_a_queue_without_messages(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await peer.send(queue_id=0)
        waiting = asyncio.ensure_future(peer.pull(queue_id=2, subscription="n = 1", **WAITING))
        await peer.until_held(1)
        await peer.send(body=b"first", queue_id=2, properties="n\x011\x02")
        assert bodies(await waiting) == [b"first"]


async def test_the_regular_look_moves_a_pull_on(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_numbers(peer, range(1))
        waiting = asyncio.ensure_future(peer.pull(queue_offset=1, subscription="n > 100", **WAITING))
        await peer.until_held(1)
        await send_numbers(peer, range(1, 5))
        peer.controller.services.holds.check()
        answer = await waiting
        assert (answer.code, next_offset(answer)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 5)


async def test_more_than_can_be_matched_at_once_is_matched_by_the_pull_itself(tmp_path: Path) -> None:
    terms = " OR ".join(f"n = {number}" for number in range(1_000, 3_500))
    async with running(tmp_path) as peer:
        await send_numbers(peer, range(1))
        waiting = asyncio.ensure_future(peer.pull(queue_offset=1, subscription=terms, **WAITING))
        await peer.until_held(1)
        await peer.send_batch("TopicTest", [b"1", b"2", b"3"])
        answer = await waiting
        assert (answer.code, next_offset(answer)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 4)


# -- subscriptions -------------------------------------------------------------------------------


async def test_the_heartbeat_s_expression_filters(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_numbers(peer, range(5))
        assert (await subscribe(peer, "n = 2")).code == 0
        assert bodies(await peer.pull(sys_flag=0, sub_version=1)) == [b"2"]
        answer = await peer.pull(sys_flag=0, sub_version=2)
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST


async def test_members_of_two_versions_each_get_what_they_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path) as old:
        new = Peer(old.controller)
        await send_numbers(old, range(5))
        await subscribe(old, "n < 2", version=1)
        await subscribe(new, "n >= 2", version=2)
        await subscribe(old, "n < 2", version=1)
        assert sorted(bodies(await old.pull(sys_flag=0, sub_version=1))) == [b"0", b"1"]
        assert sorted(bodies(await new.pull(sys_flag=0, sub_version=2))) == [b"2", b"3", b"4"]
        answer = await old.pull(sys_flag=0, sub_version=2)
        assert (answer.code, answer.remark) == (
            ResponseCode.FILTER_DATA_NOT_LATEST,
            "the consumer's consumer filter data not latest",
        )
        stranger = Peer(old.controller)
        assert sorted(bodies(await stranger.pull(sys_flag=0, sub_version=2))) == [b"2", b"3", b"4"]
        await new.client.stop()
        await stranger.client.stop()


async def test_a_member_that_wants_the_same_is_served_before_its_next_heartbeat(tmp_path: Path) -> None:
    """A client raises its version when queues move, and pulls before its heartbeat says so."""
    async with running(tmp_path) as one:
        other = Peer(one.controller)
        await send_numbers(one, range(5))
        await subscribe(one, "n = 2", version=1)
        await subscribe(other, "n = 2", version=5)
        assert bodies(await one.pull(sys_flag=0, sub_version=5)) == [b"2"]
        await other.client.stop()


async def test_members_with_other_tags_each_get_theirs(tmp_path: Path) -> None:
    async with running(tmp_path) as old:
        new = Peer(old.controller)
        for tag in "ab":
            await old.send(body=tag.encode(), properties=f"TAGS\x01{tag}\x02")
        await subscribe(old, "a", version=1, expression_type="TAG")
        await subscribe(new, "b", version=2, expression_type="TAG")
        assert bodies(await old.pull(sys_flag=0, sub_version=1)) == [b"a"]
        assert bodies(await new.pull(sys_flag=0, sub_version=2)) == [b"b"]
        assert bodies(await old.pull(sys_flag=0, sub_version=2)) == [b"b"], "as Apache: the group's newest"
        await new.client.stop()


async def test_a_new_version_with_a_mistake_is_reported_and_the_old_one_stays(tmp_path: Path) -> None:
    async with running(tmp_path) as old:
        new = Peer(old.controller)
        await send_numbers(old, range(5))
        await subscribe(old, "n < 2", version=2)
        answer = await subscribe(new, "n >=", version=1)
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert "unexpected end at position 5" in (answer.remark or "")
        answer = await new.pull(sys_flag=0, sub_version=1)
        assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
        assert (answer.remark or "").startswith(
            "The broker's consumer filter data is not exist!Your expression may be wrong! "
        )
        assert "at position 5" in (answer.remark or "")
        assert sorted(bodies(await old.pull(sys_flag=0, sub_version=2))) == [b"0", b"1"]
        await new.client.stop()


@pytest.mark.parametrize(
    ("fields", "code", "says"),
    [
        ({"subscription": "n >"}, 23, "unexpected end at position 4"),
        ({"subscription": "n ~ 1"}, 23, "unexpected character '~' at position 3, near '~ 1'"),
        ({"subscription": ""}, 23, "unexpected end at position 1"),
        ({"subscription": "n = 1 OR " * 10_000 + "n = 1"}, 23, "characters at position"),
        ({"subscription": "(" * 5_000}, 23, "nested deeper than"),
        ({"subscription": "n", "expression_type": "SQL99"}, 23, "no filter of type 'SQL99'"),
        ({"sys_flag": SUBSCRIPTION | PullSysFlag.CLASS_FILTER.value}, 23, "class filters are gone"),
    ],
)
async def test_what_is_no_filter_is_refused_with_words(
    tmp_path: Path, fields: dict[str, object], code: int, says: str
) -> None:
    async with running(tmp_path) as peer:
        await send_numbers(peer, range(1))
        answer = await peer.pull(**{**SQL, **fields})
        assert answer.code == code and says in (answer.remark or "")
        assert len(answer.remark or "") < 300


async def test_filters_by_property_that_are_switched_off_while_running_are_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_numbers(peer, range(2))
        assert bodies(await peer.pull(subscription="n = 1", **SQL)) == [b"1"]
        peer.controller.services.update_config({"enablePropertyFilter": "false"})
        answer = await peer.pull(subscription="n = 1", **SQL)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "The broker does not support consumer to filter message by SQL92",
        )


# -- messages that are consumed again ------------------------------------------------------------


@pytest.mark.parametrize(("supports", "expected"), [(True, [b"2"]), (False, [b"1", b"2"])])
async def test_retries_are_filtered_where_that_is_switched_on(
    tmp_path: Path, supports: bool, expected: list[bytes]
) -> None:
    async with running(tmp_path, filter_support_retry=supports) as peer:
        await send_numbers(peer, range(1))
        await subscribe(peer, "n = 2")
        retry = "%RETRY%consumers"
        for number in (1, 2):
            await peer.send(
                retry, body=b"%d" % number, properties=f"n\x01{number}\x02RETRY_TOPIC\x01TopicTest\x02"
            )
        assert bodies(await peer.pull(retry, subscription="*")) == expected
