"""Members of a broker set: elections, handovers, fences, and what happens without etcd."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kourou import AsyncProducer, Message
from kourou.broker.replication.reign import boottime_s
from kourou.config import NamesrvConfig
from kourou.errors import ConfigError, EtcdRefusedError, EtcdUnavailableError, KourouError, RequestError
from kourou.etcd import EtcdClient, Snapshot
from kourou.failover.set_state import InSyncValue, SetState, encode_value
from kourou.namesrv.server import NameServer
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.controller import PromiseRequestHeader
from kourou.protocol.headers.offsets import GetMaxOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from kourou.protocol.record import decode_records
from kourou.transport.client import RemotingClient
from tests.e2e.transport.certificate_kit import Issuer
from tests.integration.etcd.etcd_kit import Member, etcd
from tests.integration.failover.set_kit import BrokerSet

pytestmark = pytest.mark.integration

TOPIC = "orders"
_numbers = count(1)


@pytest.fixture(scope="module")
def etcd_member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    with etcd(tmp_path_factory.mktemp("etcd")) as (member,):
        yield member


@pytest.fixture
async def brokers(tmp_path: Path, etcd_member: Member) -> AsyncIterator[BrokerSet]:
    """A set without members, under a prefix of its own."""
    settings = {"failover_etcd_prefix": f"/test-{next(_numbers)}"}
    async with NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0)) as namesrv:
        found = BrokerSet(tmp_path, etcd_member.address, namesrv, settings)
        try:
            yield found
        finally:
            for number in list(found.members):
                await found.stop(number)


async def send(brokers: BrokerSet, body: str, retried: str = "") -> None:
    """Send until it is accepted, or fails with other words than `retried`."""
    async with AsyncProducer("senders", namesrv=brokers.namesrv.address) as producer:
        for _ in range(100):
            try:
                await producer.send(Message(TOPIC, body.encode()))
                return
            except KourouError as error:
                last = error
                if retried not in str(error):
                    break
                await asyncio.sleep(0.1)
        raise last


def bodies(brokers: BrokerSet, number: int) -> list[str]:
    """What the log of a member has, in its queues."""
    store = brokers.members[number].broker.services.store
    raw = b""
    for queue_id in store.queues.queue_ids(TOPIC):
        queue_offset = 0
        while queue_offset < store.max_offset_in_queue(TOPIC, queue_id):  # one call may give a part
            result = store.get_message(TOPIC, queue_id, queue_offset)
            raw += b"".join(bytes(buffer) for buffer in result.buffers)
            queue_offset = result.next_begin_offset
    return sorted(message.body.decode() for message in decode_records(raw))


def log_size(root: Path) -> int:
    """The bytes of the files of a log."""
    return sum(each.stat().st_size for each in (root / "commitlog").iterdir())


def kept_tails(brokers: BrokerSet, number: int) -> list[bytes]:
    """What was cut off the log of a member."""
    root = Path(brokers.configs[number].store_path_root_dir or "")
    return [each.read_bytes() for each in root.rglob("orphaned/*")]


async def answer(brokers: BrokerSet, number: int, command: RemotingCommand) -> RemotingCommand:
    """What a member answers."""
    client = RemotingClient()
    try:
        await brokers.until(lambda: brokers.members[number].is_serving, "the member in its role")
        return await client.call(brokers.members[number].address, command, 3_000)
    finally:
        await client.stop()


COMMIT = UpdateConsumerOffsetRequestHeader(consumer_group="g", topic=TOPIC, queue_id=0, commit_offset=1)


async def test_a_member_takes_over_by_links_with_tls(brokers: BrokerSet, tmp_path: Path) -> None:
    """Each member is slave and master in turn, with one configuration."""
    issuer = Issuer(tmp_path, "issuer")
    cert, key = issuer.issue("member", "broker-a")
    brokers.settings |= {
        "tls_server_cert_path": str(cert),
        "tls_server_key_path": str(key),
        "tls_server_mode_ha": "enforcing",
        "tls_enable_ha": True,
        "tls_client_auth_server": True,
        "tls_client_trust_cert_path": str(issuer.cert_path),
    }
    for number in (1, 2, 3):
        await brokers.start(number)
    first = await brokers.master()
    await brokers.until(lambda: brokers.in_sync() == (1, 2, 3), "all in sync")
    await send(brokers, "before")
    await brokers.stop(first)
    second = await brokers.master()
    await send(brokers, "after")
    assert bodies(brokers, second) == ["after", "before"]
    await brokers.start(first)
    await brokers.until(lambda: brokers.in_sync() == (1, 2, 3), "all in sync again")
    links = brokers.members[second].broker.running.master.server.member_links()
    assert len(links) == 2 and all(link.is_tls for link in links.values())


async def test_members_find_their_roles_and_hand_over(brokers: BrokerSet) -> None:
    for number in (1, 2, 3):
        await brokers.start(number)
    first = await brokers.master()
    await brokers.until(lambda: brokers.in_sync() == (1, 2, 3), "all in sync")
    await send(brokers, "before")
    epoch = brokers.members[first].state.epoch
    # A slave takes neither messages nor offsets, and shows nothing that may be cut off.
    slave = next(each for each in brokers.members if each != first)
    header = GetMaxOffsetRequestHeader(topic=TOPIC, queue_id=0)
    refused = await answer(brokers, slave, RemotingCommand.request(RequestCode.GET_MAX_OFFSET, header))
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    with pytest.raises(RequestError, match="not the master"):
        await brokers.members[slave].hand_over(None)

    old = brokers.members[first]
    with pytest.raises(RequestError, match="member 9 is not in sync"):
        await old.hand_over(9)
    target = brokers.members[slave].member_id
    assert await old.hand_over(target) == target
    await brokers.until(lambda: brokers.serving() == [slave], "the successor")
    await send(brokers, "after")
    assert brokers.members[slave].state.epoch == epoch + 1
    await brokers.until(
        lambda: bodies(brokers, first) == bodies(brokers, slave) == ["after", "before"], "the same messages"
    )
    assert brokers.in_sync() == (1, 2, 3)


async def test_a_clean_stop_hands_over_at_once(brokers: BrokerSet) -> None:
    for number in (1, 2, 3):
        await brokers.start(number)
    first = await brokers.master()
    await brokers.until(lambda: brokers.in_sync() == (1, 2, 3), "all in sync")
    await brokers.stop(first)
    async with asyncio.timeout(4):  # the lease is longer
        second = await brokers.master()
    assert second != first
    await send(brokers, "after")
    await brokers.start(first)
    await brokers.until(lambda: brokers.in_sync() == (1, 2, 3), "all in sync again")


async def test_a_master_that_is_alone_accepts_and_shows_nothing(brokers: BrokerSet) -> None:
    await brokers.start(1)
    await brokers.master()
    with pytest.raises(KourouError, match="1 of 2 copies in sync"):
        await send(brokers, "too early", retried="no route")
    assert brokers.members[1].broker.services.store.log.max_phy_offset == 0
    await brokers.start(2)
    await send(brokers, "two copies")
    assert brokers.in_sync() == (1, 2)


async def test_without_etcd_a_master_steps_down_at_its_deadline(tmp_path: Path) -> None:
    with etcd(tmp_path) as (member,):
        async with NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0)) as namesrv:
            brokers = BrokerSet(tmp_path, member.address, namesrv)
            for number in (1, 2):
                await brokers.start(number)
            first = await brokers.master()
            await brokers.until(lambda: brokers.in_sync() == (1, 2), "both in sync")
            await send(brokers, "before")
            member.pause()
            try:
                await brokers.until(lambda: not brokers.masters, "no master")
                command = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, COMMIT)
                refused = await answer(brokers, first, command)
                assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
                # Started without etcd, a member is a slave.
                await brokers.stop(2)
                await brokers.start(2)
                assert not brokers.masters
            finally:
                member.go_on()
            await brokers.master()
            await send(brokers, "after")
            for number in (1, 2):
                await brokers.stop(number)


async def test_with_the_promises_of_all_a_master_goes_on_without_etcd(tmp_path: Path) -> None:
    settings = {"failover_continues_without_etcd": True, "failover_lease_seconds": 2}
    with etcd(tmp_path) as (member,):
        async with NameServer(NamesrvConfig(bind_address="127.0.0.1", listen_port=0)) as namesrv:
            brokers = BrokerSet(tmp_path, member.address, namesrv, settings)
            for number in (1, 2, 3):
                await brokers.start(number)
            first = await brokers.master()
            await brokers.until(lambda: brokers.in_sync() == (1, 2, 3), "all in sync")
            reign = brokers.members[first]._reign
            assert reign is not None
            member.pause()
            try:
                await brokers.until(lambda: reign.rests_on_promises, "the promises")
                begin = boottime_s()
                while boottime_s() < begin + 3:
                    await send(brokers, f"at {boottime_s()}")
                    assert brokers.masters == [first]
            finally:
                member.go_on()
            await brokers.until(
                lambda: not reign.rests_on_promises and not reign.lacks_key, "the lease is renewed"
            )
            await send(brokers, "after")
            assert brokers.masters == [first] and brokers.members[first]._reign is reign

            # Without the promise of one of them it ends.
            slave = next(each for each in brokers.members if each != first)
            member.pause()
            try:
                await brokers.stop(slave)
                await brokers.until(lambda: not brokers.masters, "no master")
            finally:
                member.go_on()
            await brokers.master()
            await send(brokers, "two of three")
            for number in list(brokers.members):
                await brokers.stop(number)


async def test_a_master_without_etcd_gets_its_key_back(brokers: BrokerSet) -> None:
    """Its key expires while etcd is there for all others; they have promised to leave it alone."""
    brokers.settings |= {"failover_continues_without_etcd": True, "failover_lease_seconds": 2}
    for number in (1, 2, 3):
        await brokers.start(number)
    first = await brokers.master()
    await brokers.until(lambda: brokers.in_sync() == (1, 2, 3), "all in sync")
    master = brokers.members[first]
    slave = brokers.members[next(each for each in brokers.members if each != first)]
    reign, lease, client = master._reign, master._lease, master._client
    assert reign is not None and lease is not None

    async def away(*words: Any, **options: Any) -> Any:
        raise EtcdUnavailableError("cut off by the test", may_be_done=False)

    renew, take_over = lease.renew, client.take_over
    lease.renew = client.take_over = away  # type: ignore[method-assign]
    try:
        await brokers.until(lambda: slave.state.master is None, "the key has expired")
        await brokers.until(lambda: reign.lacks_key, "the master has noticed")
        begin = boottime_s()
        while boottime_s() < begin + 3:
            await send(brokers, f"at {boottime_s()}")
            assert brokers.masters == [first]
        assert slave.state.master is None
    finally:
        lease.renew, client.take_over = renew, take_over  # type: ignore[method-assign]
    await brokers.until(lambda: slave.state.master is not None, "the key")
    assert slave.state.epoch == reign.epoch and slave.state.in_sync is not None
    await send(brokers, "after")
    await brokers.until(lambda: not reign.rests_on_promises, "the lease is renewed")
    assert brokers.masters == [first] and master._reign is reign
    # The set is kept as before.
    await brokers.stop(next(number for number in brokers.members if brokers.members[number] is slave))
    await brokers.until(lambda: len(brokers.in_sync()) == 2, "a smaller set")
    await send(brokers, "two of three")


async def test_who_promises_what(brokers: BrokerSet) -> None:
    brokers.settings |= {"failover_continues_without_etcd": True, "failover_lease_seconds": 2}
    await brokers.start(1)
    await brokers.start(2)
    first = await brokers.master()
    await brokers.until(lambda: brokers.in_sync() == (1, 2), "both in sync")
    master, slave = brokers.members[first], brokers.members[3 - first]
    assert slave._identity is not None
    header = PromiseRequestHeader(
        cluster_name="DefaultCluster",
        broker_name="broker-a",
        kourou_set_id=slave._identity.set_id,
        kourou_member_id=master.member_id,
        kourou_asked_id=slave.member_id,
        kourou_epoch=slave.state.epoch,
        kourou_asked_ms=60_000,
    )
    assert slave.promise(header) == 2_000  # its own lease is the limit
    for changes, problem in (
        ({"kourou_epoch": slave.state.epoch - 1}, "has begun"),
        ({"kourou_set_id": "other"}, "a member of set"),
        ({"kourou_asked_id": 9}, "not 9"),
        ({"kourou_member_id": 9}, "does not follow member 9"),
    ):
        with pytest.raises(RequestError, match=problem):
            slave.promise(msgspec.structs.replace(header, **changes))
    with pytest.raises(RequestError, match="takes over itself"):
        master.promise(msgspec.structs.replace(header, kourou_asked_id=master.member_id))
    slave._is_claiming = True
    with pytest.raises(RequestError, match="takes over itself"):
        slave.promise(header)
    slave._is_claiming = False
    slave._config = dataclasses.replace(slave._config, failover_continues_without_etcd=False)
    with pytest.raises(RequestError, match="failoverContinuesWithoutEtcd is not set at member"):
        slave.promise(header)


async def test_a_deposed_master_gives_up_what_it_cannot_confirm(brokers: BrokerSet) -> None:
    """What is appended, but not confirmed when the reign ends, is not acknowledged."""
    for number in (1, 2):
        await brokers.start(number)
    first = await brokers.master()
    await brokers.until(lambda: brokers.in_sync() == (1, 2), "both in sync")
    await send(brokers, "before")
    reign = brokers.members[first]._reign
    assert reign is not None
    brokers.members[first]._is_retiring = True  # it does not look after its set
    reign.propose({1, 2, 7})  # 7 never acknowledges
    async with AsyncProducer("senders", namesrv=brokers.namesrv.address, retry_times=0) as producer:
        sending = asyncio.ensure_future(producer.send(Message(TOPIC, b"unconfirmed")))
        log = brokers.members[first].broker.services.store.log
        before = log.max_phy_offset
        await brokers.until(lambda: log.max_phy_offset > before, "the record")
        reign.end("the test ends it")
        with pytest.raises(Exception, match="service not available"):
            await sending
    brokers.members[first]._is_retiring = False
    await brokers.master()


async def test_a_late_change_of_the_in_sync_set_is_not_done(brokers: BrokerSet) -> None:
    """The outcome of a change was not known, and it comes to etcd after the master has looked."""
    for number in (1, 2, 3):
        await brokers.start(number)
    first = await brokers.master()
    await brokers.until(lambda: brokers.in_sync() == (1, 2, 3), "all in sync")
    master = brokers.members[first]
    master._is_retiring = True  # its own task leaves the set alone
    assert master._upkeep is not None
    reign, before = master._upkeep.reign, master._upkeep.throne
    reign.propose({1, 2})
    await master._upkeep.settle()
    assert (await master._client.change_in_sync(before, (1, 2), phy_offset=0)) is None
    assert reign.in_sync == {1, 2, 3}
    assert reign.proposed is None
    master._is_retiring = False
    await send(brokers, "after")
    assert brokers.masters == [first]


async def test_a_take_over_looks_at_the_state_after_its_waits(brokers: BrokerSet) -> None:
    """The in-sync set was changed while this member waited for its lease: it is not in it any more."""
    for number in (1, 2, 3):
        await brokers.start(number)
    first = await brokers.master()
    await brokers.until(lambda: brokers.in_sync() == (1, 2, 3), "all in sync")
    slave = brokers.members[next(each for each in brokers.members if each != first)]
    lease, state = slave._lease, SetState(slave.state.keys)
    assert lease is not None
    slave._is_retiring = True  # its own task leaves it alone
    state.update(Snapshot(slave.state.revision, tuple(slave.state._values.values())))
    state._values.pop(state.keys.master)
    slave.state = state
    renew = lease.renew

    async def renew_late(*words: Any) -> bool:
        is_held = await renew(*words)
        others = tuple(each for each in (1, 2, 3) if each != slave.member_id)
        value = encode_value(InSyncValue(version=9, members=others))
        known = state._values[state.keys.in_sync]
        state._values[state.keys.in_sync] = dataclasses.replace(known, value=value)
        return is_held

    async def take_over(*words: Any, **options: Any) -> None:
        raise AssertionError("a member that is not in sync takes over")

    lease.renew = renew_late  # type: ignore[method-assign]
    slave._client.take_over = take_over  # type: ignore[method-assign]
    lease.deadline_s = slave._no_master_since = 0.0
    await slave._take_over()
    assert slave._reign is None


async def test_what_only_a_lost_master_had_is_cut_off_and_kept(brokers: BrokerSet) -> None:
    brokers.settings |= {"broker_role": "ASYNC_MASTER", "failover_may_lose_messages": True}
    for number in (1, 2):
        await brokers.start(number)
    first = await brokers.master()
    second = 3 - first
    await brokers.until(lambda: brokers.in_sync() == (1, 2), "both in sync")
    await send(brokers, "kept")
    await brokers.until(lambda: bodies(brokers, second) == ["kept"], "the slave's copy")
    await brokers.stop(second)
    await send(brokers, "orphaned")
    await brokers.stop(first)
    await brokers.start(second)
    assert await brokers.master() == second
    await send(brokers, "new")
    await brokers.start(first)
    await brokers.until(lambda: brokers.in_sync() == (1, 2), "the old master is back")
    await brokers.until(lambda: bodies(brokers, first) == ["kept", "new"], "the new master's messages")
    await brokers.until(lambda: bodies(brokers, second) == ["kept", "new"], "its own messages")
    assert any(b"orphaned" in content for content in kept_tails(brokers, first))


# -- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"broker_role": "SLAVE"}, "brokerRole=SLAVE, but the members of a set choose their roles"),
        (
            {"failover_continues_without_etcd": True, "failover_may_lose_messages": True},
            "failoverContinuesWithoutEtcd and failoverMayLoseMessages exclude each other",
        ),
    ],
)
async def test_keys_that_contradict_each_other(
    brokers: BrokerSet, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        await brokers.start(1, **settings)


async def test_a_new_member_without_etcd(brokers: BrokerSet) -> None:
    with pytest.raises(ConfigError, match="not yet a member of its set.*check failoverEtcdEndpoints"):
        await brokers.start(1, failover_etcd_endpoints="127.0.0.1:1")


async def test_a_store_of_another_set(brokers: BrokerSet, etcd_member: Member) -> None:
    await brokers.start(1)
    await brokers.master()
    await brokers.stop(1)
    config = brokers.configs.pop(1)
    await brokers.start(2, failover_etcd_prefix="/elsewhere")
    await brokers.stop(2)
    with pytest.raises(ConfigError, match="is member 1 of set .* has set .*; give this broker its own store"):
        await brokers.start(
            3, failover_etcd_prefix="/elsewhere", store_path_root_dir=config.store_path_root_dir
        )
    with pytest.raises(ConfigError, match="there is no set at /nowhere"):
        await brokers.start(
            4, failover_etcd_prefix="/nowhere", store_path_root_dir=config.store_path_root_dir
        )


async def test_a_store_with_messages_of_elsewhere_is_left_alone(brokers: BrokerSet) -> None:
    brokers.settings |= {"broker_role": "ASYNC_MASTER"}
    await brokers.start(1, failover_etcd_prefix="/other")
    await brokers.master()
    await send(brokers, "elsewhere")
    await brokers.stop(1)
    root = Path(brokers.configs.pop(1).store_path_root_dir or "")
    await asyncio.to_thread((root / "config" / "failoverMember.json").unlink)
    await brokers.start(2)
    await brokers.master()
    await send(brokers, "here")
    size = log_size(root)
    stray = await brokers.start(3, store_path_root_dir=str(root))
    with pytest.raises(ConfigError, match="was never part of this set"):
        async with asyncio.timeout(20):
            await stray.wait_failed()
    brokers.failures.clear()
    assert not kept_tails(brokers, 3)
    assert log_size(root) == size


async def test_a_key_that_another_program_wrote(brokers: BrokerSet, etcd_member: Member) -> None:
    prefix = brokers.settings["failover_etcd_prefix"]
    async with EtcdClient([etcd_member.address]) as client:
        await client.put(f"{prefix}/DefaultCluster/broker-a/set", b"not ours")
    with pytest.raises(Exception, match="was not written by Kourou"):
        await brokers.start(1)


async def test_a_wrong_password(tmp_path: Path, brokers: BrokerSet) -> None:
    with pytest.raises(EtcdRefusedError, match="authentication"):
        await brokers.start(1, failover_etcd_user="root", failover_etcd_password="wrong")
