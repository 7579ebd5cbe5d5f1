"""Checks and the compiled kernel: what has to see each send closes the fast path, on open connections too."""

from __future__ import annotations

import msgspec
import pytest

from kourou.broker.admission import AdmissionCheck, MessageCheck, RequestCheck
from kourou.errors import RequestError
from kourou.protocol.codes import RequestCode, ResponseCode
from tests.integration.kernel.kernel_kit import FedBroker
from tests.integration.kernel.twins import Twins, frame, send

TWO = frame(send()) + frame(send({"e": "1"}))
OTHER = frame(send({"b": "Other"}))


def refuse(_: object) -> None:
    raise RequestError(ResponseCode.NO_PERMISSION, "not today")


@pytest.mark.parametrize(
    "check",
    [
        RequestCheck(refuse),
        RequestCheck(refuse, frozenset({RequestCode.SEND_MESSAGE_V2})),
        MessageCheck(refuse),
        MessageCheck(refuse, frozenset({"TopicTest"})),
        MessageCheck(refuse, lambda topic: topic.startswith("Topic")),
    ],
    ids=["every request", "sends", "every message", "messages of the topic", "messages by prefix"],
)
def test_a_refusing_check_stops_sends_until_it_is_removed(twins: Twins, check: AdmissionCheck) -> None:
    async def answers(broker: FedBroker) -> list[tuple[int, bool, int]]:
        connection, transport = broker.connect()
        log, found = broker.services.store.log, []
        for change in (None, broker.services.admission.add, broker.services.admission.remove, None):
            if change is not None:
                change(check)
            end, taken = log.max_phy_offset, broker.taken
            transport.written.clear()
            connection.data_received(TWO)
            broker.services.cycles.close()
            answer = b"".join(transport.written)
            assert answer.count(b"not today") in (0, 2)
            found.append((answer.count(b'"code":0'), log.max_phy_offset > end, broker.taken - taken))
        return found

    with_kernel, without = (twins.run(answers(broker)) for broker in twins.brokers)
    # Refused: nothing stored. The first send after a change decides anew, the next ones are fast again.
    assert [(count, grows) for count, grows, _ in with_kernel] == [
        (2, True),
        (0, False),
        (2, True),
        (2, True),
    ]
    assert [taken for _, _, taken in with_kernel] == [2, 0, 0, 2]
    assert [found[:2] for found in without] == [found[:2] for found in with_kernel]


def test_a_check_that_comes_while_sends_are_collected_sees_them(twins: Twins) -> None:
    check = RequestCheck(refuse)

    async def stored(broker: FedBroker) -> int:
        connection, transport = broker.connect()
        end = broker.services.store.log.max_phy_offset
        connection.data_received(TWO)
        broker.services.admission.add(check)
        broker.services.cycles.close()
        broker.services.admission.remove(check)
        assert not broker.has_kernel or b"".join(transport.written).count(b"not today") == 2
        return broker.services.store.log.max_phy_offset - end

    assert twins.run(stored(twins.brokers[0])) == 0


def test_a_check_of_one_topic_leaves_the_fast_path_to_the_others(twins: Twins) -> None:
    check, before = MessageCheck(refuse, frozenset({"TopicTest"})), twins.taken
    for broker in twins.brokers:
        broker.services.admission.add(check)
    try:
        twins.feed(OTHER)  # decides anew
        assert twins.feed(OTHER * 3).count(b'"code":0') == 3
        assert twins.taken - before == 3
        assert twins.feed(OTHER + TWO).count(b"not today") == 2
    finally:
        for broker in twins.brokers:
            broker.services.admission.remove(check)


def test_a_changed_configuration_is_a_new_ruling_for_the_kernel(twins: Twins) -> None:
    twins.feed(TWO)
    before = twins.taken
    for broker in twins.brokers:
        broker.services.update_config({"brokerPermission": "4"})
    try:
        twins.feed(TWO)
        assert twins.taken == before
    finally:
        for broker in twins.brokers:
            broker.services.update_config({"brokerPermission": "6"})


def test_a_changed_topic_is_decided_anew(twins: Twins) -> None:
    """It has one queue left: what was decided before does not count."""
    twins.feed(TWO)
    before, kept = twins.taken, [broker.services.topics.table["TopicTest"] for broker in twins.brokers]
    for broker, config in zip(twins.brokers, kept, strict=True):
        narrow = msgspec.structs.replace(config, read_queue_nums=1, write_queue_nums=1)
        broker.services.topics.update(narrow)
    try:
        assert twins.feed(TWO).count(b'"code":0') == 1
        assert twins.taken == before
    finally:
        for broker, config in zip(twins.brokers, kept, strict=True):
            broker.services.topics.update(config)
