"""The lists of offsets in the answer to a pop."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ProtocolError
from kourou.protocol.pop.offset_infos import (
    OrderCounts,
    PoppedQueue,
    decode_offset_infos,
    decode_order_counts,
    encode_msg_offset_info,
    encode_order_counts,
    encode_start_offset_info,
)
from kourou.protocol.pop.retry_topics import PopTopicKind

NORMAL, RETRY = PopTopicKind.NORMAL, PopTopicKind.RETRY_V1
_OFFSETS = st.integers(0, 2**63 - 1)
_QUEUES = st.lists(
    st.builds(
        PoppedQueue,
        kind=st.sampled_from(PopTopicKind),
        queue_id=st.integers(0, 2**31 - 1),
        start_offset=_OFFSETS,
        offsets=st.lists(_OFFSETS, min_size=1).map(tuple),
    ),
    unique_by=lambda queue: (queue.kind, queue.queue_id),
)


def test_lists_are_written_as_apache_writes_them() -> None:
    queues = [PoppedQueue(NORMAL, 3, 10, (10, 12)), PoppedQueue(RETRY, 0, 5, (5,))]
    assert encode_start_offset_info(queues) == "0 3 10;1 0 5"
    assert encode_msg_offset_info(queues) == "0 3 10,12;1 0 5"
    assert decode_offset_infos("0 3 10;1 0 5", "0 3 10,12;1 0 5") == queues


def test_counts_of_messages_come_before_those_of_queues() -> None:
    counts = OrderCounts({(NORMAL, 3): 1}, {(NORMAL, 3, 12): 2})
    assert encode_order_counts(counts) == "0 qo3%12 2;0 3 1"
    assert decode_order_counts("0 qo3%12 2;0 3 1") == counts
    assert counts.count_of(NORMAL, 3, 12) == 2
    assert counts.count_of(NORMAL, 3, 13) == 1
    assert counts.count_of(NORMAL, 4, 13) == 0


def test_absent_lists_are_empty() -> None:
    assert decode_offset_infos(None, None) == []
    assert decode_order_counts(None) == OrderCounts({}, {})


@given(_QUEUES)
def test_lists_survive_encoding(queues: list[PoppedQueue]) -> None:
    decoded = decode_offset_infos(encode_start_offset_info(queues), encode_msg_offset_info(queues))
    assert decoded == queues


@pytest.mark.parametrize(
    ("starts", "offsets"),
    [
        *(("0 3 10", "0 3 10;0 3 11"), ("0 3 10", "0 4 10"), ("0 3", "0 3 10"), ("7 3 10", "7 3 10")),
        *(("0 3 10", "0 3 "), ("0 3 10", "0 3 10,x"), ("0 -3 10", "0 -3 10")),
    ],
)
def test_lists_that_do_not_fit_are_refused(starts: str, offsets: str) -> None:
    with pytest.raises(ProtocolError):
        decode_offset_infos(starts, offsets)


@given(st.text(), st.text())
def test_any_text_is_a_list_or_a_protocol_error(one: str, other: str) -> None:
    for decode in (lambda: decode_offset_infos(one, other), lambda: decode_order_counts(one)):
        try:
            decode()
        except ProtocolError:
            pass
