"""A real broker with accounts of RocketMQ 4: files that change, accounts changed by requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from kourou.broker.access import part
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from tests.e2e.broker.test_access import ACL, PRODUCER, Keys, SigningPeer, guarded

pytestmark = pytest.mark.e2e

ROOT: Keys = ("rocketroot", "root-secret")


@pytest.fixture
async def peer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SigningPeer]:
    monkeypatch.setattr(part, "RELOAD_S", 0.02)
    write(tmp_path, ACL)
    async with guarded(tmp_path, acl_enable=True, rocketmq_home=str(tmp_path)) as started:
        yield started


def accounts_file(root: Path) -> Path:
    return root / "conf" / "plain_acl.yml"


def write(root: Path, text: str, name: str = "plain_acl.yml") -> None:
    path = root / "conf" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)


async def until_answered(send: Callable[[], Awaitable[RemotingCommand]], words: str) -> None:
    """Send until the remark of the answer begins with these words; empty: until it succeeds."""
    async with asyncio.timeout(10):
        while True:
            answer = await send()
            remark = (answer.remark or "").removeprefix("org.apache.rocketmq.acl.common.AclException: ")
            if answer.code == 0 if not words else remark.startswith(words):
                return
            await asyncio.sleep(0.01)


async def test_files_are_followed(peer: SigningPeer, tmp_path: Path) -> None:
    assert (await peer.send(PRODUCER)).code == 0
    newcomer: Keys = ("newcomer", "new-secret")
    account = "accounts: [{accessKey: newcomer, secretKey: new-secret, topicPerms: [TopicTest=PUB]}]"
    write(tmp_path, account, "acl/team/more.yml")
    await until_answered(lambda: peer.send(newcomer), "")
    write(tmp_path, "accounts: [{accessKey: newcomer, secretKey: new-secret}]", "acl/team/more.yml")
    await until_answered(lambda: peer.send(newcomer), "No default permission for topic:TopicTest")
    write(tmp_path, "accounts: [", "acl/team/more.yml")
    await asyncio.sleep(0.1)
    assert (await peer.send(PRODUCER)).code == 0
    write(tmp_path, "", "acl/team/more.yml")
    await until_answered(lambda: peer.send(newcomer), "No acl config for newcomer")
    assert (await peer.send(PRODUCER)).code == 0


async def test_accounts_changed_by_requests_count_at_once(peer: SigningPeer, tmp_path: Path) -> None:
    newcomer: Keys = ("newcomer", "new-secret")
    fields = {"accessKey": newcomer[0], "secretKey": newcomer[1], "topicPerms": "TopicTest=PUB"}
    created = await peer.call(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, ROOT, fields)
    assert (created.code, created.remark) == (0, None)
    assert (await peer.send(newcomer)).code == 0
    fields["topicPerms"] = "TopicTest=SUB"
    assert (await peer.call(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, ROOT, fields)).code == 0
    assert "No default permission for topic:TopicTest" in ((await peer.send(newcomer)).remark or "")
    assert (await peer.call(RequestCode.DELETE_ACL_CONFIG, ROOT, {"accessKey": "newcomer"})).code == 0
    assert "No acl config for newcomer" in ((await peer.send(newcomer)).remark or "")
    assert accounts_file(tmp_path).stat().st_mode & 0o777 == 0o600
    assert (await peer.send(PRODUCER)).code == 0


async def test_accounts_survive_a_restart(tmp_path: Path) -> None:
    write(tmp_path, ACL)
    keys = {"acl_enable": True, "rocketmq_home": str(tmp_path)}
    newcomer: Keys = ("newcomer", "new-secret")
    async with guarded(tmp_path, **keys) as peer:
        fields = {"accessKey": newcomer[0], "secretKey": newcomer[1], "defaultTopicPerm": "PUB"}
        assert (await peer.call(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, ROOT, fields)).code == 0
    async with guarded(tmp_path, **keys) as peer:
        assert (await peer.send(newcomer)).code == 0


async def test_ordinary_accounts_neither_see_nor_change_accounts(peer: SigningPeer) -> None:
    fields = {"accessKey": PRODUCER[0], "secretKey": PRODUCER[1], "admin": "true", "globalWhiteAddrs": "*"}
    for code in range(
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG + 1
    ):
        answer = await peer.call(code, PRODUCER, fields)
        assert f"Need admin permission for request code={code}" in (answer.remark or "")
        assert b"secret" not in answer.body


async def test_exempt_addresses_get_no_secrets(peer: SigningPeer) -> None:
    exempt = {"globalWhiteAddrs": "127.0.0.*,10.0.0.{1,2}"}
    assert (await peer.call(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, ROOT, exempt)).code == 0
    assert (await peer.send(None, "any-topic")).code == 0
    shown = await peer.call(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, None)
    body = json.loads(shown.body)
    assert body["globalWhiteAddrs"] == ["127.0.0.*", "10.0.0.{1,2}"]
    assert {account["secretKey"] for account in body["plainAccessConfigs"]} == {"***"}
    # Nor does an address prove who signed.
    claimed = await peer.call(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, ("rocketroot", "guess"))
    assert b"root-secret" not in claimed.body


async def test_users_of_rocketmq_5_are_refused_with_words(peer: SigningPeer) -> None:
    answer = await peer.call(RequestCode.AUTH_LIST_USER, ROOT)
    assert "without authenticationEnabled=true" in (answer.remark or "")
