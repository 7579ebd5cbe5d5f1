"""OpenTelemetry: spans of sends and handlers, and the context that a message carries.

    pip install 'kourou[otel]'

    with Producer("orders", hooks=[SendSpans()]) as producer:
        producer.send(Message("Orders", b"one book"))

    PushConsumer("billing", hooks=[ConsumeSpans()])

A message carries the context in which it was sent as user properties: `traceparent`, `tracestate` and others
that the global propagator writes. Brokers, retries, dead letters, delays and copies keep user properties. A
message that already carries a context keeps it. Each attempt to send is a PRODUCER span below that context;
without one, the first attempt's span is the context, and each message of `send_many` gets a span of its own
(`create`), which the batch's span links to. Each call of a handler is a CONSUMER span below the message's
context, or linked to all of a batch, and is current while the handler runs.

`carry` is for messages that are sent in another context than the current one, or by a producer without the
hook; `context_of` for handlers that read messages themselves. Attributes: span_attributes.py.
OpenTelemetry is imported on first use. Not here: exporters, which the application sets up; RocketMQ's own
trace (`trace=True`), which `kourou trace export` sends as spans.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kourou.client.producer.producer_hooks import ProducerHook, SendContext
from kourou.client.push.handlers import ConsumeHookContext, ConsumerHook
from kourou.client.trace.span_attributes import OPT_IN, Attributes, Conventions, operation, server
from kourou.protocol.message import Message, MessageExt

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

__all__ = ["ConsumeSpans", "SendSpans", "carry", "context_of"]

_SPAN: Final = "otel span"
_TOKEN: Final = "otel token"
_NAME: Final = "kourou"


class _Api:
    """The used parts of OpenTelemetry."""

    def __init__(self) -> None:
        try:
            from opentelemetry import context, propagate, trace
        except ImportError as error:
            raise ImportError(
                "OpenTelemetry is not installed: pip install 'kourou[otel]'", name=error.name
            ) from error
        self.context: Any = context
        self.propagate: Any = propagate
        self.trace: Any = trace

    def sent_in(self, message: Message | MessageExt) -> Any:
        """The context in the message's properties; an empty one if there is none."""
        return self.propagate.extract(dict(message.properties), context=self.context.Context())

    def put(self, message: Message, context: Any) -> None:
        """Put a context into the message."""
        fields: dict[str, str] = {}
        self.propagate.inject(fields, context=context)
        for name, value in fields.items():
            if value:
                message.put_user_property(name, value)

    def span_context(self, context: Any) -> Any:
        """The context of the span in `context`; not valid if there is none."""
        return self.trace.get_current_span(context).get_span_context()

    def fail(self, span: Any, description: str, error: BaseException | None = None) -> None:
        """Set the status of a span to an error."""
        if error is not None:
            span.record_exception(error)
            span.set_attribute("error.type", type(error).__qualname__)
        span.set_status(self.trace.Status(self.trace.StatusCode.ERROR, description))


def carry(message: Message) -> Message:
    """Put the current context into a message before it is sent; returns the message."""
    _Api().put(message, None)
    return message


def context_of(message: MessageExt) -> Any:
    """The context that a message was sent in, for your own spans: `start_span(…, context=…)`."""
    return _Api().sent_in(message)


class _Spans:
    """What both hooks need; by default the global tracer provider creates the spans."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._api = _Api()
        self._tracer = self._api.trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        self._conventions = Conventions(os.environ.get(OPT_IN))

    def _links(self, contexts: Sequence[Any]) -> list[Any]:
        """Links to the spans of these contexts, each once."""
        spans = {(span.trace_id, span.span_id): span for span in map(self._api.span_context, contexts)}
        return [self._api.trace.Link(span) for span in spans.values() if span.is_valid]


class SendSpans(_Spans, ProducerHook):
    """A producer hook that puts the current context into messages and creates spans of sends."""

    def prepare(self, messages: Sequence[Message]) -> None:
        """Put the caller's context into messages that carry none."""
        api = self._api
        has_span = api.span_context(None).is_valid
        if not has_span and len(messages) == 1:
            return  # it gets the span of its first attempt
        for message in messages:
            if api.span_context(api.sent_in(message)).is_valid:
                continue
            if has_span:
                api.put(message, None)
            else:
                api.put(message, api.trace.set_span_in_context(self._created(message)))

    def _created(self, message: Message) -> Any:
        attributes = operation("create", "create", message.topic) | self._conventions.of_message(message)
        kind = self._api.trace.SpanKind.PRODUCER
        span = self._tracer.start_span(f"create {message.topic}", None, kind, attributes)
        span.end()
        return span

    def before_send(self, context: SendContext) -> None:
        """Start a span below the context of the messages."""
        api, messages = self._api, context.messages
        contexts = [api.sent_in(message) for message in messages]
        links = self._links(contexts) if len(messages) > 1 else []
        # The messages of a batch may come from several contexts.
        parent = contexts[0] if len(links) < 2 else api.context.Context()
        kind = api.trace.SpanKind.PRODUCER
        span = self._tracer.start_span(
            f"send {context.topic}", parent, kind, self._attributes(context), links if len(links) > 1 else ()
        )
        context.notes[_SPAN] = span
        # Messages of a batch are already encoded: only a single message can still change.
        if len(messages) == 1 and not api.span_context(parent).is_valid:
            api.put(messages[0], api.trace.set_span_in_context(span))

    def _attributes(self, context: SendContext) -> Attributes:
        conventions, messages = self._conventions, context.messages
        attributes = operation("send", "send", context.topic) | server(context.broker_address)
        attributes |= conventions.client_group(context.producer_group)
        attributes |= conventions.rocketmq({"attempt": context.attempt})
        attributes["messaging.destination.partition.id"] = str(context.queue.queue_id)
        attributes["messaging.client.id"] = context.client_id
        if len(messages) > 1:
            attributes["messaging.batch.message_count"] = len(messages)
            return attributes
        return attributes | conventions.of_message(messages[0], is_half=context.is_half)

    def after_send(self, context: SendContext) -> None:
        """End the span, with the result of the attempt."""
        span = context.notes.pop(_SPAN)
        if context.error is not None:
            self._api.fail(span, str(context.error), context.error)
        span.end()


class ConsumeSpans(_Spans, ConsumerHook):
    """A consumer hook that creates spans of handlers."""

    def before_consume(self, context: ConsumeHookContext) -> None:
        """Start a span and make it current: the same task calls the handler."""
        api, first = self._api, context.messages[0]
        senders = [api.sent_in(message) for message in context.messages]
        is_batch = len(senders) > 1
        span = self._tracer.start_span(
            f"process {first.topic}",
            api.context.Context() if is_batch else senders[0],
            api.trace.SpanKind.CONSUMER,
            self._attributes(context),
            self._links(senders) if is_batch else (),
        )
        context.notes[_SPAN] = span
        context.notes[_TOKEN] = api.context.attach(api.trace.set_span_in_context(span))

    def _attributes(self, context: ConsumeHookContext) -> Attributes:
        conventions, messages = self._conventions, context.messages
        attributes = operation("process", "process", messages[0].topic)
        attributes |= conventions.client_group(context.group)
        attributes["messaging.consumer.group.name"] = context.group
        attributes["messaging.destination.partition.id"] = str(context.queue.queue_id)
        if len(messages) > 1:
            attributes["messaging.batch.message_count"] = len(messages)
            return attributes
        attributes |= conventions.rocketmq({"reconsume_times": messages[0].reconsume_times})
        return attributes | conventions.of_message(messages[0])

    def after_consume(self, context: ConsumeHookContext) -> None:
        """End the span, with the result of the handler."""
        span = context.notes.pop(_SPAN)
        self._api.context.detach(context.notes.pop(_TOKEN))
        if context.result is not None:
            result = self._conventions.rocketmq({"consume_result": context.result.value})
            span.set_attributes(result)
        if context.error is not None:
            self._api.fail(span, str(context.error) or "the handler was cancelled", context.error)
        elif context.result is None:
            self._api.fail(span, "the handler was abandoned")
        span.end()
