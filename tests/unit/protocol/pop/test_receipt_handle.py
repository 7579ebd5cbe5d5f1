"""ReceiptHandle: what Apache's clients show to acknowledge a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.errors import ProtocolError
from kourou.protocol.pop.receipt_handle import ORDERLY_REVIVE_QUEUE_ID, ReceiptHandle
from kourou.protocol.pop.retry_topics import PopTopicKind

_NUMBERS = st.integers(0, 2**63 - 1)
_HANDLES = st.builds(
    ReceiptHandle,
    start_offset=_NUMBERS,
    pop_time=_NUMBERS,
    invisible_time=_NUMBERS,
    revive_queue_id=_NUMBERS,
    kind=st.sampled_from(PopTopicKind),
    broker_name=st.text(st.characters(exclude_characters=" "), max_size=50),
    queue_id=_NUMBERS,
    queue_offset=_NUMBERS,
)


def test_a_handle_reads_as_apache_writes_it() -> None:
    handle = ReceiptHandle.decode("7 1700000000000 60000 3 1 broker-a 2 9")
    assert handle == (7, 1_700_000_000_000, 60_000, 3, PopTopicKind.RETRY_V1, "broker-a", 2, 9)
    assert handle.visible_again_ms == 1_700_000_060_000
    assert handle.encode() == "7 1700000000000 60000 3 1 broker-a 2 9"


def test_fields_of_the_proxy_are_ignored() -> None:
    assert ReceiptHandle.decode("7 1 2 3 0 b 2 9 123456").queue_offset == 9


def test_orderly_handles_are_told_by_their_revive_queue() -> None:
    assert ReceiptHandle.decode(f"7 1 2 {ORDERLY_REVIVE_QUEUE_ID} 0 b 2 9").is_orderly
    assert not ReceiptHandle.decode("7 1 2 3 0 b 2 9").is_orderly


@given(_HANDLES)
def test_handles_survive_encoding(handle: ReceiptHandle) -> None:
    assert ReceiptHandle.decode(handle.encode()) == handle


@pytest.mark.parametrize(
    "text",
    [
        *("", "7 1 2 3 0 b 2", "7 1 2 3 9 b 2 9", "-7 1 2 3 0 b 2 9", "7 1 2 3 0 b 2 x", "7  1 2 3 0 b 2 9"),
        *("٧ 1 2 3 0 b 2 9", f"{2**63} 1 2 3 0 b 2 9", "7 1 2 3 0 " + "b" * 2000 + " 2 9"),
    ],
)
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="a receipt handle has eight fields"):
        ReceiptHandle.decode(text)


@given(st.text())
def test_any_text_is_a_handle_or_a_protocol_error(text: str) -> None:
    try:
        ReceiptHandle.decode(text)
    except ProtocolError:
        pass
