"""Input of delays, timers, transactions, retries and filters that makes no sense: the right code, words that
say what to do, and a broker that goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.pop.retry_topics import revive_topic
from kourou.testing.clock import FakeClock
from tests.e2e.broker.broker_kit import Peer, messages, running, send_header
from tests.e2e.broker.delay_kit import clocked, count_in, pulled
from tests.e2e.broker.test_sql_pull import SQL, bodies, send_numbers, subscribe
from tests.e2e.broker.transaction_kit import COMMIT, ROLLBACK, Half, producing

pytestmark = pytest.mark.e2e

NEVER = {"transaction_check_interval": 3_600_000}
DAY_S = 86_400
SCHEDULE, RETRY = "SCHEDULE_TOPIC_XXXX", "%RETRY%consumers"


# -- delay levels --------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["soon", "1.5", "0x3", "9" * 30, " 3"])
async def test_a_malformed_level_is_refused_and_nothing_is_stored(tmp_path: Path, level: str) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        answer = await peer.send(properties=f"UNIQ_KEY\x01ID1\x02DELAY\x01{level}\x02")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        shown = level if len(level) < 20 else level[:8]
        assert f"property DELAY={shown}" in (answer.remark or "")
        assert "is not a number" in (answer.remark or "")
        assert count_in(peer) == 0
        assert all(count_in(peer, SCHEDULE, queue_id) == 0 for queue_id in range(18))


async def test_a_malformed_level_of_the_clients_own_way_back_is_refused(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        properties = "UNIQ_KEY\x01ID1\x02RETRY_TOPIC\x01TopicTest\x02DELAY\x01later\x02"
        answer = await peer.send(RETRY, b"again", properties, reconsume_times=1)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "property DELAY=later" in (answer.remark or "")
        assert count_in(peer, RETRY) == 0


@pytest.mark.parametrize("level", ["later", "", "99999999999"])
async def test_a_malformed_level_of_a_send_back_names_its_field(tmp_path: Path, level: str) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        await peer.send(properties="UNIQ_KEY\x01ID1\x02")
        (message,) = await pulled(peer, 1)
        fields = {"offset": str(message.phy_offset), "group": "consumers", "delayLevel": level}
        command = RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=fields)
        answer = await peer.client.call(peer.controller.address, command, 5_000)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "delayLevel" in (answer.remark or "")
        assert count_in(peer, RETRY) == 0


# -- timers --------------------------------------------------------------------------------------


async def test_timers_up_to_the_limit_are_taken_and_none_beyond_it(tmp_path: Path) -> None:
    clock = FakeClock()
    async with clocked(tmp_path, clock) as peer:
        beyond_ms = 3 * DAY_S * 1000 + 60_000
        for timer in (
            f"TIMER_DELAY_SEC\x01{3 * DAY_S + 1}",
            f"TIMER_DELAY_MS\x01{beyond_ms}",
            f"TIMER_DELIVER_MS\x01{clock() + beyond_ms}",
            f"TIMER_DELIVER_MS\x01{10**17}",
        ):
            answer = await peer.send(properties=f"UNIQ_KEY\x01ID1\x02{timer}\x02")
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL, timer
            assert "max delay 259200000ms" in (answer.remark or "")
            assert "timerMaxDelaySec" in (answer.remark or ""), "how to have it"
        answer = await peer.send(properties=f"UNIQ_KEY\x01ID1\x02TIMER_DELAY_SEC\x01{3 * DAY_S}\x02")
        assert answer.code == 0


async def test_the_limit_can_be_years(tmp_path: Path) -> None:
    async with clocked(tmp_path, FakeClock(), timer_max_delay_sec=3 * 365 * DAY_S) as peer:
        for days, code in ((1_000, 0), (1_100, ResponseCode.MESSAGE_ILLEGAL)):
            properties = f"UNIQ_KEY\x01ID1\x02TIMER_DELAY_SEC\x01{days * DAY_S}\x02"
            assert (await peer.send(properties=properties)).code == code


@pytest.mark.parametrize("name", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
@pytest.mark.parametrize("value", ["tomorrow", "1e3", "9" * 40])
async def test_a_malformed_time_is_refused_by_its_name(tmp_path: Path, name: str, value: str) -> None:
    async with clocked(tmp_path, FakeClock()) as peer:
        answer = await peer.send(properties=f"UNIQ_KEY\x01ID1\x02{name}\x01{value}\x02")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert f"{name}=" in (answer.remark or "")
        assert len(answer.remark or "") < 300
        assert count_in(peer) == count_in(peer, "rmq_sys_wheel_timer") == 0


# -- transactions --------------------------------------------------------------------------------


async def test_another_group_cannot_end_a_transaction_and_its_own_still_can(tmp_path: Path) -> None:
    async with running(tmp_path, **NEVER) as peer, producing(peer.controller.address) as owner:
        half = await owner.half(b"mine")
        async with producing(peer.controller.address, "c2", group="Other") as other:
            for end in (COMMIT, ROLLBACK):
                answer = await other.end(half, end)
                assert (answer.code, answer.remark) == (1, "The producer group wrong")
                await other.end_oneway(half, end)
            await other.heartbeat()  # what was sent one-way before is done
        assert (await peer.pull()).code != 0
        assert (await owner.end(half, COMMIT)).code == 0
        assert [message.body for message in messages(await peer.pull())] == [b"mine"]


async def test_an_unknown_transaction_is_not_found_whatever_it_points_at(tmp_path: Path) -> None:
    async with running(tmp_path, **NEVER) as peer, producing(peer.controller.address) as producer:
        half = await producer.half(b"known")
        for unknown in (
            Half("UNKNOWN", 0, half.phy_offset + 1_000_000),
            Half("UNKNOWN", 99, half.phy_offset + 4),
            Half("UNKNOWN", -1, -1),
            Half("UNKNOWN", (1 << 63) - 1, (1 << 63) - 1),
        ):
            for end in (COMMIT, ROLLBACK):
                answer = await producer.end(unknown, end)
                assert (answer.code, answer.remark) == (1, "Find prepared transaction message failed")
        assert (await producer.end(half, COMMIT)).code == 0, "a half is found by its place, not by its id"


async def test_an_end_that_is_none_is_not_answered_and_ends_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, **NEVER) as peer, producing(peer.controller.address) as producer:
        half = await producer.half()
        for end in (1, 4, 16, -1):
            await producer.end_oneway(half, end)
        assert (await producer.end(half, ROLLBACK)).code == 0
        assert (await peer.pull()).code != 0


# -- filters -------------------------------------------------------------------------------------


TERMS = 10_000


def _terms(kind: str) -> str:
    """An expression with many terms that only n = 1 matches."""
    if kind == "OR":
        return "a OR " * TERMS + "n=1"
    if kind == "AND":
        return "n=1 AND " + " AND ".join(["n>0"] * (TERMS // 2))
    return "n IN (" + ",".join(["'x'"] * TERMS) + ",'1')"


@pytest.mark.parametrize("kind", ["OR", "AND", "IN"])
async def test_ten_thousand_terms_are_accepted_where_they_fit_and_no_request_waits_long(
    tmp_path: Path, kind: str
) -> None:
    async with running(tmp_path) as peer:
        await send_numbers(peer, range(3))
        other = Peer(peer.controller)
        assert (await other.send()).code == 0  # connected
        pulled_all = asyncio.ensure_future(peer.pull(subscription=_terms(kind), **SQL))
        assert (await other.send()).code == 0  # within the time of a call
        assert bodies(await pulled_all) == [b"1"]
        await other.client.stop()


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("n = 1 OR " * TERMS + "n = 1", "characters at position"),
        ("(" * 5_000 + "n = 1" + ")" * 5_000, "nested deeper than"),
        ("NOT " * 5_000 + "n = 1", "nested deeper than"),
        ("n = " + "-" * 5_000 + "1", "nested deeper than"),
        ("n = 1 OR (" * 3_000, "nested deeper than"),
    ],
)
async def test_what_is_too_much_is_refused_in_pulls_and_heartbeats(
    tmp_path: Path, expression: str, says: str
) -> None:
    async with running(tmp_path) as peer:
        await send_numbers(peer, range(2))
        for answer in (
            await peer.pull(subscription=expression, **SQL),
            await subscribe(peer, expression),
        ):
            assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
            assert says in (answer.remark or "")
            assert len(answer.remark or "") < 400
        assert bodies(await peer.pull(subscription="n = 1", **SQL)) == [b"1"]


async def test_a_send_that_is_malformed_in_several_ways_is_refused_for_one(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        properties = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02DELAY\x01x\x02TIMER_DELAY_MS\x01y\x02"
        command = RemotingCommand.request(
            RequestCode.SEND_MESSAGE_V2, send_header("TopicTest", properties, sys_flag=4), b"x"
        )
        answer = await peer.client.call(peer.controller.address, command, 5_000)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "a transactional message cannot be delayed" in (answer.remark or "")


# -- messages in flight --------------------------------------------------------------------------


async def test_clients_cannot_write_check_points(tmp_path: Path) -> None:
    """With one of another group's, its messages would be copied."""
    topic = revive_topic("DefaultCluster")
    async with running(tmp_path) as peer:
        for answer in (
            await peer.send(topic, properties="TAGS\x01ck\x02"),
            await peer.send(topic, properties="TAGS\x01ck\x02TIMER_DELAY_MS\x011000\x02"),
            await peer.send_batch(topic, [b"{}"]),
        ):
            assert answer.code == ResponseCode.NO_PERMISSION
            assert answer.remark == f"Sending message to topic[{topic}] is forbidden."
