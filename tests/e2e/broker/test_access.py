"""A real broker with access control: every code, both versions of accounts, changes while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kourou.access.model import RefusalKind
from kourou.broker.access import part
from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.protocol.bodies.acl import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from kourou.protocol.bodies.codec import encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.ext_fields import ext_fields_of
from kourou.protocol.headers.acl import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
)
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.names import RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC
from kourou.protocol.signature import ACCESS_KEY, SIGNATURE, SigningKeys, signature_of
from kourou.transport.addresses import parse_address
from tests.e2e.broker.broker_kit import SUBSCRIPTION, SUSPEND, Peer, running
from tests.e2e.broker.test_metrics import scrape
from tests.e2e.broker.transaction_kit import COMMIT, ROLLBACK, TransactionProducer, stored, until

pytestmark = pytest.mark.e2e

ROOT = ("root", "root-secret")
ALICE = ("alice", "alice-secret")
AUTH = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": '{"username":"root","password":"root-secret"}',
}
ACL = """\
accounts:
- accessKey: rocketroot
  secretKey: root-secret
  admin: true
- accessKey: producer
  secretKey: producer-secret
  topicPerms:
  - TopicTest=PUB
"""
PRODUCER = ("producer", "producer-secret")
Keys = tuple[str, str]


def send_header(topic: str) -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2(
        producer_group="p",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
    )


class SigningPeer:
    """Signs as clients do."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    async def call(
        self, code: int, keys: Keys | None, fields: dict[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        fields = dict(fields or {})
        if keys is not None:
            fields[ACCESS_KEY] = keys[0]
            fields[SIGNATURE] = signature_of(fields, body, keys[1])
        command = RemotingCommand(int(code), ext_fields=fields, body=body)
        return await self.peer.client.call(self.peer.controller.address, command, 5_000)

    async def send(self, keys: Keys | None, topic: str = "TopicTest") -> RemotingCommand:
        return await self.call(RequestCode.SEND_MESSAGE_V2, keys, ext_fields_of(send_header(topic)), b"hello")

    async def create_user(self, keys: Keys) -> None:
        header, info = CreateUserRequestHeader(username=keys[0]), UserInfo(keys[0], keys[1])
        answer = await self.call(RequestCode.AUTH_CREATE_USER, ROOT, ext_fields_of(header), encode_body(info))
        assert answer.code == 0, answer.remark

    async def grant(self, user: str, resource: str, *actions: str) -> None:
        header = CreateAclRequestHeader(subject=f"User:{user}")
        entry = PolicyEntryInfo(resource, list(actions), None, "Allow")
        info = AclInfo(f"User:{user}", [PolicyInfo("Custom", [entry])])
        answer = await self.call(RequestCode.AUTH_CREATE_ACL, ROOT, ext_fields_of(header), encode_body(info))
        assert answer.code == 0, answer.remark


@contextlib.asynccontextmanager
async def guarded(root: Path, **keys: Any) -> AsyncIterator[SigningPeer]:
    async with running(root, **keys) as peer:
        yield SigningPeer(peer)


async def test_every_code_is_refused_unsigned(tmp_path: Path) -> None:
    async with guarded(tmp_path, **AUTH) as peer:
        for code in [*map(int, RequestCode), 9_999]:
            answer = await peer.call(code, None, {"topic": "T", "b": "T"})
            assert (answer.code, answer.remark) == (16, "username cannot be null."), code


async def test_a_user_without_permissions_may_do_nothing_but_look_for_features(tmp_path: Path) -> None:
    """Requests without an entry, and those that RocketMQ leaves open to every account."""
    open_to_all = {
        RequestCode.GET_KOUROU_FEATURES,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        # Without a consumer group, a topic, a name these concern nobody else.
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.END_TRANSACTION,
        RequestCode.OPEN_KOUROU_PRODUCER,
    }
    async with guarded(tmp_path, **AUTH) as peer:
        await peer.create_user(ALICE)
        for code in {*map(int, RequestCode), 9_999} - open_to_all:
            answer = await peer.call(code, ALICE, {"topic": "T", "b": "T", "group": "g"})
            assert answer.code in (16, 1), (code, answer.code, answer.remark)
            assert "not supported" not in (answer.remark or ""), code


async def test_users_and_policies_act_at_once(tmp_path: Path) -> None:
    async with guarded(tmp_path, **AUTH) as peer:
        assert (await peer.send(ALICE)).remark == "User:alice is not found."
        await peer.create_user(ALICE)
        refused = await peer.send(ALICE)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert refused.remark == (
            "User:alice has no permission to access Topic:TopicTest from 127.0.0.1, no matched policies."
        )
        await peer.grant("alice", "Topic:TopicTest", "Pub")
        assert (await peer.send(ALICE)).code == 0
        assert (await peer.send(None)).remark == "username cannot be null."
        assert (await peer.send(("alice", "wrong"))).remark == "check signature failed."
        # By the kernel's fast path, where there is one: it is as strict, and follows changes at once.
        for _ in range(10):
            assert (await peer.send(ALICE)).code == 0
        assert (await peer.send(("alice", "wrong"))).remark == "check signature failed."
        assert "Topic:other" in ((await peer.send(ALICE, "other")).remark or "")
        deleted = await peer.call(RequestCode.AUTH_DELETE_ACL, ROOT, {"subject": "User:alice"})
        assert deleted.code == 0
        assert "no matched policies" in ((await peer.send(ALICE)).remark or "")


async def test_a_held_pull_is_refused_when_its_permission_is_gone(tmp_path: Path) -> None:
    async with guarded(tmp_path, **AUTH) as peer:
        await peer.create_user(ALICE)
        await peer.grant("alice", "Topic:TopicTest", "Sub")
        await peer.grant("alice", "Group:g", "Sub")
        assert (await peer.send(ROOT)).code == 0
        fields = {
            "consumerGroup": "g",
            "topic": "TopicTest",
            "queueId": "0",
            "queueOffset": "1",
            "maxMsgNums": "32",
            "sysFlag": str(SUSPEND | SUBSCRIPTION),
            "commitOffset": "0",
            "suspendTimeoutMillis": "15000",
            "subscription": "*",
            "subVersion": "0",
        }
        held = asyncio.ensure_future(peer.call(RequestCode.PULL_MESSAGE, ALICE, fields))
        await peer.peer.until_held(1)
        deleted = await peer.call(RequestCode.AUTH_DELETE_ACL, ROOT, {"subject": "User:alice"})
        assert deleted.code == 0
        assert (await peer.send(ROOT)).code == 0
        answer = await held
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "no matched policies" in (answer.remark or "")


async def test_accounts_of_rocketmq_4(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACL)
    async with guarded(tmp_path, acl_enable=True, rocketmq_home=str(tmp_path)) as peer:
        assert (await peer.send(PRODUCER)).code == 0
        refused = await peer.send(PRODUCER, "other")
        assert refused.code == 1
        assert "No default permission for topic:other" in (refused.remark or "")
        assert "No accessKey is configured" in ((await peer.send(None)).remark or "")
        unknown = await peer.call(9_999, PRODUCER)
        assert "Need admin permission for request code=9999" in (unknown.remark or "")


async def test_wrong_logins_are_locked_out_and_others_served(tmp_path: Path) -> None:
    async with guarded(tmp_path, **AUTH, access_lockout_attempts=5) as peer:
        await peer.create_user(ALICE)
        remarks = [(await peer.send(("alice", "guess"))).remark for _ in range(6)]
        assert remarks[4] == "check signature failed."
        assert "too many wrong logins from 127.0.0.1" in (remarks[5] or "")
        assert (await peer.send(ROOT)).code == 0


async def test_limits_are_followed_while_the_broker_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part, "RELOAD_S", 0.02)
    (tmp_path / "conf").mkdir()
    limits = tmp_path / "conf" / "limits.json"
    async with guarded(tmp_path, **AUTH, rocketmq_home=str(tmp_path)) as peer:
        await peer.create_user(ALICE)
        await peer.grant("alice", "Topic:TopicTest", "Pub")
        assert (await peer.send(ALICE)).code == 0
        limits.write_text('{"alice": {"producedBytesPerSecond": 1}}')
        remarks: list[str] = []
        while not remarks or "over its limit" not in remarks[-1]:
            answer = await peer.send(ALICE)
            remarks.append(answer.remark or "")
            await asyncio.sleep(0.01)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "more than 1 bytes are sent per second, wait" in remarks[-1]
        assert (await peer.send(ROOT)).code == 0


async def test_queries_count_as_pulls_and_refusals_as_a_metric(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "limits.json").write_text('{"alice": {"consumedBytesPerSecond": 1}}')
    async with guarded(tmp_path, **AUTH, rocketmq_home=str(tmp_path), http_port=0) as peer:
        await peer.create_user(ALICE)
        await peer.grant("alice", "Topic:TopicTest", "Pub", "Get", "Sub")
        sent = (await peer.send(ALICE)).ext_fields or {}
        offset = str(int(sent["msgId"][16:], 16))
        view = (RequestCode.VIEW_MESSAGE_BY_ID, {"topic": "TopicTest", "offset": offset})
        query = (RequestCode.QUERY_MESSAGE, {"topic": "TopicTest", "key": "k", "maxNum": "1"})
        query[1].update(beginTimestamp="0", endTimestamp="9999999999999")
        assert b"hello" in (await peer.call(view[0], ALICE, view[1])).body
        for code, fields in (view, query):
            refused = await peer.call(code, ALICE, fields)
            assert refused.code == ResponseCode.SYSTEM_BUSY, refused.remark
            assert "more than 1 bytes are pulled per second" in (refused.remark or "")
        assert (await peer.send(None)).code == 16
        found = await scrape(peer.peer.controller)
        counts = {
            kind: found.value("kourou_access_refusals_total", kind=kind.name.lower()) for kind in RefusalKind
        }
        expected = {RefusalKind.OVER_QUOTA: 2, RefusalKind.NO_CREDENTIALS: 1}
        assert counts == {kind: expected.get(kind, 0) for kind in RefusalKind}


@pytest.mark.parametrize("code", [RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE])
@pytest.mark.parametrize("limit", ["consumedMessagesPerSecond", "consumedBytesPerSecond"])
async def test_pops_and_peeks_count_as_pulls(tmp_path: Path, code: int, limit: str) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "limits.json").write_text(json.dumps({"alice": {limit: 1}}))
    async with guarded(tmp_path, **AUTH, rocketmq_home=str(tmp_path)) as peer:
        await peer.create_user(ALICE)
        await peer.grant("alice", "Topic:TopicTest", "Sub")
        await peer.grant("alice", "Group:g", "Sub")
        for _ in range(5):
            assert (await peer.send(ROOT)).code == 0
        fields = {"topic": "TopicTest", "consumerGroup": "g", "queueId": "0", "maxMsgNums": "5"}
        if code == RequestCode.POP_MESSAGE:
            fields |= {"invisibleTime": "60000", "pollTime": "0", "bornTime": "0", "initMode": "0"}
        found = await peer.call(code, ALICE, fields)
        assert (found.code, found.body.count(b"hello")) == (0, 5), found.remark
        refused = await peer.call(code, ALICE, fields)
        assert refused.code == ResponseCode.SYSTEM_BUSY, refused.remark
        kind = "messages" if "Messages" in limit else "bytes"
        assert f"more than 1 {kind} are pulled per second, wait" in (refused.remark or "")
        assert (await peer.call(code, ROOT, fields)).code != ResponseCode.SYSTEM_BUSY


async def test_replies_do_not_publish_to_other_topics(tmp_path: Path) -> None:
    async with guarded(tmp_path, **AUTH) as peer:
        await peer.create_user(ALICE)
        await peer.grant("alice", "Topic:*", "Pub")
        remarks = []
        for topic in ("TopicTest", "DefaultCluster_REPLY_TOPIC"):
            fields = ext_fields_of(send_header(topic))
            answer = await peer.call(RequestCode.SEND_REPLY_MESSAGE_V2, ALICE, fields, b"hello")
            remarks.append(answer.remark or "")
        assert "Topic:TopicTest is no topic for replies" in remarks[0]
        assert "REPLY_TO_CLIENT" in remarks[1], "admitted, but there is no requester"


@pytest.mark.parametrize("has_kernel", [True, False])
async def test_no_account_sends_as_the_producer_of_another(tmp_path: Path, has_kernel: bool) -> None:
    """Consumers see ids; messages of the owner would be taken for repeats of those of the other, and lost."""
    bob = ("bob", "bob-secret")
    async with guarded(tmp_path, **AUTH, compiled_kernel_enable=has_kernel) as peer:
        for keys in (ALICE, bob):
            await peer.create_user(keys)
            await peer.grant(keys[0], "Topic:TopicTest", "Pub")
        await peer.grant("alice", "Group:loader", "Pub")

        async def opened(**fields: str) -> str:
            answer = await peer.call(
                RequestCode.OPEN_KOUROU_PRODUCER, ALICE, {"producerGroup": "p", **fields}
            )
            found = answer.ext_fields or {}
            return f"{found['kourouProducerId']}:{found['kourouEpoch']}"

        async def put(keys: Keys, identity: str, sequence: int, *, is_batch: bool = False) -> RemotingCommand:
            text = f"UNIQ_KEY\x01K{sequence}\x02__KOUROU_SEQ\x01{identity}:{sequence}\x02"
            fields = ext_fields_of(send_header("TopicTest")) | {"kourouSequenced": "true", "i": text}
            if not is_batch:
                return await peer.call(RequestCode.SEND_MESSAGE_V2, keys, fields, b"x")
            body = encode_batch_entries([BatchEntry(0, b"x", text.encode())])
            fields |= {"m": "true", "i": ""}
            return await peer.call(RequestCode.SEND_BATCH_MESSAGE, keys, fields, body)

        for identity in (await opened(), await opened(kourouName="loader")):
            for sequence in range(3):
                assert (await put(ALICE, identity, sequence)).code == 0
            for is_batch in (False, True):
                refused = await put(bob, identity, 3, is_batch=is_batch)
                assert refused.code == 16, refused.remark
                words = "Group:loader" if identity.startswith("@") else "opened by another account"
                assert words in (refused.remark or "")
            stored = [await put(ALICE, identity, 3), await put(ALICE, identity, 4, is_batch=True)]
            for answer in stored:
                assert answer.code == 0 and "kourouMsgIds" not in (answer.ext_fields or {})
        header = DeleteAclRequestHeader(subject="User:alice", policy_type="Custom", resource="Group:loader")
        assert (await peer.call(RequestCode.AUTH_DELETE_ACL, ROOT, ext_fields_of(header))).code == 0
        assert (await put(ALICE, identity, 5)).code == 16, "at once"


async def test_refusals_and_administration_are_in_the_audit_log(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    async with guarded(tmp_path, **AUTH, access_audit_log_path=str(log)) as peer:
        await peer.create_user(ALICE)
        for _ in range(3):
            assert (await peer.send(ALICE)).code == 16
    text = log.read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    made, refused, repeated = lines
    assert (made["event"], made["user"], made["request"]) == ("admin", "root", "AUTH_CREATE_USER")
    assert (made["resource"], made["outcome"]) == ("username=alice", 0)
    assert (refused["event"], refused["user"], refused["resource"]) == ("refused", "alice", "Topic:TopicTest")
    assert repeated["count"] == 2
    assert "secret" not in text


async def test_messages_found_by_offset_are_checked_by_their_topic(tmp_path: Path) -> None:
    async with guarded(tmp_path, **AUTH) as peer:
        await peer.create_user(ALICE)
        for resource, actions in (("Topic:mine", ("Pub", "Sub", "Get")), ("Group:g", ("Sub",))):
            await peer.grant("alice", resource, *actions)
        sent = await peer.send(ROOT, "secret-topic")
        assert sent.code == 0, sent.remark
        offset = str(int((sent.ext_fields or {})["msgId"][16:], 16))
        for code, fields in (
            (RequestCode.VIEW_MESSAGE_BY_ID, {"topic": "mine", "offset": offset}),
            (
                RequestCode.CONSUMER_SEND_MSG_BACK,
                {"offset": offset, "group": "g", "delayLevel": "0", "originTopic": "mine"},
            ),
        ):
            refused = await peer.call(code, ALICE, fields)
            assert refused.code == 16, (code, refused.remark)
            assert "Topic:secret-topic" in (refused.remark or "")
            assert (await peer.call(code, ROOT, fields)).code == 0


async def test_who_may_not_send_to_a_topic_neither_sees_nor_ends_its_transactions(tmp_path: Path) -> None:
    """Producer groups are joined freely, and a check shows the message; an end need not name the topic."""
    soon = {"transaction_check_interval": 30, "transaction_time_out": 30}
    async with guarded(tmp_path, **AUTH, **soon) as peer:
        await peer.create_user(ALICE)
        assert (await peer.send(ROOT)).code == 0
        address = peer.peer.controller.address
        root = TransactionProducer(address, "root", keys=SigningKeys(*ROOT))
        spy = TransactionProducer(address, "spy", keys=SigningKeys(*ALICE))
        try:
            await spy.heartbeat()
            half = await root.half(b"paid")
            refused = await spy.end(half, ROLLBACK)
            assert refused.code == ResponseCode.NO_PERMISSION
            assert "Topic:TopicTest" in (refused.remark or "")
            await asyncio.sleep(0.3)
            await root.heartbeat()
            check = await root.next_check()
            assert check.message.body == b"paid"
            assert spy.checks.empty()
            assert (await root.end(check.half, COMMIT)).code == 0
        finally:
            await spy.client.stop()
            await root.client.stop()


async def test_a_half_message_is_resumed_by_those_who_may_send_to_its_topic(tmp_path: Path) -> None:
    """The topic of the request was checked, not that of the message."""
    soon = {"transaction_check_interval": 30, "transaction_time_out": 30, "transaction_check_max": 1}
    async with guarded(tmp_path, **AUTH, **soon) as peer:
        await peer.create_user(ALICE)
        await peer.grant("alice", "Topic:mine", "Update", "Pub")
        assert (await peer.send(ROOT)).code == 0
        controller = peer.peer.controller
        root = TransactionProducer(controller.address, "root", keys=SigningKeys(*ROOT))
        try:
            await root.heartbeat()
            await root.half(b"paid")
            await until(lambda: bool(stored(controller, RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC)), "given up")
            (given_up,) = stored(controller, RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC)
            fields = {"topic": "mine", "msgId": given_up.offset_msg_id}
            refused = await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, ALICE, fields)
            assert refused.code == ResponseCode.NO_PERMISSION
            assert "Topic:TopicTest" in (refused.remark or "")
            assert (await peer.call(RequestCode.RESUME_CHECK_HALF_MESSAGE, ROOT, fields)).code == 0
        finally:
            await root.client.stop()


async def test_a_flood_of_wrong_logins_locks_its_address_out_and_leaves_others_served(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    async with guarded(tmp_path, **AUTH, access_audit_log_path=str(log)) as peer:
        host, port = parse_address(peer.peer.controller.address)
        reader, writer = await asyncio.open_connection(host, port, local_addr=("127.0.0.2", 0))
        remarks: list[str] = []
        for begin in range(0, 1_500, 300):
            wrong = [peer.send((f"user{number}", "guess")) for number in range(begin, begin + 300)]
            remarks += [answer.remark or "" for answer in await asyncio.gather(*wrong)]
            fields = ext_fields_of(send_header("TopicTest"))
            SigningKeys(*ROOT).sign(fields, b"good")
            command = RemotingCommand(RequestCode.SEND_MESSAGE_V2, ext_fields=fields, body=b"good")
            writer.write(command.encode())
            size = int.from_bytes(await reader.readexactly(4), "big")
            assert b'"code":0' in await reader.readexactly(size)
        writer.close()
        assert "is not found" in remarks[0]
        assert sum("too many wrong logins from 127.0.0.1" in remark for remark in remarks) == 1_300
    assert len(log.read_text().splitlines()) < 1_000


async def test_no_request_switches_access_control_off(tmp_path: Path) -> None:
    async with guarded(tmp_path, **AUTH) as peer:
        for line in (b"authenticationEnabled=false", b"accessOpenConfig=true", b"rocketmqHome=/tmp"):
            answer = await peer.call(RequestCode.UPDATE_BROKER_CONFIG, ROOT, {}, line)
            assert (answer.code, answer.remark) == (16, "Can not update config in black list.")
        shown = await peer.call(RequestCode.GET_BROKER_CONFIG, ROOT)
        assert b"authenticationEnabled=true" in shown.body
        assert b"root-secret" not in shown.body


async def test_a_broker_without_users_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with guarded(tmp_path, authentication_enabled=True) as peer:
        assert (await peer.send(ALICE)).code == 16
    assert "there are no users, so every request is refused: set initAuthenticationUser" in caplog.text
    caplog.clear()
    async with guarded(tmp_path, **AUTH):
        pass
    assert "there are no users" not in caplog.text
