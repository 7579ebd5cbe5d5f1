"""Check points and acks, as Apache's broker writes and reads them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kourou.protocol.bodies.codec import decode_body, encode_body
from kourou.protocol.pop.revive_records import CheckPointBody, CheckPointKey, PopAckBody, PopBatchAckBody

_LONGS = st.integers(-(2**63), 2**63 - 1)
_NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CHECK_POINT = (
    b'{"bm":0,"bn":"broker-a","c":"CG","d":[0,2],"it":60000,"n":2,"pt":1700000000000,"q":3,'
    b'"reviveTime":1700000060000,"ro":0,"so":10,"t":"T"}'
)
KEY = CheckPointKey("T", "CG", 3, 10, 1_700_000_000_000, "broker-a")


def test_a_check_point_of_apache_is_read() -> None:
    body = decode_body(CHECK_POINT, CheckPointBody)
    assert body.queue_offsets == [10, 12]
    assert body.key("other") == KEY
    assert body.uniq_key == "T@3@10@CG@1700000000000@broker-a@ck"


def test_a_check_point_is_written_with_the_names_of_apache() -> None:
    body = decode_body(CHECK_POINT, CheckPointBody)
    assert body.encode() == CHECK_POINT.replace(b'"reviveTime":1700000060000,', b"")


@given(
    st.builds(
        CheckPointBody,
        start_offset=_LONGS,
        pop_time=_LONGS,
        invisible_time=_LONGS,
        queue_id=st.integers(0, 2**31 - 1),
        topic=_NAMES,
        group=_NAMES,
        offset_differences=st.lists(_LONGS) | st.none(),
        broker_name=_NAMES,
        put_again_times=_NAMES | st.none(),
    )
)
def test_check_points_are_written_like_any_body(body: CheckPointBody) -> None:
    assert body.encode() == encode_body(body)
    assert decode_body(body.encode(), CheckPointBody) == body


@given(
    st.builds(
        PopAckBody, ack_offset=_LONGS, start_offset=_LONGS, topic=_NAMES, group=_NAMES, broker_name=_NAMES
    )
    | st.builds(PopBatchAckBody, ack_offsets=st.lists(_LONGS), topic=_NAMES, group=_NAMES, broker_name=_NAMES)
)
def test_acks_are_written_like_any_body(body: PopAckBody) -> None:
    assert body.encode() == encode_body(body)
    assert decode_body(body.encode(), type(body)) == body


def test_a_check_point_of_an_early_version_names_no_offsets() -> None:
    body = decode_body(b'{"so":10,"n":3,"t":"T","c":"CG"}', CheckPointBody)
    assert body.queue_offsets == [10, 11, 12]
    assert body.key("broker-b").broker_name == "broker-b"


def test_a_forged_count_names_no_more_than_a_check_point_holds() -> None:
    assert len(decode_body(b'{"so":10,"n":2000000000}', CheckPointBody).queue_offsets) == 32


def test_acks_of_apache_are_read_with_short_and_long_names() -> None:
    short = b'{"ao":12,"bn":"broker-a","c":"CG","pt":1700000000000,"q":3,"so":10,"t":"T"}'
    long = (
        b'{"ackOffset":12,"brokerName":"broker-a","consumerGroup":"CG","popTime":1700000000000,"queueId":3,'
        b'"startOffset":10,"topic":"T"}'
    )
    for raw in (short, long):
        ack = decode_body(raw, PopAckBody)
        assert ack.key("other") == KEY
        assert list(ack.queue_offsets) == [12]
        assert ack.uniq_key == "T@3@12@CG@1700000000000@broker-a@ack"
    assert decode_body(long, PopAckBody).encode() == short


def test_a_batch_of_acks() -> None:
    raw = b'{"ao":-1,"aol":[10,12],"bn":"broker-a","c":"CG","pt":1700000000000,"q":3,"so":10,"t":"T"}'
    ack = decode_body(raw, PopBatchAckBody)
    assert ack.key("other") == KEY
    assert list(ack.queue_offsets) == [10, 12]
    assert ack.uniq_key == "T@3@[10, 12]@CG@1700000000000@bAck"
    assert ack.encode() == raw
