"""Messages in flight: acks, changes of the invisible time, and being delivered again."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.protocol.bodies.subscription import SubscriptionGroupConfig
from kourou.testing.clock import FakeClock
from tests.e2e.broker.delay_kit import clocked, settle
from tests.e2e.broker.pop_kit import (
    GROUP,
    INVISIBLE_MS,
    RETRY,
    REVIVE,
    TOPIC,
    ack,
    batch_ack,
    batch_of,
    bodies,
    change,
    in_flight,
    prepare,
    stored,
    take,
    until,
)
from tests.e2e.broker.test_metrics import scrape

pytestmark = pytest.mark.e2e


async def test_what_is_not_acked_is_delivered_again_when_its_time_is_over_and_not_before(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 4)
        handles = await take(peer, [0, 1, 3])
        pop_time = handles[0].pop_time
        assert (await ack(peer, handles[1])).code == 0
        assert in_flight(peer).count(TOPIC, GROUP) == 2
        clock.advance(INVISIBLE_MS - 2_000)
        await settle()
        assert bodies(peer) == []
        clock.advance(2_000)
        await until(lambda: len(bodies(peer)) == 2)
        first, second = stored(peer, RETRY)
        assert (first.body, second.body) == (b"0", b"3")
        assert (first.reconsume_times, first.queue_id, first.born_timestamp) == (1, 0, 1_700_000_000_000)
        ours = {"1ST_POP_TIME": str(pop_time), "ORIGIN_GROUP": GROUP}
        assert first.properties == {"UNIQ_KEY": "ID0", "TAGS": "TagA", "CLUSTER": "DefaultCluster"} | ours | {
            name: value
            for name, value in first.properties.items()
            if name == "MSG_REGION" or name == "TRACE_ON"
        }
        await settle()
        assert len(bodies(peer)) == 2
        assert in_flight(peer).count(TOPIC, GROUP) == 0
        assert peer.controller.services.offsets.query(GROUP, RETRY, 0) == 0


async def test_an_acked_check_point_leaves_nothing_in_the_revive_topic(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 3)
        handles = await take(peer, [0, 1, 2])
        for handle in handles:
            assert (await ack(peer, handle)).code == 0
        clock.advance(INVISIBLE_MS + 5_000)
        await settle()
        assert bodies(peer) == []
        assert stored(peer, REVIVE, 3) == []


async def test_acks_of_one_batch_are_one_record(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        await prepare(peer, 4)
        first, second = await take(peer, [0, 1]), await take(peer, [2, 3])
        assert (await batch_ack(peer, batch_of(first), batch_of(second[1:]))).code == 0
        records = [message.properties["TAGS"] for message in stored(peer, "rmq_sys_wheel_timer")]
        assert sorted(records) == ["ack", "bAck", "ck", "ck"]
        assert in_flight(peer).count(TOPIC, GROUP) == 1


async def test_a_longer_time_keeps_a_message_invisible_and_its_new_handle_acks_it(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 2)
        old, other = await take(peer, [0, 1])
        answer, new = await change(peer, old, 100_000)
        assert answer.code == 0
        assert (new.invisible_time, new.revive_queue_id, new.start_offset) == (100_000, 3, 0)
        assert new.pop_time > old.pop_time
        assert (await ack(peer, old)).code == 0, "the old handle is of the past"
        clock.advance(INVISIBLE_MS + 1_000)
        await until(lambda: bodies(peer) == ["1"])
        await settle()
        assert in_flight(peer).count(TOPIC, GROUP) == 1
        assert (await ack(peer, new)).code == 0
        clock.advance(100_000)
        await settle()
        assert bodies(peer) == ["1"]
        assert (await ack(peer, other)).code == 0


async def test_a_message_with_no_time_left_comes_at_once(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 1)
        (handle,) = await take(peer, [0])
        answer, _ = await change(peer, handle, 0)
        assert answer.code == 0
        clock.advance(200)
        await until(lambda: bodies(peer) == ["0"])
        clock.advance(INVISIBLE_MS + 5_000)
        await settle()
        assert bodies(peer) == ["0"]


async def test_a_message_of_a_retry_topic_goes_to_the_same_one_until_it_is_a_dead_letter(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        await prepare(peer, 1)
        peer.controller.services.groups.find(GROUP)
        peer.controller.services.groups.table[GROUP].retry_max_times = 2
        (handle,) = await take(peer, [0])
        first_pop = handle.pop_time
        for number in range(2):
            clock.advance(INVISIBLE_MS + 200)
            await until(lambda count=number + 1: len(bodies(peer)) == count)  # type: ignore[misc]
            await take(peer, [number], topic=RETRY)
        clock.advance(INVISIBLE_MS + 200)
        dlq = f"%DLQ%{GROUP}"
        await until(lambda: len(bodies(peer, dlq)) == 1)
        assert [message.reconsume_times for message in stored(peer, RETRY)] == [1, 2]
        assert {message.properties["1ST_POP_TIME"] for message in stored(peer, RETRY)} == {str(first_pop)}
        (dead,) = stored(peer, dlq)
        assert (dead.reconsume_times, dead.properties["RETRY_TOPIC"]) == (3, TOPIC)
        assert peer.controller.services.stats.events.dead_letters == {(TOPIC, GROUP): 1}
        await settle()
        assert len(bodies(peer)) == 2


async def test_the_other_names_of_retry_topics(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock, enable_retry_topic_v2=True) as peer:
        await prepare(peer, 1)
        await take(peer, [0])
        clock.advance(INVISIBLE_MS + 200)
        await until(lambda: bodies(peer, f"%RETRY%{GROUP}+{TOPIC}") == ["0"])


@pytest.mark.parametrize("gone", ["topic", "group"])
async def test_messages_of_a_topic_or_group_that_is_gone_are_dropped(tmp_path: Path, gone: str) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock, auto_create_subscription_group=False) as peer:
        await prepare(peer, 2)
        services = peer.controller.services
        services.groups.update(SubscriptionGroupConfig(group_name=GROUP))
        await take(peer, [0, 1])
        if gone == "topic":
            services.topics.delete(TOPIC)
        else:
            services.groups.delete(GROUP)
        clock.advance(INVISIBLE_MS + 200)
        await until(lambda: in_flight(peer).counts.dropped == 2)
        assert in_flight(peer).counts.acked == 0
        assert RETRY not in services.topics.table
        assert in_flight(peer).count(TOPIC, GROUP) == 0


async def test_messages_in_flight_are_counted(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock, http_port=0) as peer:
        await prepare(peer, 4)
        handles = await take(peer, [0, 1, 2])
        await take(peer, [3], group="others", invisible_time_ms=10 * INVISIBLE_MS)
        for _ in range(2):
            await ack(peer, handles[0])
        clock.advance(INVISIBLE_MS + 200)
        await until(lambda: len(bodies(peer)) == 2 and in_flight(peer).counts.revived == 2)
        found = await scrape(peer.controller)
        labels = {"topic": TOPIC, "consumer_group": "others"}
        assert found.value("kourou_pop_in_flight_messages", **labels) == 1
        assert found.value("kourou_pop_check_points") == 1
        assert found.value("kourou_pop_acked_total") == 1
        assert found.value("kourou_pop_late_acks_total") == 1
        assert found.value("kourou_pop_overdue_total", outcome="revived") == 2
