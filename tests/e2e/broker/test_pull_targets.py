"""What a broker remembers of pulls: a change of permissions, topics, groups and subscriptions takes effect
with the very next pull."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kourou.broker.pull import pull_targets
from kourou.broker.pull.pull_targets import PullTargets
from kourou.broker.services import BrokerServices
from kourou.protocol.bodies import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    encode_body,
)
from kourou.protocol.codes import PermName, PullSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.clients import UnregisterClientRequestHeader
from kourou.store.kernel import choose_kernel
from tests.e2e.broker.broker_kit import SUBSCRIPTION, Peer, messages, running

pytestmark = pytest.mark.e2e

READ, WRITE = PermName.READ.value, PermName.WRITE.value
BY_HEARTBEAT = 0


@pytest.fixture
def decided(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The topics of pulls for which nothing was remembered."""
    made: list[str] = []
    decide = PullTargets._decide

    def spied(targets: PullTargets, request: object, header: object) -> object:
        made.append(header.topic)  # type: ignore[attr-defined]
        return decide(targets, request, header)  # type: ignore[arg-type]

    monkeypatch.setattr(PullTargets, "_decide", spied)
    return made


def bodies(answer: RemotingCommand) -> list[bytes]:
    return [message.body for message in messages(answer)]


async def send_tagged(peer: Peer) -> None:
    for tag in ("a", "b"):
        await peer.send(body=tag.encode(), properties=f"TAGS\x01{tag}\x02")


async def subscribe(
    peer: Peer,
    tags: str = "*",
    *,
    version: int = 1,
    topic: str = "TopicTest",
    model: MessageModel = MessageModel.CLUSTERING,
    tags_set: list[str] | None = None,
) -> None:
    data = ConsumerData(
        group_name="consumers",
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=model,
        subscription_data_set=[SubscriptionData(topic, tags, tags_set or [], sub_version=version)],
    )
    body = encode_body(HeartbeatData(client_id="c", consumer_data_set=[data]))
    assert (await peer.call(RequestCode.HEART_BEAT, body=body)).code == 0


def forbid_broker(services: BrokerServices) -> None:
    services.update_config({"brokerPermission": str(WRITE)})


def stop_group(services: BrokerServices) -> None:
    services.groups.update(SubscriptionGroupConfig(group_name="consumers", consume_enable=False))


def forbid_group(services: BrokerServices) -> None:
    services.groups.update_forbidden("consumers", "TopicTest", READ, is_forbidden=True)


def delete_group(services: BrokerServices) -> None:
    services.groups.delete("consumers")


def forbid_topic(services: BrokerServices) -> None:
    services.topics.update(TopicConfig(topic_name="TopicTest", perm=WRITE))


def delete_topic(services: BrokerServices) -> None:
    services.topics.delete("TopicTest")


def take_queues_away(services: BrokerServices) -> None:
    services.topics.update(TopicConfig(topic_name="TopicTest", read_queue_nums=0))


@pytest.mark.parametrize("sys_flag", [SUBSCRIPTION, BY_HEARTBEAT])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (forbid_broker, ResponseCode.NO_PERMISSION),
        (stop_group, ResponseCode.NO_PERMISSION),
        (forbid_group, ResponseCode.NO_PERMISSION),
        (delete_group, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        (forbid_topic, ResponseCode.NO_PERMISSION),
        (delete_topic, ResponseCode.TOPIC_NOT_EXIST),
        (take_queues_away, ResponseCode.INVALID_PARAMETER),
    ],
)
async def test_what_is_no_longer_allowed_is_refused_at_once(
    tmp_path: Path,
    decided: list[str],
    change: Callable[[BrokerServices], None],
    code: ResponseCode,
    sys_flag: int,
) -> None:
    async with running(tmp_path, auto_create_subscription_group=False) as peer:
        peer.controller.services.groups.update(SubscriptionGroupConfig(group_name="consumers"))
        await send_tagged(peer)
        await subscribe(peer)
        for _ in range(3):
            assert bodies(await peer.pull(sys_flag=sys_flag)) == [b"a", b"b"]
        assert decided == ["TopicTest"], "the others were remembered"
        change(peer.controller.services)
        assert (await peer.pull(sys_flag=sys_flag)).code == code


async def test_a_queue_that_is_not_there_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_tagged(peer)
        await peer.pull()
        for queue_id in (-1, 4):
            assert (await peer.pull(queue_id=queue_id)).code == ResponseCode.INVALID_PARAMETER


async def test_an_expression_counts_for_its_own_pull(tmp_path: Path, decided: list[str]) -> None:
    async with running(tmp_path) as peer:
        await send_tagged(peer)
        for expression, wanted in (("*", [b"a", b"b"]), ("a", [b"a"]), ("b", [b"b"]), ("*", [b"a", b"b"])):
            for _ in range(2):
                assert bodies(await peer.pull(subscription=expression)) == wanted
        # The kernel, if it is in use, remembers each expression of a connection.
        assert len(decided) == (4 if choose_kernel().kernel is None else 3)
        refused = await peer.pull(subscription="*", expression_type="NONE")
        assert refused.code != 0
        refused = await peer.pull(sys_flag=SUBSCRIPTION | PullSysFlag.CLASS_FILTER.value)
        assert refused.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


async def test_what_a_pull_says_and_what_heartbeats_say_are_not_mixed_up(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_tagged(peer)
        await subscribe(peer, "a")
        for _ in range(2):
            assert bodies(await peer.pull(subscription="*")) == [b"a", b"b"]
            assert bodies(await peer.pull(subscription="*", sys_flag=BY_HEARTBEAT)) == [b"a"]


async def test_a_new_subscription_counts_from_the_heartbeat_on(tmp_path: Path, decided: list[str]) -> None:
    async with running(tmp_path) as peer:
        await send_tagged(peer)
        await subscribe(peer, "a")
        for _ in range(2):
            assert bodies(await peer.pull(sys_flag=BY_HEARTBEAT)) == [b"a"]
        await subscribe(peer, "b", version=2)
        for _ in range(2):
            assert bodies(await peer.pull(sys_flag=BY_HEARTBEAT)) == [b"b"]
        assert len(decided) == 2
        late = await peer.pull(sys_flag=BY_HEARTBEAT, sub_version=3)
        assert late.code == ResponseCode.SUBSCRIPTION_NOT_LATEST


async def test_each_member_gets_what_it_wants_itself(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_tagged(peer)
        await subscribe(peer, "a")
        other = Peer(peer.controller)
        await subscribe(other, "b", version=2)
        for _ in range(2):
            assert bodies(await other.pull(sys_flag=BY_HEARTBEAT)) == [b"b"]
            assert bodies(await peer.pull(sys_flag=BY_HEARTBEAT)) == [b"a"]
        await other.client.stop()


async def test_who_no_longer_subscribes_or_has_left_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_tagged(peer)
        await subscribe(peer)
        assert (await peer.pull(sys_flag=BY_HEARTBEAT)).code == 0
        await subscribe(peer, topic="Other", version=2)
        assert (await peer.pull(sys_flag=BY_HEARTBEAT)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        await subscribe(peer, version=3)
        assert (await peer.pull(sys_flag=BY_HEARTBEAT)).code == 0
        leaving = UnregisterClientRequestHeader(client_id="c", consumer_group="consumers")
        await peer.call(RequestCode.UNREGISTER_CLIENT, leaving)
        assert (await peer.pull(sys_flag=BY_HEARTBEAT)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_a_group_that_begins_to_broadcast_without_leave_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_tagged(peer)
        peer.controller.services.groups.update(
            SubscriptionGroupConfig(group_name="consumers", consume_broadcast_enable=False)
        )
        await subscribe(peer)
        for _ in range(2):
            assert (await peer.pull(sys_flag=BY_HEARTBEAT)).code == 0
        await subscribe(peer, model=MessageModel.BROADCASTING)
        assert (await peer.pull(sys_flag=BY_HEARTBEAT)).code == ResponseCode.NO_PERMISSION


async def test_a_reset_reaches_a_cached_pull_target(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_tagged(peer)
        await peer.pull()
        peer.controller.services.offsets.assign_reset("TopicTest", "consumers", 0, 1)
        assert (await peer.pull()).code == ResponseCode.PULL_OFFSET_MOVED
        assert (await peer.pull()).code == 0


async def test_a_topic_made_again_starts_over(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_tagged(peer)
        await peer.pull()
        services = peer.controller.services
        services.topics.delete("TopicTest")
        services.store.queues.delete_topic("TopicTest")
        await peer.send(body=b"new")
        assert bodies(await peer.pull()) == [b"new"]


async def test_long_lists_of_tags_and_filters_by_property_are_decided_each_time(
    tmp_path: Path, decided: list[str]
) -> None:
    async with running(tmp_path, enable_property_filter=True) as peer:
        await send_tagged(peer)
        for _ in range(2):
            many = " || ".join(["a", *(f"t{number}" for number in range(20))])
            assert bodies(await peer.pull(subscription=many)) == [b"a"]
            sql = await peer.pull(subscription="TAGS = 'b'", expression_type="SQL92")
            assert bodies(sql) == [b"b"]
        assert len(decided) == 4


@pytest.mark.parametrize("tags_set", [["t"] * 9, ["t" * 300]])
async def test_of_a_client_that_said_much_nothing_is_kept(
    tmp_path: Path, decided: list[str], tags_set: list[str]
) -> None:
    async with running(tmp_path) as peer:
        await send_tagged(peer)
        await subscribe(peer, tags_set=tags_set)
        for _ in range(2):
            assert bodies(await peer.pull(sys_flag=BY_HEARTBEAT)) == [b"a", b"b"]
        assert len(decided) == 2


async def test_few_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_targets, "MAX_KNOWN", 2)
    found: list[PullTargets] = []
    find = PullTargets.find

    def spied(targets: PullTargets, request: object, header: object) -> object:
        found.append(targets)
        return find(targets, request, header)  # type: ignore[arg-type]

    monkeypatch.setattr(PullTargets, "find", spied)
    async with running(tmp_path) as peer:
        await send_tagged(peer)
        for number in range(5):
            assert bodies(await peer.pull(consumer_group=f"group-{number}")) == [b"a", b"b"]
            assert len(found[-1]) <= 2
