"""Atomic publishes with two brokers: all or none, each request repeated, late and lost ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.protocol.codes import ResponseCode
from kourou.protocol.producer_sequence import MAX_EPOCH
from kourou.protocol.signature import SigningKeys
from kourou.transport.client import RemotingClient
from tests.e2e.broker.broker_kit import running
from tests.e2e.broker.replication_kit import until
from tests.integration.broker.atomic.atomic_kit import (
    COMMITTED,
    ROLLED_BACK,
    Publish,
    bodies,
    group,
    listed,
    mark,
    opened,
    outcome,
    part_of,
    stored,
    two_brokers,
    until_over,
    until_stored,
)


async def test_all_parts_become_visible_after_the_commit_and_none_before(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (a, b):
        publish = Publish(a, await opened(a), 0)
        assert (await publish.stage(a, 0, group("T", [b"1", b"2"]), group("U", [b"3"], 1))).code == 0
        assert (await publish.stage(b, 0, group("T", [b"4"]))).code == 0
        assert (await publish.stage(b, 1, group("T", [b"5"]))).code == 0
        assert await bodies(a, "T") == await bodies(b, "T") == []
        assert outcome(await publish.decide(commit=True)) == "committed"
        await until_stored(a, "T", [b"1", b"2"])
        await until_stored(a, "U", [b"3"], 1)
        await until_stored(b, "T", [b"4", b"5"])
        await until_over(a, b)
        found = await stored(a, "T")
        assert [mark(message) for message in found] == [f"{publish.id}:0", f"{publish.id}:1"]
        assert found[0].get_property("UNIQ_KEY") == "ID1"
        assert found[0].born_timestamp == 1_700_000_000_000
        assert await listed(a) == []


async def test_nothing_of_a_rollback_is_visible(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (a, b):
        publish = Publish(a, await opened(a), 0)
        await publish.stage(a, 0, group("T", [b"1"]))
        await publish.stage(b, 0, group("T", [b"2"]))
        assert outcome(await publish.decide(commit=False)) == "rolledBack"
        await until_over(a, b)
        assert await bodies(a, "T") == await bodies(b, "T") == []


async def test_with_access_control_a_broker_ends_its_own_parts(
    tmp_path: Path,
) -> None:
    settings = {
        "authentication_enabled": True,
        "authorization_enabled": True,
        "init_authentication_user": '{"username":"root","password":"root-secret"}',
    }
    async with running(tmp_path, **settings) as peer:
        await peer.client.stop()
        peer.client = RemotingClient(keys=SigningKeys("root", "root-secret"))
        publish = Publish(peer, await opened(peer), 0)
        assert (await publish.stage(peer, 0, group("T", [b"1"]))).code == 0
        assert outcome(await publish.decide(commit=True)) == "committed"
        await until_over(peer)
        assert await bodies(peer, "T") == [b"1"]


async def test_every_request_may_be_repeated(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (a, b):
        publish = Publish(a, await opened(a), 0)
        for _ in range(2):
            assert (await publish.stage(b, 0, group("T", [b"1"]))).code == 0
        for _ in range(2):
            assert outcome(await publish.decide(commit=True)) == "committed"
        await until_stored(b, "T", [b"1"])
        await until_over(a, b)
        assert outcome(await publish.decide(commit=True)) == "committed"
        late = await publish.stage(b, 0, group("T", [b"1"]))
        assert late.code == COMMITTED
        assert (await publish.decide(commit=False)).code == COMMITTED
        assert await bodies(b, "T") == [b"1"]


async def test_parts_that_the_decision_does_not_name_are_dropped(tmp_path: Path) -> None:
    """Attempts of a task that was run twice."""
    async with two_brokers(tmp_path) as (a, b):
        publish = Publish(a, await opened(a), 0)
        await publish.stage(b, 70, group("T", [b"first attempt"]))
        await publish.stage(b, 71, group("T", [b"second attempt"]))
        await publish.decide(commit=True, participants={"broker-b": [71]})
        await until_over(a, b)
        assert await bodies(b, "T") == [b"second attempt"]


async def test_a_large_publish_is_put_in_order(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (a, _):
        publish = Publish(a, await opened(a), 0)
        expected = [b"%04d" % number + b"x" * 500 for number in range(2_400)]
        for part in range(24):
            answer = await publish.stage(a, part, group("T", expected[part * 100 : part * 100 + 100]))
            assert answer.code == 0, answer.remark
        await publish.decide(commit=True)
        await until_stored(a, "T", expected)


async def test_late_end_of_one_transaction_does_not_hit_the_next(tmp_path: Path) -> None:
    """Kafka before KIP-890: an EndTxn that is delayed ends the transaction behind its own."""
    async with two_brokers(tmp_path) as (a, b):
        identity = await opened(a)
        first, second = Publish(a, identity, 0), Publish(a, identity, 1)
        await first.stage(b, 0, group("T", [b"1"]))
        await first.decide(commit=False)
        await until_over(a, b)
        await second.stage(b, 0, group("T", [b"2"]))
        assert (await first.decide(commit=True)).code == ROLLED_BACK
        assert [entry.atomic_id for entry in await listed(b)] == [second.id]
        await second.decide(commit=True)
        await until_stored(b, "T", [b"2"])


async def test_a_hanging_transaction_does_not_block_readers(tmp_path: Path) -> None:
    """Kafka: messages behind an open transaction are not delivered."""
    async with two_brokers(tmp_path) as (a, b):
        hanging = Publish(a, await opened(a), 0)
        await hanging.stage(b, 0, group("T", [b"hangs"]))
        assert (await b.send("T", b"goes on")).code == 0
        assert await bodies(b, "T") == [b"goes on"]


async def test_a_fenced_program_cannot_commit(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (a, b):
        zombie = Publish(a, await opened(a, "loader"), 0)
        await zombie.stage(b, 0, group("T", [b"old"], properties=""), timeout_ms=500)
        newer = Publish(a, await opened(a, "loader"), 0)
        await newer.stage(b, 0, group("T", [b"new"]))
        assert (await zombie.decide(commit=True)).code == ResponseCode.KOUROU_PRODUCER_FENCED
        await newer.decide(commit=True)
        await until_over(a, b)
        assert await bodies(b, "T") == [b"new"]
        assert (await zombie.stage(b, 1, group("T", [b"old"]))).code == ResponseCode.KOUROU_PRODUCER_FENCED


@pytest.mark.parametrize(
    ("identity", "code"),
    [
        (("@other", 0), ResponseCode.KOUROU_UNKNOWN_PRODUCER),
        (("@loader", MAX_EPOCH), ResponseCode.KOUROU_UNKNOWN_EPOCH),
    ],
)
async def test_forged_ids_cannot_decide(tmp_path: Path, identity: tuple[str, int], code: int) -> None:
    async with two_brokers(tmp_path) as (a, _):
        await opened(a, "loader")
        assert (await Publish(a, identity, 0).decide(commit=True)).code == code


async def test_an_abandoned_publish_is_rolled_back_and_listed(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (a, b):
        publish = Publish(a, await opened(a), 0)
        await publish.stage(b, 0, group("T", [b"1"]), timeout_ms=1)
        await until_over(a, b)
        (entry,) = await listed(b)
        assert (entry.state, entry.atomic_id, entry.topics) == ("abandoned", publish.id, ["T"])
        assert (await publish.decide(commit=True)).code == ROLLED_BACK
        assert await bodies(b, "T") == []


async def test_parts_at_a_broker_that_a_commit_does_not_name_are_dropped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_brokers(tmp_path) as (a, b):
        publish = Publish(a, await opened(a), 0)
        await publish.stage(b, 0, group("T", [b"1", b"2"]), timeout_ms=60_000)
        await publish.decide(commit=True, participants={})
        participant = part_of(b)._participant
        now_ms = participant._now_ms()
        participant._now_ms = lambda: now_ms + 60_001
        await until_over(a, b)
        assert await bodies(b, "T") == []
    assert f"atomic publish {publish.id} is over" in caplog.text and "2 messages dropped" in caplog.text


async def test_what_a_program_left_is_dropped_when_its_name_is_opened_again(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (a, b):
        identity = await opened(a, "sink")
        for peer in (a, b):
            part_of(peer)._participant.look_s = 0.0
        left, committed = Publish(a, identity, 0), Publish(a, identity, 1)
        for peer in (a, b):
            await left.stage(peer, 0, group("T", [b"left"]))
        await committed.stage(b, 0, group("U", [b"committed"]))
        other = Publish(a, await opened(a), 0)
        await other.stage(b, 0, group("T", [b"of another program"]))
        for peer in (a, b):
            await part_of(peer)._participant.query_overdue()
        assert [entry.state for entry in await listed(b)] == ["undecided"] * 3
        await committed.decide(commit=True)
        newer = Publish(a, await opened(a, "sink"), 0)
        await newer.stage(b, 0, group("T", [b"new"]))
        await until(lambda: left.id not in part_of(b)._journal.table.participations, "its part is dropped")
        await newer.decide(commit=True)
        await other.decide(commit=True)
        await until_over(a, b)
        for peer in (a, b):
            (entry,) = await listed(peer)
            assert (entry.state, entry.atomic_id) == ("abandoned", left.id)
        assert await bodies(b, "T") == [b"new", b"of another program"]
        assert await bodies(b, "U") == [b"committed"] and await bodies(a, "T") == []


async def test_a_publish_stays_while_its_coordinator_is_away(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (a, b):
        publish = Publish(a, await opened(a), 0)
        publish.coordinator_name = "broker-z"
        await publish.stage(b, 0, group("T", [b"1"]), timeout_ms=1)
        for _ in range(3):
            await part_of(b)._participant.query_overdue()
        (entry,) = await listed(b)
        assert (entry.state, entry.coordinator) == ("undecided", "broker-z")


async def test_a_sink_takes_each_batch_once(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (a, b):
        sink = {"kourou_sink_id": "orders", "kourou_query_id": "q1"}
        first = Publish(a, await opened(a, "sink"), 0)
        await first.stage(b, 0, group("T", [b"batch 7"]))
        assert outcome(await first.decide(commit=True, kourou_batch_id=7, **sink)) == "committed"
        again = Publish(a, await opened(a, "sink"), 0)
        await again.stage(b, 0, group("T", [b"batch 7"]))
        assert outcome(await again.decide(commit=True, kourou_batch_id=7, **sink)) == "alreadyCommitted"
        assert outcome(await again.decide(commit=False)) == "rolledBack"
        other = await again.decide(
            commit=True, kourou_sink_id="orders", kourou_query_id="q2", kourou_batch_id=8
        )
        assert other.code == ROLLED_BACK
        third = Publish(a, await opened(a, "sink"), 0)
        sink["kourou_query_id"] = "q2"
        refused = await third.decide(commit=True, kourou_batch_id=0, **sink)
        assert refused.code == ResponseCode.KOUROU_SINK_OTHER_QUERY
        replaced = await third.decide(commit=True, kourou_batch_id=0, kourou_replace_query=True, **sink)
        assert outcome(replaced) == "committed"
        await until_over(a, b)
        assert await bodies(b, "T") == [b"batch 7"]
