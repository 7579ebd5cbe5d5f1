"""answer_pulls: with the kernel a broker answers pulls, byte for byte, as it does without."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.broker.admission import RequestCheck
from kourou.broker.connection_state import ConnectionState
from kourou.broker.groups.producers import ClientChannel
from kourou.broker.pull.cold_pulls import SENDING_S
from kourou.broker.pull.cold_read_share import MAX_DEBT_S, ColdReadShare
from kourou.errors import RequestError
from kourou.protocol.bodies import ConsumerData, SubscriptionData
from kourou.protocol.codes import LanguageCode, RequestCode, ResponseCode
from kourou.protocol.header_binary import encode_binary_head
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.store.kernel import pull_numbers
from kourou.store.log.commit_log import CommitLog
from kourou.store.queue.consume_queue import ConsumeQueue
from tests.golden.frames import VERSIONS
from tests.integration.kernel.kernel_kit import FedBroker, install
from tests.integration.kernel.test_sends_end import LIMIT
from tests.integration.kernel.twins import ID, Twins, frame, recorded_requests, send, started

MESSAGES = 100
ORDINARY: dict[str, Any] = {
    "consumerGroup": "readers",
    "topic": "TopicTest",
    "queueId": "0",
    "queueOffset": "3",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
}


def pull(fields: dict[str, Any] | None = None, **head: Any) -> bytes:
    """The header of a pull, with what is given instead of what is ordinary; None takes a field out."""
    ext = {name: value for name, value in {**ORDINARY, **(fields or {})}.items() if value is not None}
    whole = {
        "code": 11,
        "extFields": ext,
        "flag": 0,
        "language": "JAVA",
        "opaque": 7,
        "serializeTypeCurrentRPC": "JSON",
        "version": 501,
        **head,
    }
    return json.dumps(whole, separators=(",", ":")).encode()


def binary_pull(fields: dict[str, str | None] | None = None, *, opaque: int = 7, flag: int = 0) -> bytes:
    """The same with a binary header, as a frame."""
    ext = {name: value for name, value in {**ORDINARY, **(fields or {})}.items() if value is not None}
    return frame(encode_binary_head(11, 0, 501, opaque, flag, None, ext), b"", 1)


def pulls(fields: dict[str, Any] | None = None, **head: Any) -> bytes:
    """The same in JSON."""
    return frame(pull(fields, **head), b"")


@pytest.fixture(scope="module")
def readers(kernel: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twins]:
    """Two brokers with the same messages of 0 to 99 bytes in two queues; the group is known."""
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        install(kernel, patch)
        stack = AsyncExitStack()
        # Units stay in memory: while they are flushed, pulls may have to wait for the disk.
        twins = started(
            runner, stack, tmp_path_factory.mktemp("readers"), flush_interval_consume_queue=3_600_000
        )
        for queue_id in ("0", "1"):
            for n in range(MESSAGES):
                tags = f"UNIQ_KEY\x01{ID}\x02TAGS\x01Tag{n % 3}\x02"
                twins.feed(frame(send({"e": queue_id, "i": tags}), bytes(n)))
        twins.feed(pulls())
        yield twins
        assert_same_records(twins)
        runner.run(stack.aclose())


def assert_same_records(twins: Twins) -> None:
    """Offsets and statistics are the same."""
    first, second = (broker.services for broker in twins.brokers)
    assert first.offsets.offset_table == second.offsets.offset_table
    assert first.offsets._given == second.offsets._given
    assert first.stats.rates.get_nums == second.stats.rates.get_nums
    assert first.stats.rates.get_found == second.stats.rates.get_found
    gets = [
        {key: (item.times, item.nums, item.size_bytes) for key, item in services.stats._group_gets.items()}
        for services in (first, second)
    ]
    assert gets[0] == gets[1]


def pulled(twins: Twins, data: bytes) -> int:
    """How many pulls the kernel answers of these."""
    before = twins.brokers[0].pulled
    twins.feed(data)
    return twins.brokers[0].pulled - before


def setup(
    *,
    json: bytes = b"%d" * 6,
    binary: bytes = bytes(21) + b"%d" * 5,
    numbers: bytes | None = None,
    find_target: Any = print,
    reader: Any = None,
) -> tuple[Any, ...]:
    """What pulls of a broker without topics share."""
    limits = 1, 1, 1, 1, 1, 1
    sizes = {"max_filter_units": 1, "run_bytes": 1, "region_bytes": 1, "block_units": 1, "chunk_units": 1}
    numbers = pull_numbers(limits, limits, **sizes) if numbers is None else numbers
    return json, binary, numbers, {}, {}, [], find_target, print, print, reader


# -- what is answered ---------------------------------------------------------------------------------


def test_ordinary_pulls_are_answered(readers: Twins) -> None:
    data = b"".join(pulls({"queueOffset": str(n), "queueId": str(n % 2)}, opaque=n) for n in range(40))
    before = readers.brokers[0].pulled
    answers = readers.feed(data)
    assert readers.brokers[0].pulled - before == 40
    assert [f'"opaque":{n},"remark":"FOUND"'.encode() in answers for n in range(40)] == [True] * 40


def test_pulls_with_a_binary_header_are_answered(readers: Twins) -> None:
    data = b"".join(binary_pull({"queueOffset": str(n)}, opaque=-n) for n in range(20))
    assert pulled(readers, data + pulls() + binary_pull()) == 22


@pytest.mark.parametrize(
    "fields",
    [
        {"queueOffset": "0"},
        {"queueOffset": str(MESSAGES - 1)},
        {"maxMsgNums": "1"},
        {"maxMsgNums": "2147483647"},
        {"maxMsgBytes": "1"},
        {"maxMsgBytes": "0"},
        {"maxMsgBytes": "-1"},
        {"maxMsgBytes": "1000"},
        {"sysFlag": "5", "commitOffset": "17"},
        {"sysFlag": "7", "commitOffset": "3"},
        {"sysFlag": "6"},
        {"kourouLargePull": "true", "maxMsgNums": "1024"},
        {"kourouLargePull": "false", "maxMsgNums": "1024"},
        {"requestSource": "1", "proxyFrowardClientId": "me", "bname": "broker-a"},
        {"suspendTimeoutMillis": "-1"},
        {"subVersion": "1700000000000"},
    ],
    ids=str,
)
def test_limits_and_flags_are_those_of_python(readers: Twins, fields: dict[str, Any]) -> None:
    assert pulled(readers, pulls(fields) + pulls(fields) + binary_pull(fields)) == 3


@pytest.mark.parametrize(
    "key",
    ["maxTransferCountOnMessageInMemory", "maxTransferBytesOnMessageInMemory"],
)
@pytest.mark.parametrize("limit", ["1", "5", "700", "1000000"])
def test_a_changed_limit_holds_at_once(readers: Twins, key: str, limit: str) -> None:
    was = {"maxTransferCountOnMessageInMemory": "32", "maxTransferBytesOnMessageInMemory": "262144"}
    for broker in readers.brokers:
        broker.services.update_config({key: limit})
    try:
        readers.feed(pulls({"maxMsgNums": "100"}))  # decides anew
        assert pulled(readers, pulls({"maxMsgNums": "100"}) * 2) == 2
    finally:
        for broker in readers.brokers:
            broker.services.update_config(was)
        readers.feed(pulls())


def test_a_slow_consumer_is_sent_to_a_slave(readers: Twins) -> None:
    """Only where slaves are read from; both ways say so in the answer."""
    change = {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"}
    for broker in readers.brokers:
        broker.services.update_config(change)
    try:
        readers.feed(pulls())
        answer = readers.feed(pulls())
        assert b'"suggestWhichBrokerId":"1"' in answer
        assert pulled(readers, pulls() + binary_pull()) == 2
    finally:
        for broker in readers.brokers:
            broker.services.update_config({"slaveReadEnable": "false", "accessMessageInMemoryMaxRatio": "40"})
        readers.feed(pulls())


@pytest.mark.parametrize("version", VERSIONS)
def test_pulls_of_java_clients_are_understood(kernel: ModuleType, version: str) -> None:
    asked: list[str] = []

    def find_target(connection: object, key: bytes, topic: str, *_: Any) -> None:
        assert connection is None and topic.encode() in key
        asked.append(topic)

    requests = [data for data in recorded_requests(version, 11) if b'"language":"JAVA"' in data]
    for data in requests:
        end = kernel.pulls_end(data, 0, LIMIT)
        assert end == len(data)
        kernel.answer_pulls(None, {}, data, 0, end, -1, setup(find_target=find_target), 0, 1)
    assert len(asked) == len(requests)


def test_every_field_of_a_pull_is_read(readers: Twins) -> None:
    """Each is known by its name: a second one of it needs the slow path."""
    for name in msgspec.structs.fields(PullMessageRequestHeader):
        field = name.encode_name
        value = str(ORDINARY.get(field, "true" if field == "kourouLargePull" else "1"))
        twice = pulls({field: value}).replace(
            f'"{field}":"{value}"'.encode(), f'"{field}":"{value}","{field}":"{value}"'.encode()
        )
        length = len(twice) - 8
        whole = (length + 4).to_bytes(4, "big") + length.to_bytes(4, "big") + twice[8:]
        assert pulled(readers, whole) == 0
        assert pulled(readers, pulls({field: value})) == 1


@pytest.mark.parametrize("expression", ["Tag1", "Tag1 || Tag2", "Tag0||Tag1||Tag2", "Tag2||Other"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"queueOffset": "0", "maxMsgNums": "1"},
        {"queueOffset": "1", "maxMsgNums": "2"},
        {"queueOffset": str(MESSAGES - 5), "maxMsgNums": "100"},
        {"maxMsgBytes": "1"},
        {"maxMsgBytes": "900"},
        {"kourouLargePull": "true", "maxMsgNums": "1024"},
        {"sysFlag": "5", "commitOffset": "4"},
    ],
    ids=str,
)
def test_pulls_by_tags_are_answered(readers: Twins, expression: str, fields: dict[str, Any]) -> None:
    wanted = {**fields, "subscription": expression, "consumerGroup": "taggers"}
    readers.feed(pulls(wanted))
    assert pulled(readers, pulls(wanted) + binary_pull(wanted)) == 2


def test_pulls_by_tags_that_find_nothing_need_the_slow_path(readers: Twins) -> None:
    wanted = {"subscription": "TagA", "consumerGroup": "taggers"}
    assert b"NO_MATCHED_MESSAGE" in readers.feed(pulls(wanted))
    assert pulled(readers, pulls(wanted) * 2) == 0


# -- what needs the slow path -------------------------------------------------------------------------

SLOW = [
    pulls({"queueOffset": str(MESSAGES), "sysFlag": "4"}),
    pulls({"queueOffset": "-1"}),
    pulls({"queueOffset": "9223372036854775807"}),
    pulls({"queueOffset": "9223372036854775808"}),
    pulls({"queueOffset": "03"}),
    pulls({"queueOffset": "3.0"}),
    pulls({"queueId": "2"}),
    pulls({"queueId": "-1"}),
    pulls({"queueId": "99"}),
    pulls({"queueId": "4294967296"}),
    pulls({"maxMsgNums": "0"}),
    pulls({"maxMsgNums": "-1"}),
    pulls({"topic": "NotThere"}),
    pulls({"consumerGroup": "strangers"}),
    pulls({"sysFlag": "0"}),
    pulls({"sysFlag": "12"}),
    pulls({"sysFlag": "8"}),
    pulls({"expressionType": "SQL92", "subscription": "a > 1"}),
    pulls({"expressionType": "SQL93"}),
    pulls({"expressionType": None, "subscription": "Tag1"}),
    pulls({"subscription": "Tag1 || Tag2"}),
    pulls({"subscription": None}),
    pulls({"subscription": "\\u002a"}),
    pulls({"subVersion": None}),
    pulls({"topic": None}),
    pulls({"topic": "漢"}),
    pulls({"kourouLargePull": "yes"}),
    pulls({"maxMsgBytes": ""}),
    pulls({"extra": "é"}),
    pulls(flag=2),
    pulls(flag=1),
    pulls(remark="why"),
    pulls(code=361),
    pulls(extFields=None),
    pulls(extFields={}),
    binary_pull(flag=2),
    binary_pull({"queueOffset": "x"}),
    binary_pull({"topic": None}),
    binary_pull({"subscription": "Tag1"}),
    frame(pull().replace(b'"queueId":', b'"queueId":"1","queueId":'), b""),
    frame(pull().replace(b'"extFields":', b'"extFields":{"queueId":"1"},"extFields":'), b""),
    frame(pull() + b" x", b""),
    frame(pull()[:-1], b""),
    frame(b'{"code":11,', b""),
    frame(encode_binary_head(11, 0, 501, 7, 0, None, None), b"", 1),
    frame(encode_binary_head(11, 0, 501, 7, 0, "why", ORDINARY), b"", 1),
    frame(pull(), b"", 1),
]


@pytest.mark.parametrize("odd", SLOW, ids=range(len(SLOW)))
def test_what_needs_a_decision_is_left_alone(readers: Twins, odd: bytes) -> None:
    assert pulled(readers, odd) == 0


@pytest.mark.parametrize("odd", SLOW[:8], ids=range(8))
def test_pulls_after_one_that_needs_a_decision_are_answered(readers: Twins, odd: bytes) -> None:
    before = readers.brokers[0].pulled
    answers = readers.feed(pulls(opaque=1) + odd + pulls(opaque=2) + binary_pull(opaque=3) + odd)
    assert readers.brokers[0].pulled - before == 3
    assert answers.index(b'"opaque":1,') < answers.index(b'"opaque":7,') < answers.index(b'"opaque":2,')


@pytest.mark.parametrize(
    "fields",
    [
        {"sysFlag": "0"},
        {"sysFlag": "12"},
        {"topic": "NotThere"},
        {"consumerGroup": "newcomers"},
        {"subscription": "Tag1 || Tag2"},
        {"expressionType": "SQL92"},
    ],
)
def test_what_is_known_of_a_pull_does_not_hold_for_another(readers: Twins, fields: dict[str, str]) -> None:
    """In one read; each of these has to be decided."""
    readers.feed(pulls())  # one that was decided before may have changed the groups
    assert pulled(readers, pulls() + pulls(fields)) == 1


def test_a_pull_that_waits_is_not_answered_and_does_not_stop_others(readers: Twins) -> None:
    waiting = pulls({"queueOffset": str(MESSAGES), "sysFlag": "6"}, opaque=11)
    answers = readers.feed(waiting + pulls(opaque=12))
    assert b'"opaque":11,' not in answers and b'"opaque":12,' in answers


def test_sends_and_pulls_may_be_mixed(readers: Twins) -> None:
    other = frame(send({"b": "Other"}))
    readers.feed(other)
    taken = readers.taken
    answers = readers.feed(other + pulls(opaque=21) + other + binary_pull() + other)
    assert readers.taken - taken == 3
    assert answers.count(b'"code":0') == 4


def test_a_pull_in_parts_is_answered(readers: Twins) -> None:
    data = pulls(opaque=1) + pulls(opaque=2) + pulls(opaque=3)
    for cut in (1, 7, 8, 30, len(pulls(opaque=1)) + 5, len(data) - 1):
        before = readers.brokers[0].pulled
        answers = readers.feed_together([[data[:cut], data[cut:]]])[0]
        assert answers.count(b'"remark":"FOUND"') == 3
        assert readers.brokers[0].pulled - before == 3


@given(data=st.data())
def test_a_changed_byte_changes_both_alike(readers: Twins, data: st.DataObject) -> None:
    whole = bytearray(data.draw(st.sampled_from([pulls(), binary_pull()])))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(8, len(whole) - 1))
        whole[at] = data.draw(st.one_of(st.sampled_from(b'"0129-,:{}\\ '), st.integers(0, 255)))
    readers.feed(bytes(whole) + pulls())


# -- the gate -----------------------------------------------------------------------------------------


def refuse(_: object) -> None:
    raise RequestError(ResponseCode.NO_PERMISSION, "not today")


@pytest.mark.parametrize("codes", [None, frozenset({RequestCode.PULL_MESSAGE})])
def test_a_check_sees_every_pull(readers: Twins, codes: frozenset[int] | None) -> None:
    check = RequestCheck(refuse, codes)
    for broker in readers.brokers:
        broker.services.admission.add(check)
    try:
        assert readers.feed(pulls() * 2).count(b"not today") == 2
    finally:
        for broker in readers.brokers:
            broker.services.admission.remove(check)
    readers.feed(pulls())  # decides anew
    assert pulled(readers, pulls() * 2) == 2


def test_a_check_of_other_requests_leaves_pulls_to_the_kernel(readers: Twins) -> None:
    """A master of a fail-over set has one that sees what changes its tables."""
    check = RequestCheck(refuse, frozenset({RequestCode.UPDATE_CONSUMER_OFFSET}))
    for broker in readers.brokers:
        broker.services.admission.add(check)
    try:
        readers.feed(pulls())  # decides anew
        assert pulled(readers, pulls() * 2) == 2
    finally:
        for broker in readers.brokers:
            broker.services.admission.remove(check)
        readers.feed(pulls())


def test_a_check_that_lets_pulls_pass_sees_each(readers: Twins) -> None:
    seen: list[object] = []
    check = RequestCheck(seen.append)
    admission = readers.brokers[0].services.admission
    admission.add(check)
    try:
        readers.feed(pulls())
        assert pulled(readers, pulls() * 3) == 0
    finally:
        admission.remove(check)
    assert len(seen) == 4
    readers.feed(pulls())


@pytest.mark.parametrize(
    ("change", "back"),
    [
        ({"brokerPermission": "2"}, {"brokerPermission": "6"}),
        ({"maxTransferCountOnMessageInMemory": "31"}, {"maxTransferCountOnMessageInMemory": "32"}),
    ],
)
def test_a_changed_configuration_is_decided_anew(
    readers: Twins, change: dict[str, str], back: dict[str, str]
) -> None:
    assert pulled(readers, pulls()) == 1
    for values in (change, back):
        for broker in readers.brokers:
            broker.services.update_config(values)
        assert pulled(readers, pulls()) == 0
    assert pulled(readers, pulls()) == 1


def test_a_changed_topic_is_decided_anew(readers: Twins) -> None:
    other = pulls({"queueId": "1"})
    assert pulled(readers, other) == 1
    kept = [broker.services.topics.table["TopicTest"] for broker in readers.brokers]
    for broker, config in zip(readers.brokers, kept, strict=True):
        broker.services.topics.update(msgspec.structs.replace(config, read_queue_nums=1))
    try:
        assert pulled(readers, pulls() + other) == 0
        assert pulled(readers, pulls() + other) == 1
    finally:
        for broker, config in zip(readers.brokers, kept, strict=True):
            broker.services.topics.update(config)
        readers.feed(pulls())


def test_a_changed_group_is_decided_anew(readers: Twins) -> None:
    for broker in readers.brokers:
        config = broker.services.groups.find("readers")
        assert config is not None
        broker.services.groups.update(msgspec.structs.replace(config, consume_enable=False))
    assert b'"code":16' in readers.feed(pulls())
    for broker in readers.brokers:
        config = broker.services.groups.find("readers")
        assert config is not None
        broker.services.groups.update(msgspec.structs.replace(config, consume_enable=True))
    readers.feed(pulls())
    assert pulled(readers, pulls()) == 1


def test_a_hook_sees_every_pull(readers: Twins) -> None:
    seen: list[object] = []
    hooks = readers.brokers[0].services.hooks
    hooks.after_pull.append(seen.append)
    try:
        assert pulled(readers, pulls() * 2) == 0
    finally:
        hooks.after_pull.remove(seen.append)
    assert len(seen) == 2


def test_a_reset_offset_moves_the_group(readers: Twins) -> None:
    for broker in readers.brokers:
        broker.services.offsets.assign_reset("TopicTest", "readers", 0, 5)
    assert b"OFFSET_RESET" in readers.feed(pulls())
    assert pulled(readers, pulls()) == 1


# -- subscriptions by heartbeat -----------------------------------------------------------------------


def subscription(text: str, version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic="TopicTest", sub_string=text, sub_version=version)


async def subscribed_pull(broker: FedBroker, text: str, own: str, version: str = "1") -> tuple[int, bytes]:
    """What a member of a group is given that subscribes to `text`, while it itself does to `own`."""
    connection, transport = broker.connect()
    state: ConnectionState = connection.state
    group = f"members-{text}-{own}-{version}".replace("*", "all")
    for group_text, each in ((text, "0"), (own, "1")):
        data = ConsumerData(group_name=group, subscription_data_set=[subscription(group_text)])
        if each == "1":
            state.record_subscriptions(data)
        else:
            channel = ClientChannel(connection, "client", LanguageCode.JAVA, 501, 0)
            broker.services.consumers.register(channel, data)
    before = broker.pulled
    for _ in range(2):
        transport.written.clear()
        asked = {"sysFlag": "0", "subscription": None, "consumerGroup": group, "subVersion": version}
        connection.data_received(pulls(asked))
        broker.services.cycles.close()
    return broker.pulled - before, b"".join(transport.written)


@pytest.mark.parametrize(
    ("text", "own", "version", "answered"),
    [("*", "*", "1", 1), ("*", "Tag1", "1", 0), ("Tag1", "Tag1", "1", 1), ("*", "*", "2", 0)],
)
def test_the_subscription_of_a_heartbeat_counts(
    readers: Twins, text: str, own: str, version: str, answered: int
) -> None:
    with_kernel, without = (
        readers.run(subscribed_pull(broker, text, own, version)) for broker in readers.brokers
    )
    assert with_kernel[1] == without[1]
    assert with_kernel[0] == answered


# -- where messages lie -------------------------------------------------------------------------------


def test_messages_in_several_files_are_answered(kernel: ModuleType, tmp_path: Path) -> None:
    """Files of 64 KiB, some of them older than the window of the newest bytes; all messages, and by tag."""
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        install(kernel, patch)
        stack = AsyncExitStack()
        twins = started(runner, stack, tmp_path, mapped_file_size_commit_log=64 * 1024)
        for n in range(60):
            tags = f"UNIQ_KEY\x01{ID}\x02TAGS\x01Tag{n % 3}\x02"
            twins.feed(frame(send({"i": tags}), bytes([n]) * 20_000))

        def pull_all(text: str) -> None:
            group = {"consumerGroup": f"readers-{len(text)}", "subscription": text}
            twins.feed(pulls(group))
            for size in ("1", "2", "3", "32"):
                fields = {**group, "maxMsgNums": size}
                twins.feed(b"".join(pulls({**fields, "queueOffset": str(n)}) for n in range(60)))

        pull_all("*")
        pull_all("Tag1")
        assert twins.brokers[0].pulled > 0
        for broker in twins.brokers:
            broker.services.store.log._window = 100_000
            assert broker.services.cold_reads.is_sending()
        twins.run(asyncio.sleep(2 * SENDING_S))
        for text in ("*", "Tag1"):
            fields = {"consumerGroup": f"readers-{len(text)}", "subscription": text}
            asked = [
                pulls({**fields, "maxMsgNums": size, "queueOffset": str(n)}, opaque=n)
                for size in ("1", "2", "3", "32")
                for n in range(60)
            ]
            answers = [sorted(twins.run(pulled_later(broker, asked))) for broker in twins.brokers]
            assert answers[0] == answers[1]
            twins.run(_all_answered(twins.brokers[0]))
            # The last of each tag: what was answered last before that differs.
            twins.feed(pulls({**fields, "queueOffset": "58"}))
        assert_same_records(twins)
        runner.run(stack.aclose())


@pytest.mark.parametrize("cores", [1, 2])
def test_pulls_of_old_messages_beside_sends_are_answered(
    kernel: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    """With one core they take turns, with two they have a share of the time; the bytes are the same."""
    monkeypatch.setattr("kourou.broker.pull.cold_pulls.SENDING_S", 60.0)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    with pytest.MonkeyPatch.context() as patch, asyncio.Runner() as runner:
        install(kernel, patch)
        stack = AsyncExitStack()
        twins = started(runner, stack, tmp_path, mapped_file_size_commit_log=64 * 1024)
        for n in range(60):
            twins.feed(frame(send(), bytes([n]) * 2_000))
        twins.feed(pulls({"queueOffset": "0"}))
        before = twins.brokers[0].pulled
        answers = [
            sorted(twins.run(_pulled_old(broker, [_old_pull(n) for n in range(60)])))
            for broker in twins.brokers
        ]
        assert answers[0] == answers[1] and len(answers[0]) == 60
        assert (twins.brokers[0].pulled > before) == (cores == 2)
        runner.run(stack.aclose())


def _old_pull(number: int) -> bytes:
    return pulls({"queueOffset": str(number), "maxMsgNums": str(1 + number % 3)}, opaque=number)


async def _pulled_old(broker: FedBroker, asked: list[bytes]) -> list[bytes]:
    """The answers to pulls of old messages, for which there is no time at first."""
    broker.services.store.log._window = 0
    share = broker.services.cold_reads
    if isinstance(share, ColdReadShare):
        share._credit_s = -MAX_DEBT_S
    leave_no_time(broker)
    return await pulled_later(broker, asked)


async def _all_answered(broker: FedBroker) -> None:
    assert broker.fast_paths is not None
    await broker.fast_paths.pulls.wait_idle()


def leave_no_time(broker: FedBroker) -> None:
    """Have pulls of old messages wait for their turn."""
    if broker.fast_paths is not None:
        turns = broker.fast_paths.pulls._turns
        turns._refilled_s, turns._credit_s = turns._clock(), -1.0


async def pulled_later(broker: FedBroker, asked: list[bytes]) -> list[bytes]:
    """The answers to pulls, which may come later."""
    connection, transport = broker.connect()
    for request in asked:
        connection.data_received(request)
    answers: list[bytes] = []
    while len(answers) < len(asked):
        await asyncio.sleep(0.001)
        broker.services.cycles.close()
        answers = split_frames(b"".join(transport.written))
    return answers


def split_frames(data: bytes) -> list[bytes]:
    """The frames in these bytes."""
    frames = []
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        frames.append(data[:end])
        data = data[end:]
    return frames


def test_a_connection_that_closes_while_its_pulls_wait(failing: tuple[Twins, object]) -> None:
    broker = failing[0].brokers[0]
    failing[0].feed(frame(send(), bytes(30_000)) + pulls())

    async def closed() -> int:
        broker.services.store.log._window = 0
        share = broker.services.cold_reads
        assert isinstance(share, ColdReadShare)
        share._sending_until_s = asyncio.get_running_loop().time() + 60
        share._clock = lambda: 0.0
        share._refilled_s, share._credit_s = 0.0, -MAX_DEBT_S
        leave_no_time(broker)
        connection, transport = broker.connect()
        connection.data_received(pulls({"queueOffset": "0"}) * 3)
        waiting = len(share._reads)
        connection.abort("the test closes it")
        share._sending_until_s = 0.0
        share._tick()
        assert not share._reads
        assert transport.written == []
        return waiting

    assert failing[0].run(closed()) == 3


def test_a_broker_that_stops_answers_pulls_that_wait_for_time(failing: tuple[Twins, object]) -> None:
    broker = failing[0].brokers[0]
    failing[0].feed(frame(send(), bytes(30_000)) + pulls())

    async def answered() -> tuple[int, int]:
        assert broker.fast_paths is not None
        broker.services.store.log._window = 0
        share = broker.services.cold_reads
        assert isinstance(share, ColdReadShare)
        share._sending_until_s = asyncio.get_running_loop().time() + 60
        share._clock = lambda: 0.0
        share._refilled_s, share._credit_s = 0.0, -MAX_DEBT_S
        leave_no_time(broker)
        connection, transport = broker.connect()
        connection.data_received(pulls({"queueOffset": "0"}) * 3)
        waiting = len(share._reads)
        share.hurry()
        await broker.fast_paths.pulls.wait_idle()
        broker.services.cycles.close()
        return waiting, b"".join(transport.written).count(b'"remark":"FOUND"')

    assert failing[0].run(answered()) == (3, 3)


def test_pulls_of_a_peer_that_does_not_read_wait(failing: tuple[Twins, object]) -> None:
    """As many are answered as one run has; the rest when it reads."""
    broker, count = failing[0].brokers[0], 300
    failing[0].feed(frame(send(), bytes(30_000)) + pulls())

    async def answered() -> tuple[int, int]:
        connection, transport = broker.connect(reads=False)
        connection.data_received(pulls({"queueOffset": "0"}) * count)
        broker.services.cycles.close()
        first = b"".join(transport.written).count(b'"remark":"FOUND"')
        for _ in range(count):
            transport.take()
            broker.services.cycles.close()
        return first, b"".join(transport.written).count(b'"remark":"FOUND"')

    first, last = failing[0].run(answered())
    assert first < 80
    assert last == count


# -- a kernel that fails ------------------------------------------------------------------------------


def test_python_answers_where_the_kernel_fails(readers: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise MemoryError

    broker = readers.brokers[0]
    assert broker.fast_paths is not None
    status = broker.services.kernel.current
    monkeypatch.setattr(broker.fast_paths.pulls, "_answer_pulls", fail)
    assert readers.feed(pulls() * 3).count(b'"remark":"FOUND"') == 3
    assert broker.services.kernel.current.kernel is None
    broker.services.kernel.current = status


def test_a_kernel_that_fails_is_not_called_again(readers: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def fail(*arguments: Any) -> None:
        calls.append(arguments)
        raise MemoryError

    broker = readers.brokers[0]
    assert broker.fast_paths is not None
    status = broker.services.kernel.current
    monkeypatch.setattr(broker.fast_paths.pulls, "_answer_pulls", fail)
    readers.feed(pulls() * 5)
    broker.services.kernel.current = status
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("owner", "name"),
    [(ConsumeQueue, "read_units_nowait"), (CommitLog, "window_at")],
    ids=["units", "records"],
)
def test_a_file_that_cannot_be_read_does_not_switch_the_kernel_off(
    readers: Twins, monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    services, paths = readers.brokers[0].services, readers.brokers[0].fast_paths
    queue = services.store.queues.find("TopicTest", 0)
    assert queue is not None and paths is not None
    paths.pulls._places.windows.clear()
    with monkeypatch.context() as patch:
        if name == "read_units_nowait":  # units in the tail are read by the kernel itself
            patch.setattr(queue, "flushed_queue_offset", queue.max_queue_offset)
        patch.setattr(owner, name, fail)
        answers = readers.feed(pulls(opaque=1) + pulls(opaque=2))
    assert answers.count(b'"code":1,') == 2
    assert pulled(readers, pulls()) == 1


@pytest.mark.parametrize(("data", "position"), [(b"", 1), (b"", -1), (b"abc", 4)])
def test_positions_outside_the_data_are_refused(kernel: ModuleType, data: bytes, position: int) -> None:
    with pytest.raises(ValueError, match="position"):
        kernel.answer_pulls(None, {}, data, position, LIMIT, -1, setup(), 0, 1)
    assert not kernel.pull_is_next(data, position)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"json": b"%d" * 5}, "placeholders"),
        ({"binary": b"%d" * 5}, "placeholders"),
        ({"numbers": bytes(8)}, "length"),
        ({"numbers": bytes(17 * 8)}, "size"),
    ],
)
def test_a_setup_that_is_wrong_is_refused(kernel: ModuleType, change: dict[str, bytes], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        kernel.answer_pulls(None, {}, b"", 0, LIMIT, -1, setup(**change), 0, 1)
