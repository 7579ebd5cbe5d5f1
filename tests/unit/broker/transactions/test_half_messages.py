"""What is a half, and what becomes of its properties."""

from __future__ import annotations

import pytest

from kourou.broker.transactions.half_messages import (
    check_batch,
    check_half,
    half_properties,
    half_sys_flag,
    is_half,
    real_place,
)
from kourou.errors import ProtocolError, RequestError
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.properties import decode_properties
from tests.unit.broker.tables_kit import broker_config

PREPARED = "TRAN_MSG\x01true\x02"


def header(topic: str = "T", reconsume_times: int = 0) -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2(
        producer_group="PG",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=4,
        born_timestamp=0,
        flag=0,
        reconsume_times=reconsume_times,
    )


@pytest.mark.parametrize(
    ("properties", "topic", "reconsume_times", "expected"),
    [
        (PREPARED, "T", 0, True),
        ("TRAN_MSG\x01TRUE\x02", "T", 0, True),
        ("TRAN_MSG\x01false\x02", "T", 0, False),
        ("XTRAN_MSG\x01true\x02", "T", 0, False),
        ("", "T", 0, False),
        (PREPARED, "T", 1, True),
        (PREPARED + "DELAY\x013\x02", "T", 0, True),
        (PREPARED + "DELAY\x013\x02", "T", 1, False),
        (PREPARED + "DELAY\x01x\x02", "T", 1, True),
        (PREPARED, "%RETRY%CG", 1, False),
    ],
)
def test_which_messages_are_halves(properties: str, topic: str, reconsume_times: int, expected: bool) -> None:
    assert is_half(header(topic, reconsume_times), properties) is expected


def test_a_half_keeps_what_it_was_sent_with_but_for_names_that_are_the_brokers() -> None:
    sent = f"{PREPARED}me\x01mine\x02REAL_QID\x0199\x02TRAN_PREPARED_QUEUE_OFFSET\x015\x02"
    for own in (sent, f"{PREPARED}me\x01mine\x02"):
        stored = half_properties(own.encode(), "T", 3, "ID")
        assert decode_properties(stored.decode()) == {
            "TRAN_MSG": "true",
            "me": "mine",
            "__transactionId__": "ID",
            "REAL_TOPIC": "T",
            "REAL_QID": "3",
        }
    assert half_sys_flag(0x4 | 0x1 | 0x10) == 0x11


@pytest.mark.parametrize("delay", ["DELAY\x013\x02", "DELAY\x01soon\x02", "TIMER_DELIVER_MS\x011\x02"])
def test_a_half_with_a_delay_is_refused(delay: str) -> None:
    with pytest.raises(RequestError, match="cannot be delayed as well"):
        check_half(broker_config(), "127.0.0.1:10911", PREPARED + delay)
    check_half(broker_config(), "127.0.0.1:10911", PREPARED + "DELAY\x010\x02MY_DELAY\x015\x02")


@pytest.mark.parametrize("properties", ["", "REAL_TOPIC\x01T\x02", "REAL_TOPIC\x01T\x02REAL_QID\x01-1\x02"])
def test_a_half_that_does_not_say_where_it_goes(properties: str) -> None:
    with pytest.raises(ProtocolError, match="has no destination"):
        real_place(properties)


def test_a_batch_is_not_transactional() -> None:
    check_batch("me\x01mine\x02")
    with pytest.raises(RequestError, match="send them singly"):
        check_batch(PREPARED)


def test_a_half_leaves_room_for_its_marks() -> None:
    half_properties(b"me\x01" + b"x" * 32_500 + b"\x02", "T", 0, "ID")
    with pytest.raises(RequestError, match="as a half its properties have 32699 bytes, 32639 are allowed"):
        half_properties(b"me\x01" + b"x" * 32_650 + b"\x02", "T", 0, "ID")
