"""Changes of users, policies, accounts, white lists and topics act on the next send of an account that may
send already: by the compiled kernel, and by the gate without it (access/known_senders.py)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.access.gate import AccessGate
from kourou.broker.send.fast_send_path import FastSendPath, Sender
from kourou.protocol.bodies.acl import AclInfo, PolicyEntryInfo, PolicyInfo
from kourou.protocol.bodies.codec import encode_body
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.store.kernel import EncodedSends
from kourou.store.log.put_batch import RunRoom
from tests.e2e.broker.test_access import ACL, ALICE, AUTH, PRODUCER, ROOT, Keys, SigningPeer, guarded
from tests.integration.kernel.twins import ORDINARY

pytestmark = pytest.mark.e2e

PLAIN_ROOT: Keys = ("rocketroot", "root-secret")
_TOPIC = {
    "topic": "TopicTest",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
}


@pytest.fixture(params=[True, False], ids=["kernel", "python"])
def has_kernel(request: pytest.FixtureRequest) -> bool:
    found: bool = request.param
    return found


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How many sends the kernel has taken, at 0."""
    counts: Counter[int] = Counter()
    encode = FastSendPath._encode

    def counted(path: FastSendPath, senders: list[Sender], room: RunRoom) -> EncodedSends | None:
        run = encode(path, senders, room)
        counts[0] += 0 if run is None else run[0][0]
        return run

    monkeypatch.setattr(FastSendPath, "_encode", counted)
    return counts


@pytest.fixture
async def users(tmp_path: Path, has_kernel: bool) -> AsyncIterator[SigningPeer]:
    """A broker with users of RocketMQ 5; alice may send."""
    keys = {**AUTH, "compiled_kernel_enable": has_kernel, "auto_create_topic_enable": False}
    async with guarded(tmp_path, **keys) as peer:
        answer = await peer.call(RequestCode.UPDATE_AND_CREATE_TOPIC, ROOT, _TOPIC)
        assert answer.code == 0, answer.remark
        await peer.create_user(ALICE)
        await peer.grant("alice", "Topic:TopicTest", "Pub")
        yield peer


@pytest.fixture
async def accounts(tmp_path: Path, has_kernel: bool) -> AsyncIterator[SigningPeer]:
    """A broker with accounts of RocketMQ 4."""
    path = tmp_path / "conf" / "plain_acl.yml"
    path.parent.mkdir()
    path.write_text(ACL)
    path.chmod(0o600)
    keys = {"acl_enable": True, "rocketmq_home": str(tmp_path), "compiled_kernel_enable": has_kernel}
    async with guarded(tmp_path, **keys) as peer:
        yield peer


async def send(peer: SigningPeer, keys: Keys, topic: str = "TopicTest") -> RemotingCommand:
    """As Java's clients send: the kernel takes only that."""
    return await peer.call(RequestCode.SEND_MESSAGE_V2, keys, {**ORDINARY, "b": topic}, b"hello")


async def become_known(peer: SigningPeer, keys: Keys, taken: Counter[int]) -> None:
    """Send until nothing but signatures is checked of further sends."""
    services = peer.peer.controller.services
    gate, has_kernel = services.admission.record_access, services.kernel.current.kernel is not None
    taken.clear()
    for _ in range(5):
        answer = await send(peer, keys)
        assert answer.code == 0, answer.remark
    assert isinstance(gate, AccessGate) and gate._known is not None and len(gate._known) > 0
    assert (taken[0] > 1) == has_kernel, "the first ones are left to the gate"


async def refused(peer: SigningPeer, keys: Keys, words: str) -> None:
    """The very next sends, each of them."""
    for _ in range(2):
        answer = await send(peer, keys)
        assert answer.code != 0 and words in (answer.remark or ""), (answer.code, answer.remark)


async def test_users_and_policies(users: SigningPeer, taken: Counter[int]) -> None:
    async def change(code: int, fields: dict[str, str], body: bytes = b"") -> None:
        answer = await users.call(code, ROOT, fields, body)
        assert answer.code == 0, answer.remark

    async def update_user(**values: str) -> None:
        await change(RequestCode.AUTH_UPDATE_USER, {"username": "alice"}, json.dumps(values).encode())

    async def decide(decision: str, source: str | None = None) -> None:
        entry = PolicyEntryInfo("Topic:TopicTest", ["Pub"], None if source is None else [source], decision)
        info = AclInfo("User:alice", [PolicyInfo("Custom", [entry])])
        await change(RequestCode.AUTH_UPDATE_ACL, {"subject": "User:alice"}, encode_body(info))

    await become_known(users, ALICE, taken)
    await update_user(userStatus="disable")
    await refused(users, ALICE, "User:alice is disabled.")
    await update_user(userStatus="enable")
    await become_known(users, ALICE, taken)
    await update_user(password="another-secret")
    await refused(users, ALICE, "check signature failed.")
    alice = ("alice", "another-secret")
    await become_known(users, alice, taken)
    await decide("Deny")
    await refused(users, alice, "the decision is deny.")
    await decide("Allow")
    await become_known(users, alice, taken)
    await decide("Allow", "10.7.7.7")
    await refused(users, alice, "no matched policies.")
    await decide("Allow")
    await become_known(users, alice, taken)
    await change(RequestCode.AUTH_DELETE_ACL, {"subject": "User:alice"})
    await refused(users, alice, "no matched policies.")
    await decide("Allow")
    await become_known(users, alice, taken)
    await change(RequestCode.AUTH_DELETE_USER, {"username": "alice"})
    await refused(users, alice, "User:alice is not found.")


async def test_topics(users: SigningPeer, taken: Counter[int]) -> None:
    await become_known(users, ALICE, taken)
    answer = await send(users, ALICE, "Salaries")
    assert answer.code == 16 and "Topic:Salaries" in (answer.remark or "")
    for code in (RequestCode.DELETE_TOPIC_IN_BROKER, RequestCode.UPDATE_AND_CREATE_TOPIC):
        assert (await users.call(code, ROOT, _TOPIC)).code == 0
        if code == RequestCode.DELETE_TOPIC_IN_BROKER:
            await refused(users, ALICE, "topic[TopicTest] not exist")
    await become_known(users, ALICE, taken)


async def test_accounts_and_white_lists(accounts: SigningPeer, taken: Counter[int]) -> None:
    async def change(code: int, **fields: str) -> None:
        answer = await accounts.call(code, PLAIN_ROOT, fields)
        assert answer.code == 0, answer.remark

    async def update(secret: str, permission: str) -> None:
        fields = {"accessKey": "producer", "secretKey": secret, "topicPerms": f"TopicTest={permission}"}
        await change(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, **fields)

    await become_known(accounts, PRODUCER, taken)
    await update(PRODUCER[1], "SUB")
    await refused(accounts, PRODUCER, "No default permission for topic:TopicTest")
    await update("another-secret", "PUB")
    await refused(accounts, PRODUCER, "Check signature failed for accessKey=producer")
    producer = ("producer", "another-secret")
    await become_known(accounts, producer, taken)
    await change(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, globalWhiteAddrs="127.0.0.1")
    assert (await send(accounts, PRODUCER)).code == 0, "exempt"
    await change(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, globalWhiteAddrs="10.0.0.1")
    await refused(accounts, PRODUCER, "Check signature failed for accessKey=producer")
    await become_known(accounts, producer, taken)
    await change(RequestCode.DELETE_ACL_CONFIG, accessKey="producer")
    await refused(accounts, producer, "No acl config for producer")


async def test_a_lock_hides_which_guess_is_right(
    tmp_path: Path, has_kernel: bool, taken: Counter[int]
) -> None:
    """Of an account that the kernel has: by itself it would accept the right key among wrong ones."""
    keys = {**AUTH, "compiled_kernel_enable": has_kernel, "access_lockout_attempts": 5}
    async with guarded(tmp_path, **keys) as peer:
        await peer.create_user(ALICE)
        await peer.grant("alice", "Topic:TopicTest", "Pub")
        await become_known(peer, ALICE, taken)
        for number in range(5):
            assert (await send(peer, ("alice", f"guess-{number}"))).remark == "check signature failed."
        for guess in (("alice", "guess-5"), ALICE):
            await refused(peer, guess, "too many wrong logins from 127.0.0.1")
