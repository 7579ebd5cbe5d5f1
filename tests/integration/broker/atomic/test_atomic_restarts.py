"""Atomic publishes over restarts, a slave made master, a long journal, and deleted topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.broker.atomic import journal
from kourou.broker.hooks import BrokerHooks
from kourou.errors import StorageError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.atomic import GetSinkRequestHeader, GetSinkResponseHeader
from kourou.protocol.names import ATOMIC_TOPIC
from tests.e2e.broker.broker_kit import Peer, running
from tests.e2e.broker.replication_kit import equal, following, master, namesrv, slave, until
from tests.integration.broker.atomic.atomic_kit import (
    Publish,
    bodies,
    create_topics,
    group,
    listed,
    opened,
    outcome,
    part_of,
    two_brokers,
    until_over,
    until_stored,
)


async def test_an_undecided_publish_is_committed_after_a_restart_of_all(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (a, b):
        publish = Publish(a, await opened(a, "loader"), 0)
        await publish.stage(a, 0, group("T", [b"1"]))
        await publish.stage(b, 0, group("T", [b"2"]))
    async with two_brokers(tmp_path) as (a, b):
        publish.coordinator = a
        assert outcome(await publish.decide(commit=True)) == "committed"
        await until_stored(a, "T", [b"1"])
        await until_stored(b, "T", [b"2"])


async def test_a_decision_reaches_a_participant_that_was_away(tmp_path: Path) -> None:
    async with namesrv() as address:
        keys = {"namesrv_addr": address}
        async with running(tmp_path / "a", broker_name="broker-a", **keys) as a:
            publish = Publish(a, await opened(a), 0)
            async with running(tmp_path / "b", broker_name="broker-b", **keys) as b:
                create_topics(b)
                await publish.stage(b, 0, group("T", [b"1"]))
            assert outcome(await publish.decide(commit=True)) == "committed"
            (entry,) = await listed(a)
            assert (entry.state, entry.waits_for) == ("decided", ["broker-b"])
        async with (
            running(tmp_path / "a", broker_name="broker-a", **keys) as a,
            running(tmp_path / "b", broker_name="broker-b", **keys) as b,
        ):
            await until_stored(b, "T", [b"1"])
            await until_over(a, b)
            publish.coordinator = a
            assert outcome(await publish.decide(commit=True)) == "committed"
            assert await bodies(b, "T") == [b"1"]


async def test_a_slave_made_master_in_the_middle_of_a_publish_continues_it(tmp_path: Path) -> None:
    expected = [b"%04d" % number + b"x" * 900 for number in range(2_000)]
    steps = []

    def hold(step: str) -> None:
        if step == "publishing":  # it is tried again after a second, from there on
            steps.append(step)
            raise StorageError("held by the test")

    async with namesrv() as address:
        hooks = BrokerHooks(atomic_step=[hold])
        async with master(tmp_path, address, hooks=hooks) as of_master:
            create_topics(of_master)
            async with slave(tmp_path, address) as of_slave:
                await following(of_master, 1)
                undecided = Publish(of_master, await opened(of_master, "other"), 0)
                await undecided.stage(of_master, 0, group("U", [b"undecided"]))
                publish = Publish(of_master, await opened(of_master), 0)
                for part in range(40):
                    answer = await publish.stage(
                        of_master, part, group("T", expected[part * 50 : part * 50 + 50])
                    )
                    assert answer.code == 0, answer.remark
                refused = await Publish(of_slave, ("@x", 0), 0).stage(of_slave, 0, group("T", [b"1"]))
                assert refused.code == ResponseCode.SLAVE_NOT_AVAILABLE
                await publish.decide(commit=True)
                await until(lambda: len(steps) == 1, "some messages are published")
                await equal(of_master, of_slave)
                assert 0 < len(await bodies(of_slave, "T")) < len(expected)
    async with running(tmp_path / "slave-1") as promoted:
        await until_stored(promoted, "T", expected)
        undecided.coordinator = promoted
        assert outcome(await undecided.decide(commit=True)) == "committed"
        await until_stored(promoted, "U", [b"undecided"])


async def test_live_records_are_put_again_and_the_journal_stays_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_SHORT", 8)
    sink = {"kourou_sink_id": "s", "kourou_query_id": "q", "kourou_batch_id": 3}
    async with two_brokers(tmp_path) as (a, b):
        kept = Publish(a, await opened(a, "loader"), 0)
        await kept.stage(a, 0, group("T", [b"kept"]))
        assert outcome(await kept.__class__(a, await opened(a), 0).decide(commit=True, **sink)) == "committed"
        await _publish_many(a, 20)
        log = part_of(a)._journal
        before = log.table.begin
        assert before is not None
        await log.put_again(max_age_ms=1_000_000)
        await until(lambda: (log.table.begin or 0) > before, "the journal begins later")
        begin = log.table.begin
        await log.put_again(max_age_ms=-1_000_000)
        await until(lambda: (log.table.begin or 0) > (begin or 0), "old records are put again")
    async with two_brokers(tmp_path) as (a, b):
        assert part_of(a)._journal.table.begin is not None
        answer = await a.call(RequestCode.GET_KOUROU_SINK, GetSinkRequestHeader(kourou_sink_id="s"))
        assert answer.header(GetSinkResponseHeader) == GetSinkResponseHeader(
            kourou_query_id="q", kourou_batch_id=3
        )
        kept.coordinator = a
        assert outcome(await kept.decide(commit=True)) == "committed"
        await until_stored(a, "T", [b"kept"])
        await until_over(a, b)


async def _publish_many(a: Peer, count: int) -> None:
    identity = await opened(a)
    for number in range(count):
        publish = Publish(a, identity, number)
        await publish.stage(a, 0, group("U", [b"%d" % number]))
        await publish.decide(commit=True)
        await until(
            lambda publish=publish: publish.id not in part_of(a)._journal.table.decisions,  # type: ignore[misc]
            "it is over",
        )


async def test_retention_under_pressure_keeps_undecided_parts(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (a, _):
        assert part_of(a)._journal.begin_phy_offset is None
        publish = Publish(a, await opened(a), 0)
        begin = a.controller.services.store.log.max_phy_offset
        await publish.stage(a, 0, group("T", [b"1"]))
        assert part_of(a)._journal.begin_phy_offset == begin


async def test_a_topic_deleted_meanwhile_is_not_made_again(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (a, b):
        publish = Publish(a, await opened(a), 0)
        await publish.stage(b, 0, group("T", [b"1"]), group("U", [b"2"]))
        b.controller.services.topics.delete("U")
        await publish.decide(commit=True)
        await until_stored(b, "T", [b"1"])
        await until_over(a, b)
        (entry,) = await listed(b)
        assert (entry.state, entry.problem) == ("incomplete", "topic U was deleted")
        assert b.controller.services.topics.get("U") is None


@pytest.mark.parametrize("properties", ["DELAY\x013\x02", "TIMER_DELAY_SEC\x019\x02", "TRAN_MSG\x01true\x02"])
async def test_messages_that_cannot_be_staged_are_refused(tmp_path: Path, properties: str) -> None:
    async with two_brokers(tmp_path) as (a, _):
        publish = Publish(a, await opened(a), 0)
        answer = await publish.stage(a, 0, group("T", [b"1"], properties=properties))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "not possible" in (answer.remark or "")


async def test_the_properties_of_brokers_are_not_taken_from_clients(tmp_path: Path) -> None:
    async with two_brokers(tmp_path) as (a, _):
        publish = Publish(a, await opened(a), 0)
        forged = "__KOUROU_ATOMIC\x01@x:0:0:5\x02__KOUROU_SEQ\x01@x:0:5\x02"
        await publish.stage(a, 0, group("T", [b"1"], properties=forged))
        refused = await a.send(ATOMIC_TOPIC, b"forged record")
        assert refused.code == ResponseCode.NO_PERMISSION
        await publish.decide(commit=True)
        await until_stored(a, "T", [b"1"])
