"""Clients that trace: what they tell of each message is kept in the trace topic, and mqadmin shows it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pytest

from kourou.admin.messages.trace import MessageTrace, TraceStatus, message_trace
from kourou.admin.messages.trace_export import TraceExport, TraceExportOptions
from kourou.admin.messages.trace_spans import TraceSpan
from kourou.admin.session import Admin
from tests.interop.kit import wire
from tests.interop.kit.cluster import wait_until
from tests.interop.kit.lanes import JAVA_LANES, Lane, every_java_lane
from tests.interop.kit.messaging_session import Fields, bodies

pytestmark = pytest.mark.interop

_TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
_COUNT: Final = 3
# A client gathers what it has to tell for up to 5 s.
_TOLD_S: Final = 30
_FIELD_END: Final = "\x01"
_RECORD_END: Final = "\x02"


@dataclass(frozen=True, slots=True)
class Traced:
    """A producer and a group that trace, and messages between them; the group fails once on the second."""

    lane: Lane
    topic: str
    producer: str
    group: str
    sent: list[Fields]

    def records(self, number: int) -> list[list[str]]:
        """What the trace topic has of a message, as records of fields."""
        message = self.sent[number]
        now_ms = int(time.time() * 1000)
        found: list[Fields] = self.lane.client.ask(
            "query", producer=self.lane.sender, topic=_TRACE_TOPIC, key=message["msgId"], begin=0, end=now_ms
        )
        records = [
            record.split(_FIELD_END) for one in found for record in one["body"].split(_RECORD_END) if record
        ]
        return [record for record in records if message["msgId"] in record]

    def types(self, number: int) -> list[str]:
        """The types of the records of a message."""
        return sorted(record[0] for record in self.records(number))


@pytest.fixture(scope="module")
def traces(lanes: dict[str, Lane]) -> Iterator[dict[str, Traced]]:
    """Traced messages in every lane, on their way."""
    begun: dict[str, Traced] = {}
    for name in JAVA_LANES:
        lane = lanes[name]
        topic = lane.new_topic("traced", queues=1)
        producer = lane.start_producer(trace=True)
        group = lane.start_consumer(topic, trace=True, fails=1, failing="-1", delayLevel=1)
        sent = lane.client.send(producer, "sync", topic, _COUNT)
        begun[name] = Traced(lane, topic, producer, group, sent)
    yield begun
    for traced in begun.values():
        traced.lane.client.stop(traced.producer, traced.group)


def wait_types(traced: Traced, number: int, *types: str) -> None:
    """Wait until the trace topic has records of these types, and no others, of a message."""
    wait_until(
        lambda: traced.types(number) == sorted(types), timeout_s=_TOLD_S, what=f"{types} of {traced.topic}"
    )


@every_java_lane
def test_the_trace_topic_has_what_clients_report(traces: dict[str, Traced], lane_name: str) -> None:
    traced = traces[lane_name]
    wait_types(traced, 0, "Pub", "SubBefore", "SubAfter")
    records = {record[0]: record for record in traced.records(0)}
    message, store = traced.sent[0], traced.lane.cluster.broker.address
    assert records["Pub"][3:9] == [
        traced.producer,
        traced.topic,
        message["msgId"],
        message["tags"],
        message["keys"],
        store,
    ]
    assert records["Pub"][9] == str(message["size"])
    assert records["Pub"][11:14] == ["0", message["offsetMsgId"], "true"]
    _, _, _, group, request_id, msg_id, retries, keys = records["SubBefore"][:8]
    assert (group, msg_id, retries, keys) == (traced.group, message["msgId"], "0", message["keys"])
    assert records["SubAfter"][1:3] == [request_id, message["msgId"]]
    assert records["SubAfter"][4] == "true"


@every_java_lane
def test_a_failure_and_the_retry_are_traced(traces: dict[str, Traced], lane_name: str) -> None:
    traced = traces[lane_name]
    wait_types(traced, 1, "Pub", "SubBefore", "SubAfter", "SubBefore", "SubAfter")
    records = traced.records(1)
    assert sorted(record[6] for record in records if record[0] == "SubBefore") == ["0", "1"]
    assert sorted(record[4] for record in records if record[0] == "SubAfter") == ["false", "true"]


@every_java_lane
def test_mqadmin_shows_the_trace_of_a_message(traces: dict[str, Traced], lane_name: str) -> None:
    traced = traces[lane_name]
    wait_types(traced, 0, "Pub", "SubBefore", "SubAfter")
    shown = traced.lane.run_admin("queryMsgTraceById", "-i", traced.sent[0]["msgId"])
    rows = [line.split() for line in shown.stdout.splitlines()]
    assert any(row[:2] == ["Pub", traced.producer] and row[-1] == "success" for row in rows), shown
    assert any(row[:2] == ["Sub", traced.group] and row[-1] == "success" for row in rows), shown


@every_java_lane
def test_a_trace_as_a_timeline(traces: dict[str, Traced], lane_name: str) -> None:
    """The failed attempt and the retry of a Java consumer, with all that its records have."""
    traced = traces[lane_name]
    wait_types(traced, 1, "Pub", "SubBefore", "SubAfter", "SubBefore", "SubAfter")
    message = traced.sent[1]

    async def read() -> MessageTrace:
        async with Admin(namesrv=traced.lane.cluster.namesrv) as admin:
            return await message_trace(admin, message["msgId"])

    trace = asyncio.run(read())
    assert trace.is_complete and trace.topic == traced.topic
    (sent,), (group,) = trace.sends, trace.consumers
    assert (sent.group, sent.keys, sent.tags) == (traced.producer, message["keys"], message["tags"])
    assert (sent.offset_msg_id, sent.message_type) == (message["offsetMsgId"], "normal")
    assert group.consumer_group == traced.group
    failed, done = group.attempts
    assert (failed.retry_times, failed.status) == (0, TraceStatus.FAILED)
    assert (done.retry_times, done.status) == (1, TraceStatus.SUCCESS)
    assert failed.end_ms is not None
    assert sent.begin_ms <= failed.begin_ms <= failed.end_ms <= done.begin_ms <= trace.end_ms


@every_java_lane
def test_traces_of_java_clients_become_spans(traces: dict[str, Traced], lane_name: str) -> None:
    traced = traces[lane_name]
    wait_types(traced, 1, "Pub", "SubBefore", "SubAfter", "SubBefore", "SubAfter")
    msg_id = traced.sent[1]["msgId"]
    exported: dict[str, TraceSpan] = {}

    async def take(spans: Sequence[TraceSpan]) -> None:
        exported.update(
            (span.span_id, span) for span in spans if span.attributes["messaging.message.id"] == msg_id
        )

    async def export() -> None:
        options = TraceExportOptions(group=f"{traced.group}-export", consume_from="first")
        async with Admin(namesrv=traced.lane.cluster.namesrv) as admin:
            running = TraceExport(admin, take, options)
            task = asyncio.create_task(running.run())
            async with asyncio.timeout(_TOLD_S):
                while len(exported) < 3 and not task.done():  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            running.stop()
            await task

    asyncio.run(export())
    sent, failed, done = sorted(exported.values(), key=lambda span: span.start_ns)
    assert [span.name for span in (sent, failed, done)] == [
        f"send {traced.topic}",
        f"process {traced.topic}",
        f"process {traced.topic}",
    ]
    assert failed.parent_span_id == done.parent_span_id == sent.span_id
    assert (sent.error, failed.error, done.error) == (None, "failed", None)
    assert (sent.service, done.service) == (traced.producer, traced.group)


@every_java_lane
def test_the_trace_topic_is_an_ordinary_topic(traces: dict[str, Traced], lane_name: str) -> None:
    """Anybody may read it."""
    traced = traces[lane_name]
    wait_types(traced, 2, "Pub", "SubBefore", "SubAfter")
    lane = traced.lane
    assert lane.cluster.broker.address in wire.route_addresses(lane.cluster.namesrv, _TRACE_TOPIC)
    reader = lane.start_consumer(_TRACE_TOPIC)

    def is_told() -> bool:
        texts = bodies(lane.client.received(reader, 0))
        return any(traced.sent[2]["msgId"] in text for text in texts)

    wait_until(is_told, timeout_s=20, what=f"the trace of {traced.topic}")
    lane.client.stop(reader)
