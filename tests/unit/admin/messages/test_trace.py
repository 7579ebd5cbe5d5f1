"""The timeline of a message, from trace records in any order and with gaps."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kourou.admin.messages.message_queries import KeySearch
from kourou.admin.messages.trace import MessageTrace, TraceStatus, build_trace
from kourou.client.trace.trace_data import (
    EndTransactionTrace,
    PubTrace,
    RecallTrace,
    SubAfterTrace,
    SubBeforeTrace,
    TraceContextCode,
    TraceMessageType,
    TraceRecord,
    encode_trace,
)
from kourou.protocol.layout import MESSAGE_MAGIC_CODE
from kourou.protocol.message import MessageExt
from kourou.protocol.message_id import encode_host

ID = "7F00000150805FFD2B2748C076780775"
PUB = PubTrace(
    *(1_000, "DefaultRegion", "shop", "Orders", ID, "TagA", "order-1", "127.0.0.1:10911", 6, 5),
    *(TraceMessageType.TRANSACTION_HALF, "7F00000100002A9F00000000000DAC6B", True),
)


def before(request: str, time_ms: int, retry_times: int = 0, group: str = "billing") -> SubBeforeTrace:
    return SubBeforeTrace(time_ms, "DefaultRegion", group, request, ID, retry_times, "order-1")


def after(
    request: str, time_ms: int | None, code: TraceContextCode = TraceContextCode.SUCCESS
) -> SubAfterTrace:
    group = None if time_ms is None else "billing"
    return SubAfterTrace(
        request, ID, 7, code is TraceContextCode.SUCCESS, "order-1", code, time_ms=time_ms, group=group
    )


def trace_message(body: bytes, host: str = "10.0.0.9") -> MessageExt:
    return MessageExt(
        store_size=0,
        magic=MESSAGE_MAGIC_CODE,
        body_crc=0,
        queue_id=0,
        flag=0,
        queue_offset=0,
        phy_offset=0,
        sys_flag=0,
        born_timestamp=9_000,
        raw_born_host=encode_host(host, 47834),
        store_timestamp=9_001,
        raw_store_host=encode_host("127.0.0.1", 10911),
        reconsume_times=0,
        prepared_transaction_offset=0,
        stored_body=body,
        topic="RMQ_SYS_TRACE_TOPIC",
        raw_properties=b"",
        broker_name="broker-a",
    )


def trace_of(*bodies: Iterable[TraceRecord], problems: Iterable[str] = ()) -> MessageTrace:
    messages = [trace_message(encode_trace(records).encode()) for records in bodies]
    return build_trace(ID, KeySearch(messages, list(problems)), "RMQ_SYS_TRACE_TOPIC")


def test_attempts_are_paired_across_trace_messages() -> None:
    second = after("r2", 1_800)
    trace = trace_of(
        [second, before("r1", 1_100)],
        [after("r1", 1_107, TraceContextCode.EXCEPTION)],
        [before("r2", 1_700, 1)],
    )
    (group,) = trace.consumers
    assert group.consumer_group == "billing"
    first, again = group.attempts
    assert (first.begin_ms, first.end_ms, first.cost_ms, first.retry_times) == (1_100, 1_107, 7, 0)
    assert (first.status, first.client_host) == (TraceStatus.EXCEPTION, "10.0.0.9")
    assert (again.begin_ms, again.end_ms, again.retry_times) == (1_700, 1_800, 1)
    assert again.status is TraceStatus.SUCCESS
    assert trace.is_complete and trace.topic is None
    assert (trace.begin_ms, trace.end_ms) == (1_100, 1_800)


def test_a_delivery_without_end_is_unfinished() -> None:
    trace = trace_of([PUB, before("r1", 1_100, group="audit")])
    (attempt,) = trace.consumers[0].attempts
    assert (attempt.status, attempt.end_ms, attempt.cost_ms) == (TraceStatus.UNFINISHED, None, None)
    assert not trace.is_complete and trace.problems == []


@pytest.mark.parametrize(
    ("time_ms", "begin_ms", "group"),
    [(2_000, 1_993, "billing"), (None, 9_000 - 7, "")],
    ids=["local", "cloud"],
)
def test_a_delivery_without_begin_begins_before_its_end(
    time_ms: int | None, begin_ms: int, group: str
) -> None:
    (found,) = trace_of([after("r1", time_ms)]).consumers
    (attempt,) = found.attempts
    assert (found.consumer_group, attempt.begin_ms, attempt.retry_times) == (group, begin_ms, None)
    assert attempt.end_ms == begin_ms + 7


def test_a_cloud_end_takes_group_and_time_of_its_begin() -> None:
    (found,) = trace_of([before("r1", 1_100)], [after("r1", None)]).consumers
    (attempt,) = found.attempts
    assert (found.consumer_group, attempt.begin_ms, attempt.end_ms) == ("billing", 1_100, 1_107)


def test_sends_transactions_and_recalls() -> None:
    end = EndTransactionTrace(
        *(1_050, "DefaultRegion", "shop", "Orders", ID, "TagA", "order-1", "127.0.0.1:10911"),
        *(TraceMessageType.TRANSACTION_COMMIT, "tx-1", "COMMIT_MESSAGE", True),
    )
    recall = RecallTrace(1_060, "DefaultRegion", "shop", "Orders", ID, False)
    again = PubTrace(
        *(1_020, "DefaultRegion", "shop", "Orders", ID, "TagA", "order-1", "127.0.0.1:10911", 6, 3),
        *(TraceMessageType.TRANSACTION_HALF, None, False, "10.9.9.9:1234"),
    )
    trace = trace_of([end, recall, again, PUB])
    first, second = trace.sends
    assert (first.begin_ms, first.end_ms, first.retry_times) == (1_000, 1_005, 0)
    assert (first.status, first.message_type) == (TraceStatus.SUCCESS, "transaction_half")
    assert (second.retry_times, second.status, second.client_host) == (1, TraceStatus.FAILED, "10.9.9.9")
    (ended,) = trace.transactions
    assert (ended.time_ms, ended.state, ended.is_from_check) == (1_050, "COMMIT_MESSAGE", True)
    assert [recalled.status for recalled in trace.recalls] == [TraceStatus.FAILED]
    assert (trace.topic, trace.begin_ms, trace.end_ms) == ("Orders", 1_000, 1_060)


def test_a_trace_message_that_was_stored_twice_counts_once() -> None:
    trace = trace_of([PUB, before("r1", 1_100)], [PUB, before("r1", 1_100)])
    assert len(trace.sends) == len(trace.consumers[0].attempts) == 1


def test_what_could_not_be_read_is_a_problem() -> None:
    whole = encode_trace([PUB]).encode()
    messages = [trace_message(whole + b"SubBefore\x01cut\x02")]
    trace = build_trace(ID, KeySearch(messages, ["broker broker-b could not be queried"]), "Traces")
    assert len(trace.sends) == 1 and not trace.is_complete
    assert trace.problems[0] == "broker broker-b could not be queried"
    assert "broker-a: trace record SubBefore with 1 fields cannot be read" in trace.problems[1]


def test_other_messages_of_the_same_batch_are_left_out() -> None:
    other = SubBeforeTrace(1, None, "billing", "r9", "AnotherId", 0, None)
    assert trace_of([PUB, other]).consumers == []


def test_a_success_with_a_code_of_failure_is_a_success() -> None:
    record = SubAfterTrace("r1", ID, 1, True, None, TraceContextCode.FAILED, 2_000, "billing")
    assert trace_of([record]).consumers[0].attempts[0].status is TraceStatus.SUCCESS
