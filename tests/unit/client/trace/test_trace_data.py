"""Trace records: Apache's bytes, and back."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kourou.client.trace.trace_data import (
    EndTransactionTrace,
    PubTrace,
    RecallTrace,
    SubAfterTrace,
    SubBeforeTrace,
    TraceContextCode,
    TraceMessageType,
    TraceRecord,
    decode_trace,
    encode_trace,
    read_trace,
    trace_keys,
)
from kourou.errors import ProtocolError

ID = "7F00000150805FFD2B2748C076780775"
REQUEST = "7F00000150805FFD2B2748C078BC0777"
TIME = 1794711772794

# Text that Apache's Java client (4.9.8) made of these records; the first is in the recorded 4.9.7 store.
APACHE: list[tuple[TraceRecord, str]] = [
    (
        PubTrace(
            *(TIME, "DefaultRegion", "PG_trace", "PlainTopic", ID, "TagTrace", "traced-1 traced-2"),
            *("127.0.0.1:10911", 6, 37, TraceMessageType.NORMAL, "7F00000100002A9F00000000000DAC6B", True),
        ),
        f"Pub\x01{TIME}\x01DefaultRegion\x01PG_trace\x01PlainTopic\x01{ID}\x01TagTrace\x01traced-1 traced-2"
        "\x01127.0.0.1:10911\x016\x0137\x010\x017F00000100002A9F00000000000DAC6B\x01true\x02",
    ),
    (
        PubTrace(
            *(TIME, "DefaultRegion", "group", "Orders", ID, None, "k1 k2", "127.0.0.1:10911", 6, 37),
            *(TraceMessageType.TRANSACTION_COMMIT, None, True),
        ),
        f"Pub\x01{TIME}\x01DefaultRegion\x01group\x01Orders\x01{ID}\x01null\x01k1 k2\x01127.0.0.1:10911"
        "\x016\x0137\x012\x01null\x01true\x02",
    ),
    (
        SubBeforeTrace(TIME, "DefaultRegion", "group", REQUEST, ID, 2, "k1 k2"),
        f"SubBefore\x01{TIME}\x01DefaultRegion\x01group\x01{REQUEST}\x01{ID}\x012\x01k1 k2\x02",
    ),
    (
        SubAfterTrace(REQUEST, ID, 37, True, "k1 k2", TraceContextCode.FAILED, TIME, "group"),
        f"SubAfter\x01{REQUEST}\x01{ID}\x0137\x01true\x01k1 k2\x014\x01{TIME}\x01group\x02",
    ),
    (
        EndTransactionTrace(
            *(TIME, "DefaultRegion", "group", "Orders", ID, None, "k1 k2", "127.0.0.1:10911"),
            *(TraceMessageType.TRANSACTION_COMMIT, "tx-1", "COMMIT_MESSAGE", True),
        ),
        f"EndTransaction\x01{TIME}\x01DefaultRegion\x01group\x01Orders\x01{ID}\x01null\x01k1 k2"
        "\x01127.0.0.1:10911\x012\x01tx-1\x01COMMIT_MESSAGE\x01true\x02",
    ),
]
RECALL = RecallTrace(TIME, "DefaultRegion", "group", "Orders", ID, False)


@pytest.mark.parametrize(("record", "text"), APACHE)
def test_apaches_text_both_ways(record: TraceRecord, text: str) -> None:
    assert encode_trace([record]) == text
    assert decode_trace(text) == [record]


def test_several_records_in_one_body() -> None:
    records = [record for record, _ in APACHE] + [RECALL]
    assert decode_trace(encode_trace(records)) == records
    assert encode_trace([RECALL]).count("\x01") == 6
    assert decode_trace("") == []


def test_old_and_other_forms_are_read() -> None:
    pub, text = APACHE[0]
    assert isinstance(pub, PubTrace)
    old = text.replace("\x017F00000100002A9F00000000000DAC6B", "")
    assert decode_trace(old) == [dataclasses.replace(pub, offset_msg_id=None)]
    with_host = text.replace("true\x02", "true\x0110.0.0.9\x02")
    assert decode_trace(with_host) == [dataclasses.replace(pub, client_host="10.0.0.9")]
    assert encode_trace(decode_trace(with_host)) == with_host
    cloud = SubAfterTrace(REQUEST, ID, 37, False, "k1", TraceContextCode.TIMEOUT)
    assert encode_trace([cloud]) == f"SubAfter\x01{REQUEST}\x01{ID}\x0137\x01false\x01k1\x011\x02"
    assert decode_trace(encode_trace([cloud])) == [cloud]
    oldest = f"SubAfter\x01{REQUEST}\x01{ID}\x0137\x01false\x01k1"
    assert decode_trace(oldest) == [dataclasses.replace(cloud, context_code=TraceContextCode.FAILED)]


def test_cloud_records_of_rocketmq_4_have_no_separator() -> None:
    cloud = SubAfterTrace(REQUEST, ID, 37, False, "k1", TraceContextCode.TIMEOUT)
    glued = encode_trace([cloud]).rstrip("\x02")
    assert decode_trace(glued + glued + APACHE[0][1] + glued) == [cloud, cloud, APACHE[0][0], cloud]


def test_a_bad_record_does_not_hide_the_others() -> None:
    records, failures = read_trace(APACHE[0][1] + "Pub\x011\x02" + APACHE[2][1])
    assert records == [APACHE[0][0], APACHE[2][0]]
    assert [str(failure) for failure in failures] == ["trace record Pub with 1 fields cannot be read: '1'"]


def test_kinds_of_other_versions_are_left_out() -> None:
    assert decode_trace("Tomorrow\x011\x022\x02" + APACHE[0][1]) == [APACHE[0][0]]


@pytest.mark.parametrize(
    "text",
    [
        "Pub\x011\x02",
        "Pub",
        "SubBefore\x01x\x01r\x01g\x01q\x01m\x012\x01k\x02",
        "SubAfter\x01q\x01m\x01late\x01true\x01k\x010\x02",
        "SubAfter\x01q\x01m\x011\x01true\x01k\x0199\x02",
        "EndTransaction\x01" + "1\x01" * 9,
    ],
)
def test_truncated_and_wrong_data_is_reported(text: str) -> None:
    with pytest.raises(ProtocolError, match=r"trace record \w+ with \d+ fields cannot be read"):
        decode_trace(text)


def test_a_trace_message_is_found_by_ids_and_keys() -> None:
    assert trace_keys([record for record, _ in APACHE]) == [ID, "traced-1", "traced-2", "k1", "k2"]
    assert trace_keys([RECALL]) == [ID]


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        decode_trace(text)
    except ProtocolError:
        pass
