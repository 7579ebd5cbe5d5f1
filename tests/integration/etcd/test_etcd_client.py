"""EtcdClient against real members: one, and a cluster of three."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kourou.errors import ConfigError, EtcdRefusedError, EtcdUnavailableError
from kourou.etcd import (
    Changes,
    EtcdClient,
    Snapshot,
    absent,
    created_at,
    delete,
    get,
    modified_at,
    put,
    value_is,
    watch,
)
from kourou.transport.settings import ClientTlsConfig
from kourou.transport.tls import client_context, throw_away_certificate
from tests.integration.etcd.etcd_kit import Member, etcd
from tests.interop.kit.ports import free_port

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Member]:
    with etcd(tmp_path_factory.mktemp("one")) as members:
        yield members[0]


@pytest.fixture
async def one(member: Member) -> AsyncIterator[EtcdClient]:
    async with EtcdClient([f"http://{member.address}"]) as client:
        yield client


async def test_put_get_delete(one: EtcdClient) -> None:
    await one.put("a/1", b"\x00\xff")
    await one.put("a/2", b"")
    await one.put("b", b"x")
    found = await one.get_prefix("a/")
    assert [(each.key, each.value) for each in found.keys] == [("a/1", b"\x00\xff"), ("a/2", b"")]
    first = (await one.get("a/1")).first
    assert first is not None and first.created_revision == first.modified_revision > 0
    assert await one.delete("a/1")
    assert not await one.delete("a/1")
    assert (await one.get("a/1")).first is None


async def test_a_transaction_compares_and_reads(one: EtcdClient) -> None:
    taken = await one.txn([absent("master")], [put("master", b"a")])
    assert taken.succeeded
    refused = await one.txn([absent("master")], [put("master", b"b")], [get("master"), get("none")])
    assert not refused.succeeded
    master, none = refused.reads
    assert none.first is None
    assert master.first is not None and master.first.value == b"a"
    revision = master.first.created_revision
    holds = [created_at("master", revision), modified_at("master", revision), value_is("master", b"a")]
    assert (await one.txn(holds, [delete("master")])).succeeded
    assert not (await one.txn(holds, [put("master", b"c")])).succeeded


async def test_a_lease_ends_with_its_keys(one: EtcdClient) -> None:
    lease = await one.grant(60)
    assert lease.ttl_s == 60
    await one.put("leased", b"1", lease=lease.lease_id)
    found = (await one.get("leased")).first
    assert found is not None and found.lease_id == lease.lease_id
    assert await one.keep_alive(lease.lease_id) == lease
    await one.revoke(lease.lease_id)
    assert (await one.get("leased")).first is None
    assert await one.keep_alive(lease.lease_id) is None  # HTTP 200, without a TTL
    await one.revoke(lease.lease_id)


async def test_what_etcd_refuses_is_named(one: EtcdClient) -> None:
    with pytest.raises(EtcdRefusedError, match="requested lease not found"):
        await one.put("x", b"1", lease=77)


async def test_requests_at_once_share_few_connections(one: EtcdClient) -> None:
    await asyncio.gather(*(one.put(f"many/{n}", b"%d" % n) for n in range(50)))
    assert len((await one.get_prefix("many/")).keys) == 50


async def test_nobody_listens() -> None:
    address = f"127.0.0.1:{free_port()}"
    async with EtcdClient([address]) as client:
        with pytest.raises(
            EtcdUnavailableError, match=f"etcd does not answer: {address}: .*refused"
        ) as caught:
            await client.put("a", b"1")
        assert not caught.value.may_be_done


async def test_a_port_that_is_not_etcd() -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, EtcdClient([f"127.0.0.1:{port}"]) as client:
        with pytest.raises(EtcdUnavailableError, match="is this a client port of etcd"):
            await client.get("a")


@pytest.mark.parametrize(
    ("endpoints", "options", "problem"),
    [
        ([], {}, "no endpoint is given"),
        (["127.0.0.1:1"], {"user": "root"}, "a user needs a password"),
        (["http://127.0.0.1:2379", "https://127.0.0.1:2380"], {}, "all with https:// or none"),
        (["127.0.0.1"], {}, "write host:port"),
    ],
)
def test_bad_settings(endpoints: list[str], options: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        EtcdClient(endpoints, **options)  # type: ignore[arg-type]


async def test_endpoints_of_two_clusters(tmp_path: Path, member: Member) -> None:
    with etcd(tmp_path) as others:
        async with EtcdClient([member.address, others[0].address]) as client:
            await client.get("a")
            client.prefer_next()
            await client.get("a")  # the first member's answer
            client.prefer_next()
            with pytest.raises(EtcdUnavailableError, match="it belongs to cluster .* correct the endpoints"):
                await client.put("a", b"1")


# -- watches -----------------------------------------------------------------------------------------


async def test_a_watch_shows_what_is_there_and_each_change(one: EtcdClient) -> None:
    await one.put("w/1", b"old")
    seen = watch(one, "w/")
    snapshot = await anext(seen)
    assert isinstance(snapshot, Snapshot)
    assert [each.value for each in snapshot.keys] == [b"old"]
    await one.put("w/2", b"new")
    await one.put("elsewhere", b"x")
    await one.delete("w/1")
    changes: list[tuple[str, str]] = []
    while len(changes) < 2:  # one answer of etcd may have several revisions
        found = await anext(seen)
        assert isinstance(found, Changes)
        changes += [("put", each.key) for each in found.put] + [
            ("deleted", each.key) for each in found.deleted
        ]
    assert changes == [("put", "w/2"), ("deleted", "w/1")]
    await seen.aclose()  # type: ignore[attr-defined]


async def test_a_watch_goes_on_after_a_restart_of_the_member(tmp_path: Path) -> None:
    with etcd(tmp_path) as (member,):
        async with EtcdClient([member.address]) as client:
            await client.put("w/1", b"1")
            seen = watch(client, "w/", idle_ms=300)
            await anext(seen)
            member.stop()
            member.start()
            await until_answered(client)
            await client.put("w/2", b"2")
            change = await anext(seen)
            assert isinstance(change, Changes) and change.put[0].value == b"2"
            await seen.aclose()  # type: ignore[attr-defined]


async def test_after_a_compaction_everything_is_read_again(one: EtcdClient) -> None:
    seen = watch(one, "c/")
    await anext(seen)
    for n in range(3):
        await one.put("c/1", b"%d" % n)
    await one.compact((await one.get("c/1")).revision)
    snapshot = await anext(seen)
    assert isinstance(snapshot, Snapshot)
    assert [each.value for each in snapshot.keys] == [b"2"]
    await seen.aclose()  # type: ignore[attr-defined]


# -- three members -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Member]]:
    with etcd(tmp_path_factory.mktemp("three"), 3) as members:
        yield members


async def leader_of(members: list[Member]) -> Member:
    async with EtcdClient([each.address for each in members]) as client:
        statuses = await client.statuses()
    return members[[each.is_leader for each in statuses].index(True)]


@pytest.mark.parametrize("which", ["leader", "follower"])
async def test_a_paused_member_is_passed_over(members: list[Member], which: str) -> None:
    leader = await leader_of(members)
    paused = leader if which == "leader" else next(each for each in members if each is not leader)
    others = [each.address for each in members if each is not paused]
    async with EtcdClient([paused.address, *others]) as client:
        await client.put("p", b"1")
        seen = watch(client, "p", idle_ms=300)
        await anext(seen)
        paused.pause()
        try:
            await until_answered(client)
            assert client.endpoints[0] != paused.address
            await client.put("p", b"2")
            change = await asyncio.wait_for(anext(seen), 20)
            assert isinstance(change, Changes) and change.put[-1].value == b"2"
        finally:
            paused.go_on()
            await seen.aclose()  # type: ignore[attr-defined]


async def test_a_write_that_a_paused_member_may_have_is_not_repeated(members: list[Member]) -> None:
    leader = await leader_of(members)
    follower = next(each for each in members if each is not leader)
    async with EtcdClient([follower.address, *(each.address for each in members)]) as client:
        await client.put("q", b"1")
        follower.pause()
        try:
            with pytest.raises(
                EtcdUnavailableError, match="whether the change was made is not known"
            ) as caught:
                await client.put("q", b"2")
            assert caught.value.may_be_done
        finally:
            follower.go_on()


async def test_statuses_name_who_is_away(members: list[Member]) -> None:
    gone = f"127.0.0.1:{free_port()}"
    async with EtcdClient([*(each.address for each in members), gone]) as client:
        statuses = await client.statuses()
    assert [each.is_leader for each in statuses].count(True) == 1
    assert all(each.version.startswith("3.") for each in statuses[:3])
    assert "refused" in (statuses[3].error or "")


# -- users and TLS -----------------------------------------------------------------------------------


async def test_user_and_password(tmp_path: Path) -> None:
    with etcd(tmp_path, words=["--auth-token-ttl", "1"]) as (member,):
        async with EtcdClient([member.address]) as admin:
            for path, fields in (
                ("auth/user/add", {"name": "root", "password": "secret"}),
                ("auth/role/add", {"name": "root"}),
                ("auth/user/grant", {"user": "root", "role": "root"}),
                ("auth/enable", {}),
            ):
                await admin._call(path, fields, is_repeatable=False)
            with pytest.raises(EtcdRefusedError, match="user name is empty"):
                await admin.get("a")
        async with EtcdClient([member.address], user="root", password="wrong") as client:
            with pytest.raises(EtcdRefusedError, match="authentication failed"):
                await client.get("a")
        async with EtcdClient([member.address], user="root", password="secret") as client:
            await client.put("a", b"1")
            client._token = "expired"
            await client.put("a", b"2")
            seen = watch(client, "a")
            assert isinstance(await anext(seen), Snapshot)
            await client.put("a", b"3")
            assert isinstance(await anext(seen), Changes)
            await seen.aclose()  # type: ignore[attr-defined]


async def test_tls(tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    for path, text in zip((cert, key), throw_away_certificate(), strict=True):
        path.write_bytes(text)
    trusting = client_context(ClientTlsConfig(enable=True, auth_server=True, trust_cert_path=cert))
    words = ["--cert-file", str(cert), "--key-file", str(key)]
    with etcd(tmp_path, scheme="https", words=words) as (member,):
        async with EtcdClient([f"https://{member.address}"], tls=trusting) as client:
            await until_answered(client)
            await client.put("a", b"1")
        async with EtcdClient([f"https://{member.address}"]) as client:
            with pytest.raises(EtcdUnavailableError, match="its certificate is not trusted"):
                await client.get("a")
        async with EtcdClient([member.address]) as client:
            with pytest.raises((EtcdUnavailableError, EtcdRefusedError), match="write https://"):
                await client.get("a")


async def until_answered(client: EtcdClient) -> None:
    for _ in range(100):
        try:
            await client.get("a")
            return
        except EtcdUnavailableError:
            await asyncio.sleep(0.1)
    raise AssertionError("etcd did not come back")
