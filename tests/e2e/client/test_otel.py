"""OpenTelemetry: one trace from the sender's span to the handler's, through a broker."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kourou import (
    AsyncProducer,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    TransactionProducer,
    TransactionState,
)
from kourou.testing.cluster import cluster
from tests.e2e.client.kit.producer_kit import all_stored
from tests.e2e.client.kit.pull_kit import ClusterThread, cluster_thread
from tests.e2e.client.kit.push_kit import consumer_of, make_topic, until
from tests.e2e.doc_programs import run_step, steps, user_environ
from tests.needed import need_module

pytestmark = pytest.mark.e2e

# As on a machine without it, wherever the tests run.
WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
from kourou.client.otel import ConsumeSpans, SendSpans
for kind in (SendSpans, ConsumeSpans):
    try:
        kind()
    except ImportError as error:
        print(error)
"""


class Spans:
    """A provider of tracers, and the spans that ended."""

    def __init__(self) -> None:
        need_module("opentelemetry.sdk")
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("tests")

    def of(self, name: str) -> list[Any]:
        """Those of this name, in the order of their ends."""
        return [span for span in self._exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def spans() -> Iterator[Spans]:
    made = Spans()
    yield made
    made.provider.shutdown()


def test_without_opentelemetry_the_error_says_what_to_install() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, timeout=60)
    assert ran.stderr == ""
    assert ran.stdout == "OpenTelemetry is not installed: pip install 'kourou[otel]'\n" * 2


def test_clients_do_not_import_opentelemetry() -> None:
    program = "import sys, kourou.client.otel, kourou; kourou.Producer; print('opentelemetry' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.stdout, ran.stderr) == ("False\n", "")


@pytest.mark.integration
async def test_a_trace_goes_from_sender_to_handler(spans: Spans, tmp_path: Path) -> None:
    from opentelemetry import trace

    from kourou.client.otel import ConsumeSpans, SendSpans, carry

    seen: list[int] = []

    async def on_message(message: MessageExt) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)
        if message.reconsume_times == 0:
            raise LookupError("no such order")

    async with cluster(tmp_path) as running:
        await make_topic(running)
        sends = SendSpans(spans.provider)
        async with AsyncProducer("p", namesrv=running.namesrv_addr, hooks=[sends]) as producer:
            with spans.tracer.start_as_current_span("checkout") as checkout:
                result = await producer.send(carry(Message("TopicTest", b"one")))
        consumer = consumer_of(running, hooks=[ConsumeSpans(spans.provider)], consume_from="first")
        async with consumer:
            await consumer.subscribe("TopicTest", on_message)
            await until(lambda: len(spans.of("process TopicTest")) == 1)

    (sent,), (consumed,) = spans.of("send TopicTest"), spans.of("process TopicTest")
    trace_id = checkout.get_span_context().trace_id
    assert {sent.context.trace_id, consumed.context.trace_id} == {trace_id}
    assert sent.parent.span_id == consumed.parent.span_id == checkout.get_span_context().span_id
    assert (
        sent.attributes["messaging.message.id"]
        == result.msg_id
        == consumed.attributes["messaging.message.id"]
    )
    assert seen == [consumed.context.span_id]
    assert (sent.status.status_code, consumed.status.status_code) == (
        trace.StatusCode.UNSET,
        trace.StatusCode.ERROR,
    )
    assert consumed.attributes["messaging.rocketmq.consume_result"] == "LATER"
    assert "LookupError" in consumed.events[0].attributes["exception.type"]


@pytest.mark.integration
async def test_a_send_that_fails_is_an_error_of_its_span(spans: Spans, tmp_path: Path) -> None:
    from opentelemetry import trace

    from kourou.client.otel import SendSpans
    from kourou.errors import ResponseError

    async with cluster(tmp_path, max_message_size=1024) as running:
        await make_topic(running)
        sends = SendSpans(spans.provider)
        options: Any = {"namesrv": running.namesrv_addr, "hooks": [sends], "compress_over_bytes": 1 << 20}
        async with AsyncProducer("p", **options) as producer:
            with pytest.raises(ResponseError):
                await producer.send(Message("TopicTest", b"x" * 4096))
    (sent,) = spans.of("send TopicTest")
    assert sent.parent is None
    assert sent.status.status_code is trace.StatusCode.ERROR


@pytest.mark.integration
async def test_a_batch_of_messages_is_linked_to_their_senders(spans: Spans, tmp_path: Path) -> None:
    from kourou.client.otel import ConsumeSpans, SendSpans

    async def on_messages(messages: list[MessageExt]) -> None:
        pass

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        sends = SendSpans(spans.provider)
        async with AsyncProducer("p", namesrv=running.namesrv_addr, hooks=[sends]) as producer:
            for body in (b"one", b"two"):
                await producer.send(Message("TopicTest", body))
        hooks = [ConsumeSpans(spans.provider)]
        async with consumer_of(running, hooks=hooks, consume_from="first", batch_size=10) as consumer:
            await consumer.subscribe("TopicTest", on_messages)
            await until(lambda: spans.of("process TopicTest"))
    (consumed,) = spans.of("process TopicTest")
    assert [link.context.span_id for link in consumed.links] == [
        sent.context.span_id for sent in spans.of("send TopicTest")
    ]
    assert consumed.parent is None
    assert consumed.attributes["messaging.batch.message_count"] == 2


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ClusterThread]:
    with cluster_thread(tmp_path) as running:
        yield running


@pytest.mark.integration
def test_sync_clients_carry_the_context_of_their_callers(spans: Spans, served: ClusterThread) -> None:
    """Through the loop's thread to the broker, and to a handler in a thread, which sends in its own span."""
    from opentelemetry import trace

    from kourou.client.otel import ConsumeSpans, SendSpans

    current: list[int] = []
    is_done = threading.Event()
    served.run(make_topic)
    namesrv = served.run(_address)
    hooks = [SendSpans(spans.provider)]
    with (
        Producer("p", namesrv=namesrv, hooks=hooks) as producer,
        TransactionProducer(
            "tx", namesrv=namesrv, hooks=hooks, check=lambda message: TransactionState.UNKNOWN
        ) as transactions,
        PushConsumer(
            "billing", namesrv=namesrv, hooks=[ConsumeSpans(spans.provider)], consume_from="first"
        ) as consumer,
    ):

        def on_message(message: MessageExt) -> None:
            current.append(trace.get_current_span().get_span_context().span_id)
            if message.body == b"two":
                producer.send(Message("Forwarded", b"one"))
            if len(current) == 5:
                is_done.set()

        with spans.tracer.start_as_current_span("checkout") as checkout:
            producer.send(Message("TopicTest", b"one"))
            producer.send_nowait(Message("TopicTest", b"two")).result()
            producer.send(Message("TopicTest", b"x" * 70_000))  # compressed in a thread
            producer.send_oneway(Message("TopicTest", b"oneway"))
            with transactions.transaction(Message("TopicTest", b"tx")):
                pass
        consumer.subscribe("TopicTest", on_message)
        assert is_done.wait(20)
    checkout_id = checkout.get_span_context().span_id
    sent = spans.of("send TopicTest")
    assert [span.parent.span_id for span in sent] == [checkout_id] * 5
    consumed = spans.of("process TopicTest")
    assert [span.parent.span_id for span in consumed] == [checkout_id] * 5
    assert sorted(current) == sorted(span.context.span_id for span in consumed)
    (forwarded,) = spans.of("send Forwarded")
    assert forwarded.parent.span_id in current
    assert forwarded.context.trace_id == checkout.get_span_context().trace_id


async def _address(running: Any) -> str:
    return str(running.namesrv_addr)


@pytest.mark.integration
async def test_a_batch_links_to_what_it_was_created_in(spans: Spans, tmp_path: Path) -> None:
    from kourou.client.otel import SendSpans, carry

    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        hooks = [SendSpans(spans.provider)]
        async with AsyncProducer("p", namesrv=running.namesrv_addr, hooks=hooks) as producer:
            with spans.tracer.start_as_current_span("checkout") as checkout:
                await producer.send_many([Message("TopicTest", b"%d" % number) for number in range(3)])
            with spans.tracer.start_as_current_span("other"):
                carried = carry(Message("TopicTest", b"carried"))
            await producer.send_many([carried, Message("TopicTest", b"alone")])
        stored = all_stored(running.broker, "TopicTest")
    same, mixed = spans.of("send TopicTest")
    assert same.parent.span_id == checkout.get_span_context().span_id and same.links == ()
    assert same.attributes["messaging.batch.message_count"] == 3
    (other,), (created,) = spans.of("other"), spans.of("create TopicTest")
    assert mixed.parent is None
    assert [link.context.span_id for link in mixed.links] == [other.context.span_id, created.context.span_id]
    assert len({message.properties["traceparent"] for message in stored}) == 3


@pytest.mark.integration
async def test_a_request_and_its_reply_are_one_trace(spans: Spans, tmp_path: Path) -> None:
    from kourou.client.otel import ConsumeSpans, SendSpans

    async with cluster(tmp_path) as running:
        await make_topic(running)
        hooks = [SendSpans(spans.provider)]
        async with AsyncProducer("p", namesrv=running.namesrv_addr, hooks=hooks) as producer:

            async def on_message(message: MessageExt) -> None:
                await producer.send(producer.reply_to(message, b"pong"))

            consumer = consumer_of(running, hooks=[ConsumeSpans(spans.provider)], consume_from="first")
            async with consumer:
                await consumer.subscribe("TopicTest", on_message)
                with spans.tracer.start_as_current_span("ask") as asking:
                    reply = await producer.request(Message("TopicTest", b"ping"), timeout_ms=10_000)
                await until(lambda: spans.of("process TopicTest"))
    (consumed,) = spans.of("process TopicTest")
    assert consumed.parent.span_id == asking.get_span_context().span_id
    trace_id, span_id = reply.properties["traceparent"].split("-")[1:3]
    assert int(trace_id, 16) == asking.get_span_context().trace_id
    assert int(span_id, 16) == consumed.context.span_id
    conversation = consumed.attributes["messaging.message.conversation_id"]
    assert conversation == reply.properties["CORRELATION_ID"]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("opt_in", "prefixes"),
    [
        (None, {"messaging.rocketmq."}),
        ("http, messaging", {"rocketmq."}),
        ("messaging,messaging/dup", {"messaging.rocketmq.", "rocketmq."}),
    ],
)
async def test_attributes_follow_the_chosen_conventions(
    spans: Spans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opt_in: str | None, prefixes: set[str]
) -> None:
    from kourou.client.otel import SendSpans

    monkeypatch.delenv("OTEL_SEMCONV_STABILITY_OPT_IN", raising=False)
    if opt_in is not None:
        monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", opt_in)
    async with cluster(tmp_path) as running:
        await make_topic(running)
        hooks = [SendSpans(spans.provider)]
        async with AsyncProducer("p", namesrv=running.namesrv_addr, hooks=hooks) as producer:
            message = Message("TopicTest", b"hello", tags="TagA", keys=["k1", "k2"])
            await producer.send(message, sharding_key="ann")
        host, port = running.broker.address.split(":")
    (sent,) = spans.of("send TopicTest")
    for prefix in ("messaging.rocketmq.", "rocketmq."):
        found = {name.removeprefix(prefix): sent.attributes[name] for name in sent.attributes}
        has = {
            name: found.get(name) for name in ("message.tag", "message.keys", "message.type", "message.group")
        }
        if prefix in prefixes:
            assert has == {
                "message.tag": "TagA",
                "message.keys": ("k1", "k2"),
                "message.type": "fifo",
                "message.group": "ann",
            }
        else:
            assert set(has.values()) == {None}
    assert (sent.attributes["server.address"], sent.attributes["server.port"]) == (host, int(port))
    assert sent.attributes["messaging.message.body.size"] == 5
    assert "messaging.batch.message_count" not in sent.attributes


@pytest.mark.integration
def test_plain_handlers_ask_for_the_context(spans: Spans, served: ClusterThread) -> None:
    from kourou.client.otel import ConsumeSpans, SendSpans, carry, context_of

    is_done = threading.Event()

    def on_message(message: MessageExt) -> None:
        with spans.tracer.start_as_current_span("billing", context=context_of(message)):
            pass
        is_done.set()

    served.run(make_topic)
    namesrv = served.run(_address)
    with Producer("p", namesrv=namesrv, hooks=[SendSpans(spans.provider)]) as producer:
        with spans.tracer.start_as_current_span("checkout") as checkout:
            producer.send(carry(Message("TopicTest", b"one")))
    hooks = [ConsumeSpans(spans.provider)]
    with PushConsumer("billing", namesrv=namesrv, hooks=hooks, consume_from="first") as consumer:
        consumer.subscribe("TopicTest", on_message)
        assert is_done.wait(20)
    (billing,) = spans.of("billing")
    assert billing.parent.span_id == checkout.get_span_context().span_id
    assert {span.context.trace_id for span in spans.of("send TopicTest") + spans.of("process TopicTest")} == {
        billing.context.trace_id
    }


@pytest.mark.integration
async def test_the_program_of_the_guide(tmp_path: Path) -> None:
    need_module("opentelemetry.sdk")
    (step,) = (step for step in steps("docs/client.md") if step.file_name == "traced_orders.py")
    async with cluster(tmp_path / "store") as running:
        environ = user_environ(tmp_path) | {"NAMESRV_ADDR": running.namesrv_addr}
        printed = await run_step(step, running.namesrv_addr, tmp_path, environ)
    ids = {line.rpartition(" ")[2] for line in printed if " in " in line}
    assert len(ids) == 1 and f"00-{ids.pop()}-" in printed[2]
