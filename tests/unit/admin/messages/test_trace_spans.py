"""Trace records as spans: ids, parents, pairs, and what waits for what."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from kourou.admin.messages.trace import Reported
from kourou.admin.messages.trace_spans import (
    SETTLE_S,
    UNFINISHED_S,
    Origin,
    Recent,
    SpanDrafts,
    SpanKind,
    TraceSpan,
    origin_of,
)
from kourou.client.trace.span_attributes import Conventions
from kourou.client.trace.trace_data import (
    EndTransactionTrace,
    PubTrace,
    RecallTrace,
    SubAfterTrace,
    SubBeforeTrace,
    TraceContextCode,
    TraceMessageType,
    TraceRecord,
)
from kourou.protocol.bodies import MessageQueue

ID = "7F00000150805FFD2B2748C076780775"
QUEUE = MessageQueue("RMQ_SYS_TRACE_TOPIC", "broker-a", 0)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PUB = PubTrace(
    *(1_000, "DefaultRegion", "shop", "Orders", ID, "TagA", "k1 k2", "127.0.0.1:10911", 6, 5),
    *(TraceMessageType.NORMAL, "7F00000100002A9F00000000000DAC6B", True),
)
BEFORE = SubBeforeTrace(1_100, "DefaultRegion", "billing", "r1", ID, 2, "k1 k2")
AFTER = SubAfterTrace("r1", ID, 7, False, "k1 k2", TraceContextCode.EXCEPTION, 1_107, "billing")


class Collected:
    """Drafts, with a clock."""

    def __init__(self, opt_in: str | None = None) -> None:
        self.drafts = SpanDrafts(Conventions(opt_in))
        self.now_s = 0.0

    def add(self, *records: TraceRecord, queue_offset: int = 0) -> None:
        for record in records:
            reported = Reported(record, "10.0.0.9", "127.0.0.1:10911", 9_000)
            self.drafts.add(reported, (QUEUE, queue_offset), self.now_s)

    def spans(self, origin: Origin, is_known: Callable[[str], bool] = lambda msg_id: True) -> list[TraceSpan]:
        return [draft.span(origin) for draft in self.drafts.take(self.now_s, is_known)]


def unjoined() -> Origin:
    return origin_of(ID, "Orders", None, None)


def test_a_send_is_the_parent_of_the_deliveries() -> None:
    collected = Collected()
    collected.add(PUB, BEFORE, AFTER)
    sent, consumed = collected.spans(unjoined())
    assert (sent.name, sent.kind, sent.parent_span_id) == ("send Orders", SpanKind.PRODUCER, None)
    assert (sent.start_ns, sent.end_ns) == (1_000_000_000, 1_005_000_000)
    assert (consumed.name, consumed.kind) == ("process Orders", SpanKind.CONSUMER)
    assert (consumed.start_ns, consumed.end_ns) == (1_100_000_000, 1_107_000_000)
    assert consumed.parent_span_id == sent.span_id and consumed.trace_id == sent.trace_id
    assert (sent.service, consumed.service) == ("shop", "billing")
    assert (sent.error, consumed.error) == (None, "exception")
    assert sent.attributes["messaging.rocketmq.message.keys"] == ["k1", "k2"]
    assert (sent.attributes["server.address"], sent.attributes["server.port"]) == ("127.0.0.1", 10911)
    assert consumed.attributes["messaging.rocketmq.reconsume_times"] == 2
    assert len(sent.trace_id) == 32 and len(sent.span_id) == 16


def test_spans_join_the_trace_that_a_message_carries() -> None:
    collected = Collected("messaging")
    collected.add(PUB, BEFORE, AFTER)
    sent, consumed = collected.spans(origin_of(ID, "Orders", PARENT, "vendor=1"))
    for span in (sent, consumed):
        assert span.trace_id == "0af7651916cd43dd8448eb211c80319c"
        assert (span.parent_span_id, span.trace_state) == ("b7ad6b7169203331", "vendor=1")
    assert sent.attributes["rocketmq.message.tag"] == "TagA"


@pytest.mark.parametrize(
    "traceparent",
    [
        None,
        "",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        PARENT + "\n",
    ],
)
def test_a_traceparent_that_is_not_valid_counts_as_none(traceparent: str | None) -> None:
    assert origin_of(ID, "Orders", traceparent, "vendor=1") == unjoined()


def test_the_sampling_flag_is_kept() -> None:
    assert not origin_of(ID, None, PARENT[:-2] + "02", None).is_sampled
    assert origin_of(ID, None, "01" + PARENT[2:-2] + "03-more", None).is_sampled


def test_the_same_records_give_the_same_spans() -> None:
    spans = []
    for _ in range(2):
        collected = Collected()
        collected.add(PUB, BEFORE, AFTER)
        spans.append(collected.spans(unjoined()))
    assert spans[0] == spans[1]


def test_a_second_send_of_a_message_is_a_span_of_its_own() -> None:
    collected = Collected()
    again = PubTrace(
        *(1_500, "DefaultRegion", "shop", "Orders", ID, "TagA", "k1 k2", "127.0.0.1:10911", 6, 5),
        *(TraceMessageType.NORMAL, "7F00000100002A9F00000000000DACFF", True),
    )
    collected.add(PUB, again, PUB)
    first, second, repeated = collected.spans(unjoined())
    assert second.span_id != first.span_id == repeated.span_id
    assert second.parent_span_id == first.span_id


def test_records_of_a_delivery_are_paired_in_any_order() -> None:
    collected = Collected()
    collected.add(AFTER)
    assert collected.spans(unjoined()) == []
    collected.add(BEFORE)
    (consumed,) = collected.spans(unjoined())
    assert consumed.start_ns == 1_100_000_000
    assert collected.spans(unjoined()) == []


def test_an_end_without_begin_waits_a_while() -> None:
    collected = Collected()
    collected.add(AFTER)
    collected.now_s = SETTLE_S
    (consumed,) = collected.spans(unjoined())
    assert (consumed.start_ns, consumed.end_ns) == (1_100_000_000, 1_107_000_000)
    assert "messaging.rocketmq.reconsume_times" not in consumed.attributes


def test_a_delivery_waits_for_the_record_of_its_send() -> None:
    collected = Collected()
    collected.add(BEFORE, AFTER)
    assert collected.spans(unjoined(), lambda msg_id: False) == []
    assert len(collected.spans(unjoined(), lambda msg_id: msg_id == ID)) == 1
    collected.add(BEFORE, AFTER)
    collected.now_s = SETTLE_S
    (consumed,) = collected.spans(origin_of(ID, None, None, None), lambda msg_id: False)
    assert consumed.name == "process" and "messaging.destination.name" not in consumed.attributes


def test_a_delivery_without_end_is_exported_late() -> None:
    collected = Collected()
    collected.add(BEFORE)
    collected.now_s = UNFINISHED_S - 1
    assert collected.spans(unjoined()) == []
    collected.now_s = UNFINISHED_S
    (consumed,) = collected.spans(unjoined())
    assert consumed.error == "no end is recorded" and consumed.start_ns == consumed.end_ns


def test_messages_of_one_call_are_kept_apart() -> None:
    other = SubAfterTrace("r1", "AnotherId", 7, True, None, TraceContextCode.SUCCESS, 1_107, "billing")
    collected = Collected()
    collected.add(BEFORE, other)
    assert collected.spans(unjoined()) == []


def test_ends_of_transactions_and_recalls() -> None:
    def end(state: str, *, is_from_check: bool) -> EndTransactionTrace:
        return EndTransactionTrace(
            *(1_050, "DefaultRegion", "shop", "Orders", ID, None, None, "127.0.0.1:10911"),
            *(TraceMessageType.TRANSACTION_COMMIT, "tx-1", state, is_from_check),
        )

    collected = Collected()
    collected.add(end("UNKNOW", is_from_check=False), end("COMMIT_MESSAGE", is_from_check=True))
    collected.add(RecallTrace(1_060, "DefaultRegion", "shop", "Orders", ID, False))
    spans = collected.spans(unjoined())
    assert [span.name for span in spans] == ["check Orders", "commit Orders", "recall Orders"]
    assert len({span.span_id for span in spans}) == 3
    assert [span.error for span in spans] == [None, None, "failed"]
    assert spans[1].attributes["messaging.rocketmq.from_transaction_check"] is True


def test_offsets_of_what_waits_are_not_committed() -> None:
    collected = Collected()
    collected.add(BEFORE, queue_offset=3)
    assert collected.drafts.oldest_offsets() == {}
    collected.add(AFTER, queue_offset=5)
    collected.add(SubAfterTrace("r2", ID, 7, True, None, TraceContextCode.SUCCESS, 1, "b"), queue_offset=9)
    assert collected.drafts.oldest_offsets() == {QUEUE: 5}
    collected.spans(unjoined())
    assert collected.drafts.oldest_offsets() == {QUEUE: 9}


@pytest.mark.parametrize("time_ms", [-5, 1 << 80])
def test_times_stay_within_the_limits_of_otlp(time_ms: int) -> None:
    collected = Collected()
    collected.add(dataclasses.replace(PUB, time_ms=time_ms))
    (sent,) = collected.spans(unjoined())
    assert 0 <= sent.start_ns <= sent.end_ns < 1 << 63


def test_only_recent_entries_are_kept() -> None:
    recent: Recent[str, int] = Recent(2)
    for number, name in enumerate("abcb"):
        recent[name] = number
    recent.setdefault("d", 9)
    assert dict(recent) == {"b": 3, "d": 9}
