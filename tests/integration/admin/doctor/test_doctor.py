"""The doctor finds what is wrong in clusters that really have it, and says what it could not look at."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kourou.admin.doctor import checks_groups as doctor_checks_groups
from kourou.admin.doctor import doctor
from kourou.admin.doctor.cluster_snapshot import ClusterSnapshot
from kourou.admin.session import Admin
from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.producer import AsyncProducer
from kourou.client.push.consume_result import ConsumeContext, ConsumeResult
from kourou.client.push.push_consumer import AsyncPushConsumer
from kourou.client.transactions.transaction_producer import AsyncTransactionProducer
from kourou.config import NamesrvConfig
from kourou.embed import Broker, NameServer
from kourou.protocol.bodies import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    MessageQueue,
    ProducerData,
    SubscriptionData,
    encode_body,
)
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.message import Message, MessageExt
from kourou.testing.clock import FakeClock
from kourou.testing.cluster import Cluster, broker_config, cluster
from tests.e2e.client.kit.push_kit import Notes, call, make_topic, until
from tests.integration.admin.gone_broker import register
from tests.unit.admin.command_line import run_line
from tests.unit.cli.daily.command_line import run_kourou

pytestmark = pytest.mark.e2e

TOPIC = "Orders"
GROUP = "billing"
# What depends on the machine that runs the tests.
OF_THE_MACHINE = ("machine", "disks", "compiled kernel")


async def diagnosis(
    running: Cluster, *words: str, namesrv: str = "", watch: str = "0"
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Findings that do not depend on the machine, and what was not checked."""
    namesrv = namesrv or running.namesrv_addr
    result = await run_line(namesrv, "doctor", "--json", "--watch", watch, *words)
    report = result.json
    has_problem = any(finding["severity"] == "problem" for finding in report["findings"])
    assert result.exit_code == has_problem, result
    assert all(finding["what"] and finding["meaning"] and finding["cure"] for finding in report["findings"])
    findings = [finding for finding in report["findings"] if finding["check"] not in OF_THE_MACHINE]
    return findings, [skipped for skipped in report["not_checked"] if skipped["check"] not in OF_THE_MACHINE]


async def the_finding(running: Cluster, check: str, *words: str, **keywords: str) -> dict[str, Any]:
    """The only one of a check."""
    findings, _ = await diagnosis(running, *words, **keywords)
    (found,) = [finding for finding in findings if finding["check"] == check]
    return found


@contextlib.asynccontextmanager
async def consumer(
    running: Cluster, handler: Any, expression: str = "*", **options: Any
) -> AsyncIterator[AsyncPushConsumer]:
    options = {"consume_from": "first", "persist_interval_ms": 50, "stop_timeout_ms": 1_000, **options}
    member = AsyncPushConsumer(GROUP, namesrv=running.namesrv_addr, **options)
    await member.subscribe(TOPIC, expression, handler)
    async with member:
        yield member


async def send(running: Cluster, count: int) -> None:
    async with AsyncProducer("orders", namesrv=running.namesrv_addr) as producer:
        for number in range(count):
            await producer.send(Message(TOPIC, str(number).encode()))


@contextlib.asynccontextmanager
async def sending(running: Cluster) -> AsyncIterator[None]:
    """Messages come all the time."""

    async def go_on() -> None:
        async with AsyncProducer("orders", namesrv=running.namesrv_addr) as producer:
            while True:
                await producer.send(Message(TOPIC, b"more"))
                await asyncio.sleep(0.01)

    task = asyncio.create_task(go_on(), name="sending")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


# -- a cluster in health -----------------------------------------------------------------------------


async def test_of_a_cluster_in_health_only_loopback_is_pointed_out(tmp_path: Path) -> None:
    notes = Notes()
    async with cluster(tmp_path, brokers=2) as running:
        await make_topic(running, TOPIC)
        async with consumer(running, notes):
            await send(running, 5)
            await until(lambda: len(notes.messages) == 5)
            findings, not_checked = await diagnosis(running)
            assert {(finding["check"], finding["severity"]) for finding in findings} == {
                ("addresses", "hint")
            }
            assert not_checked == []
            text = await run_line(running.namesrv_addr, "doctor", "-c", "DefaultCluster", "--watch", "0")
            assert text.lines[0] == "Checked 2 brokers, 1 topic and 1 group."
            assert "HINT broker broker-a" in text.stdout and "  cure" in text.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, which needs Linux")
async def test_a_broker_of_this_machine_is_looked_at_here(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running, Admin(namesrv=running.namesrv_addr) as admin:
        report = await doctor.diagnose(admin, watch_s=0)
        assert not any(skipped.check == "machine" for skipped in report.not_checked)


# -- servers -----------------------------------------------------------------------------------------


async def test_name_servers_that_differ_or_are_silent(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as running,
        NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0)) as empty,
    ):
        # Whichever of them is asked first.
        for both in (f"{running.namesrv_addr};{empty.address}", f"{empty.address};{running.namesrv_addr}"):
            found = await the_finding(running, "name servers", namesrv=both)
            assert (found["severity"], found["where"]) == ("problem", f"name server {empty.address}")
            assert "broker broker-a-0" in found["what"]
        assert "no broker is registered" in (await run_line(empty.address, "doctor")).problem
        silent = await the_finding(running, "name servers", namesrv=f"{running.namesrv_addr};127.0.0.1:1")
        assert (silent["severity"], silent["where"]) == ("problem", "name server 127.0.0.1:1")


@pytest.mark.parametrize(
    ("address", "check", "cure"),
    [
        ("127.0.0.1:1", "brokers", "check whether it is running"),
        ("172.17.255.254:10911", "brokers", "an address inside Docker: set brokerIP1"),
        ("broker.invalid:10911", "addresses", "set brokerIP1"),
    ],
)
async def test_a_broker_at_an_address_that_leads_nowhere(
    tmp_path: Path, address: str, check: str, cure: str
) -> None:
    async with cluster(tmp_path) as running:
        await register(running, "gone", address)
        findings, _ = await diagnosis(running, "--timeout", "300")
        found = [one for one in findings if one["check"] == check and "gone" in one["where"]]
        assert found[0]["severity"] in ("problem", "hint")
        assert cure in found[0]["cure"]
        assert any(one["check"] == "brokers" and one["severity"] == "problem" for one in findings)
        assert not any("gone" in one["where"] for one in findings if one["check"] == "clocks")


@pytest.mark.parametrize(("ahead_ms", "severity"), [(60_000, "problem"), (-5_000, "warning")])
async def test_a_clock_that_is_wrong(tmp_path: Path, ahead_ms: int, severity: str) -> None:
    async with cluster(tmp_path) as running:
        config = broker_config(tmp_path, 1, running.namesrv_addr)
        clock = FakeClock()
        clock.step(ahead_ms)
        async with Broker(config, clock=clock):
            found = await the_finding(running, "clocks")
            assert (found["severity"], "broker-b" in found["where"]) == (severity, True)
            assert ("ahead of" if ahead_ms > 0 else "behind") in found["what"]


async def test_a_clock_that_was_stepped_and_a_timer_wheel_that_was_rebuilt(tmp_path: Path) -> None:
    clock = FakeClock()
    async with cluster(tmp_path) as running:
        async with Broker(broker_config(tmp_path, 1, running.namesrv_addr), clock=clock) as broker:
            clock.step(3_600_000)
            broker.services.clock_watch.look()
            clock.step(-3_600_000)
            broker.services.clock_watch.look()
            assert broker.services.timers is not None
            broker.services.timers.damage_count = 1
            found = await the_finding(running, "clocks")
            assert (found["severity"], "broker-b" in found["where"]) == ("warning", True)
            assert "set back by 1h, to" in found["what"] and "start: 2" in found["what"]
            found = await the_finding(running, "damage")
            assert (found["severity"], "broker-b" in found["where"]) == ("warning", True)


# -- topics ------------------------------------------------------------------------------------------


async def run_commands(findings: Iterable[dict[str, Any]]) -> None:
    """Do what findings advise, by copying their commands."""
    for finding in findings:
        for command in finding["commands"]:
            program, *words = shlex.split(command)
            assert program == "mqadmin" and (await run_line(None, *words)).exit_code == 0


async def test_topics_that_may_not_be_written_to_or_read(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=2) as running:
        await make_topic(running, TOPIC)
        await make_topic(running, "Blocked")
        change = ("updateTopic", "-t", "Blocked", "-p", "4", "-b")
        for broker in running.brokers:
            assert (await run_line(running.namesrv_addr, *change, broker.address)).exit_code == 0
        blocked = await the_finding(running, "permissions")
        assert (blocked["severity"], blocked["where"]) == ("problem", "topic Blocked")
        assert blocked["commands"] == [
            f"mqadmin updateTopicPerm -n {running.namesrv_addr} -t Blocked -p 6 -b {name}"
            for name in ("broker-a", "broker-b")
        ]
        wiped = await run_line(running.namesrv_addr, "wipeWritePerm", "-b", "broker-b")
        assert wiped.exit_code == 0
        findings, _ = await diagnosis(running)
        wheres = [one["where"] for one in findings if one["check"] == "permissions"]
        assert sorted(wheres) == ["broker broker-b", "topic Blocked"]
        await run_commands(one for one in findings if one["check"] == "permissions")
        assert "permissions" not in [one["check"] for one in (await diagnosis(running))[0]]


async def test_a_topic_that_a_master_lacks_and_an_order_that_names_a_broker_that_is_gone(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, brokers=2) as running:
        make = ("updateTopic", "-t", TOPIC, "-b", running.broker.address)
        assert (await run_line(running.namesrv_addr, *make)).exit_code == 0
        order = ("updateOrderConf", "-m", "put", "-t", TOPIC, "-v", "broker-a:4;broker-z:4")
        assert (await run_line(running.namesrv_addr, *order)).exit_code == 0
        findings, _ = await diagnosis(running)
        spread, gone = (
            next(one for one in findings if one["check"] == check)
            for check in ("topics on all masters", "order configuration")
        )
        assert "not on broker-b" in spread["what"]
        assert (gone["severity"], "names broker-z" in gone["what"]) == ("problem", True)
        assert spread["commands"] == [
            f"mqadmin updateTopic -n {running.namesrv_addr} -c DefaultCluster -t Orders -r 8 -w 8"
        ]
        await run_commands([spread, gone])
        left = {one["check"] for one in (await diagnosis(running))[0]}
        assert not left & {"topics on all masters", "order configuration"}


# -- groups ------------------------------------------------------------------------------------------


async def test_members_that_subscribe_differently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running, TOPIC)
        async with consumer(running, Notes(), "TagA"), consumer(running, Notes(), "TagB"):
            found = await the_finding(running, "subscriptions")
            assert "Orders [TagA]" in found["what"] and "Orders [TagB]" in found["what"]
            assert found["severity"] == "warning"  # they have just started
            monkeypatch.setattr(doctor_checks_groups, "STARTED_FOR_A_WHILE_MS", -1)
            assert (await the_finding(running, "subscriptions"))["severity"] == "problem"


class OnlyTheFirst:
    """Leaves all queues but one unassigned."""

    name = "FIRST"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(queues[:1])


async def test_queues_without_an_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running, TOPIC, queues=2)
        notes = Notes()
        async with consumer(running, notes) as member:
            await send(running, 2)
            await until(lambda: len(notes.messages) == 2 and member.stats().in_hand == 0)
        await send(running, 4)
        async with consumer(running, Notes(), strategy=OnlyTheFirst()) as member:
            await until(lambda: len([queue for queue in member.queues if queue.topic == TOPIC]) == 1)
            found = await the_finding(running, "queues without consumer")
            assert "Orders broker-a/1" in found["what"] and found["severity"] == "hint"
            monkeypatch.setattr(doctor_checks_groups, "_REBALANCED_AFTER_MS", -1)
            found = await the_finding(running, "queues without consumer")
            assert (found["severity"], "unconsumed messages there: 2" in found["what"]) == ("problem", True)


async def test_two_members_with_one_client_id(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running, TOPIC)
        async with (
            consumer(running, Notes(), instance_name="same"),
            consumer(running, Notes(), instance_name="same"),
        ):
            found = await the_finding(running, "client ids")
            assert found["severity"] == "problem" and "2 members have the client id" in found["what"]


async def test_members_of_different_versions(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running, TOPIC)
        async with consumer(running, Notes()):
            data = ConsumerData(
                group_name=GROUP,
                consume_type=ConsumeType.CONSUME_PASSIVELY,
                message_model=MessageModel.CLUSTERING,
                subscription_data_set=[SubscriptionData(topic=TOPIC, sub_string="*")],
            )
            beat = HeartbeatData(client_id="old@1", consumer_data_set=[data])
            command = RemotingCommand.request(RequestCode.HEART_BEAT, None, encode_body(beat))
            command.version = 400
            await running.client.call(running.broker.address, command, 5_000)
            findings, not_checked = await diagnosis(running, "--timeout", "1500")
            (found,) = [one for one in findings if one["check"] == "client versions"]
            assert found["severity"] == "hint" and "1 of" in found["what"]
            # The old one does not answer when it is asked what it does.
            assert any("old@1" in skipped["where"] for skipped in not_checked)


async def test_lag_that_grows_while_it_looks(tmp_path: Path) -> None:
    async def stuck(message: MessageExt) -> None:
        await asyncio.sleep(60)

    async with cluster(tmp_path) as running:
        await make_topic(running, TOPIC)
        await send(running, 4)
        async with consumer(running, Notes()) as member:
            await until(lambda: member.stats().consumed == 4 and member.stats().in_hand == 0)
        async with consumer(running, stuck, stop_timeout_ms=0), sending(running):
            found = await the_finding(running, "lag", watch="0.5")
            assert "growing by" in found["what"] and found["severity"] == "warning"


async def test_a_group_without_members_is_shown_and_not_deleted_by_the_command_of_its_finding(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running, TOPIC)
        await send(running, 2)
        async with consumer(running, Notes()) as member:
            await until(lambda: member.stats().consumed == 2 and member.stats().in_hand == 0)
        await send(running, 3)
        found = await the_finding(running, "lag")
        assert found["what"].startswith("no member is online; unconsumed messages: 3")
        assert found["cure"] == "start its consumers; delete the group only if it is no longer used"
        assert found["commands"] == [f"kourou group show billing -n {running.namesrv_addr}"]
        shown = await run_line(running.namesrv_addr, "doctor", "-w", "0.01")
        assert f"  run      {found['commands'][0]}\n" in shown.stdout
        ran = await asyncio.to_thread(run_kourou, *shlex.split(found["commands"][0])[1:])
        assert (ran.exit_code, "lag      3 messages" in ran.stdout) == (0, True), ran


async def test_dead_letters_that_grow_and_that_were(tmp_path: Path) -> None:
    async def give_up(message: MessageExt, context: ConsumeContext) -> ConsumeResult:
        context.delay_level = -1
        return ConsumeResult.LATER

    async with cluster(tmp_path) as running:
        await make_topic(running, TOPIC)
        async with consumer(running, give_up) as member, sending(running):
            await until(lambda: member.stats().failed > 0)
            found = await the_finding(running, "dead letters", watch="0.5")
            assert found["severity"] == "problem" and "more than a moment ago" in found["what"]
        found = await the_finding(running, "dead letters")
        assert found["severity"] == "warning" and found["commands"][0].endswith(" -g billing --dry-run")


# -- transactions ------------------------------------------------------------------------------------


async def test_transactions_that_stay_open_and_a_group_shared_with_plain_producers(tmp_path: Path) -> None:
    async def check(message: MessageExt) -> TransactionState:
        return TransactionState.UNKNOWN

    async with cluster(tmp_path) as running:
        await make_topic(running, TOPIC)
        producer = AsyncTransactionProducer("orders-tx", namesrv=running.namesrv_addr, check=check)
        async with producer, Admin(namesrv=running.namesrv_addr) as admin:
            async with producer.transaction(Message(TOPIC, b"open")) as transaction:
                transaction.unknown()
            beat = HeartbeatData(
                client_id="plain@1", producer_data_set=[ProducerData(group_name="orders-tx")]
            )
            await call(running, RequestCode.HEART_BEAT, body=encode_body(beat))
            report = await doctor.diagnose(admin, watch_s=0, half_pending_ms=-1)
            found = [one for one in report.findings if one.check == "transactions"]
            assert [one.severity for one in found] == ["warning", "hint"]
            assert "open: 1 transaction, the oldest" in found[0].what
            assert "plain@1" in found[1].what and producer.client_id not in found[1].what
            report = await doctor.diagnose(admin, watch_s=0)
            assert not any("open: " in one.what for one in report.findings)


# -- what cannot be looked at ------------------------------------------------------------------------


async def test_a_check_that_fails_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(snapshot: ClusterSnapshot) -> list[Any]:
        raise RuntimeError("never thought of")

    monkeypatch.setitem(doctor._ONE_SNAPSHOT_CHECKS, "clocks", broken)
    async with cluster(tmp_path) as running:
        findings, not_checked = await diagnosis(running)
        assert [one["check"] for one in findings] == ["addresses"]
        assert not_checked == [{"check": "clocks", "where": "", "reason": "RuntimeError: never thought of"}]


async def test_bad_words(tmp_path: Path) -> None:
    cases = [
        (("--watch", "soon"), "must be a number of seconds"),
        (("--watch", "-1"), "from 0 to 3600"),
        (("-c", "nowhere"), "cluster [nowhere] not exist"),
    ]
    async with cluster(tmp_path) as running:
        for words, problem in cases:
            assert problem in (await run_line(running.namesrv_addr, "doctor", *words)).problem
