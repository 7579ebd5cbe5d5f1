"""Atomic publishes at two brokers with accounts: which account may act for which publish."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.protocol.bodies.acl import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from kourou.protocol.bodies.codec import encode_body
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.acl import CreateAclRequestHeader, CreateUserRequestHeader
from kourou.protocol.headers.atomic import QueryAtomicRequestHeader
from kourou.protocol.signature import SigningKeys
from kourou.transport.client import RemotingClient
from tests.e2e.broker.broker_kit import Peer
from tests.integration.broker.atomic.atomic_kit import (
    Publish,
    bodies,
    group,
    listed,
    opened,
    outcome,
    two_brokers,
    until_over,
    until_stored,
)

ROOT, ALICE, BOB = (SigningKeys(name, f"{name}-secret") for name in ("root", "alice", "bob"))
AUTH = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": json.dumps({"username": "root", "password": "root-secret"}),
    "inner_client_authentication_credentials": json.dumps(
        {"accessKey": "brokers", "secretKey": "brokers-secret"}
    ),
}


class Accounts:
    """Peers of two brokers, one for each account."""

    def __init__(self, brokers: tuple[Peer, Peer], stack: contextlib.AsyncExitStack) -> None:
        self._brokers = brokers
        self._stack = stack

    def of(self, keys: SigningKeys) -> tuple[Peer, Peer]:
        """Both brokers, with requests that are signed by this account."""
        client = RemotingClient(keys=keys)
        self._stack.push_async_callback(client.stop)
        peers = Peer(self._brokers[0].controller), Peer(self._brokers[1].controller)
        for peer in peers:
            peer.client = client
        return peers


@contextlib.asynccontextmanager
async def guarded(root: Path) -> AsyncIterator[Accounts]:
    """alice and bob may send to T, at both brokers."""
    async with two_brokers(root, **AUTH) as brokers, contextlib.AsyncExitStack() as stack:
        accounts = Accounts(brokers, stack)
        for peer in accounts.of(ROOT):
            for keys in (ALICE, BOB):
                name = keys.access_key
                info = UserInfo(name, keys.secret_key)
                user = CreateUserRequestHeader(username=name)
                created = await peer.call(RequestCode.AUTH_CREATE_USER, user, encode_body(info))
                assert created.code == 0, created.remark
                entry = PolicyEntryInfo("Topic:T", ["Pub"], None, "Allow")
                policies = AclInfo(f"User:{name}", [PolicyInfo("Custom", [entry])])
                acl = CreateAclRequestHeader(subject=f"User:{name}")
                granted = await peer.call(RequestCode.AUTH_CREATE_ACL, acl, encode_body(policies))
                assert granted.code == 0, granted.remark
        yield accounts


def as_account(publish: Publish, coordinator: Peer) -> Publish:
    """The same publish, by the account of `coordinator`."""
    other = Publish(coordinator, ("", 0), 0)
    other.id, other.parts = publish.id, publish.parts
    return other


async def query(peer: Peer, publish: Publish) -> RemotingCommand:
    header = QueryAtomicRequestHeader(kourou_atomic_id=publish.id, kourou_broker_name="broker-b")
    return await peer.call(RequestCode.QUERY_KOUROU_ATOMIC, header)


async def test_another_account_cannot_stage_decide_or_query(tmp_path: Path) -> None:
    """Consumers see the id of a publish in __KOUROU_ATOMIC."""
    async with guarded(tmp_path) as accounts:
        (a, b), (bob_a, bob_b) = accounts.of(ALICE), accounts.of(BOB)
        publish = Publish(a, await opened(a), 0)
        assert (await publish.stage(b, 0, group("T", [b"1"]))).code == 0
        stolen = as_account(publish, bob_a)
        for answer in (
            await stolen.stage(bob_b, 1, group("T", [b"not mine"])),
            await stolen.decide(commit=False),
            await stolen.decide(commit=True, participants={}),
            await query(bob_a, publish),
        ):
            assert answer.code == 16
            assert "was opened by another account than bob" in (answer.remark or "")
        assert outcome(await publish.decide(commit=True)) == "committed"
        root = accounts.of(ROOT)
        await until_stored(root[1], "T", [b"1"])
        await until_over(*root)
        assert outcome(await query(a, publish)) == "over"
        own = Publish(bob_a, await opened(bob_a), 0)
        assert (await own.stage(bob_b, 0, group("T", [b"2"]))).code == 0
        assert outcome(await own.decide(commit=True)) == "committed"
        await until_stored(root[1], "T", [b"1", b"2"])


async def test_brokers_end_publishes_of_accounts(tmp_path: Path) -> None:
    """A participant queries the coordinator with the keys of brokers when the time is over."""
    async with guarded(tmp_path) as accounts:
        a, b = accounts.of(ALICE)
        root = accounts.of(ROOT)
        publish = Publish(a, await opened(a), 0)
        assert (await publish.stage(b, 0, group("T", [b"1"]), timeout_ms=1)).code == 0
        await until_over(*root)
        assert await bodies(root[1], "T") == []
        assert [entry.atomic_id for entry in await listed(root[1])] == [publish.id], "as abandoned"
        assert (await publish.decide(commit=True)).code != 0


@pytest.mark.parametrize("name", [None, "loader"])
async def test_open_brokers_know_no_accounts(tmp_path: Path, name: str | None) -> None:
    async with two_brokers(tmp_path) as brokers, contextlib.AsyncExitStack() as stack:
        accounts = Accounts(brokers, stack)
        (a, b), (bob_a, _) = accounts.of(ALICE), accounts.of(BOB)
        publish = Publish(a, await opened(a, name), 0)
        assert (await publish.stage(b, 0, group("T", [b"1"]))).code == 0
        assert outcome(await as_account(publish, bob_a).decide(commit=True)) == "committed"
        await until_stored(b, "T", [b"1"])
