"""OpenTelemetry: spans of sends and handlers, and the context that a message carries.

    pip install 'kourou[otel]'

    with Producer("orders", hooks=[SendSpans()]) as producer:
        producer.send(carry(Message("Orders", b"one book")))

    PushConsumer("billing", hooks=[ConsumeSpans()])

A producer sends from its own loop, often for many callers at once, so no caller's span is current there:
`carry` puts the caller's context into the message's properties (`traceparent` and others that the global
propagator writes). Each attempt to send is a PRODUCER span below it. A message without a context gets that of
its first attempt. Each call of a handler is a CONSUMER span below the message's, or linked to all of a batch.
An `async def` handler runs inside its span; a sync one runs in another thread and calls `context_of`.

OpenTelemetry is imported on first use. Not here: exporters, which the application sets up; RocketMQ's own
trace (`trace=True`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kourou.client.producer.producer_hooks import ProducerHook, SendContext
from kourou.client.push.handlers import ConsumeHookContext, ConsumerHook
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
        span.set_status(self.trace.Status(self.trace.StatusCode.ERROR, description))


def carry(message: Message) -> Message:
    """Put the current context into a message before it is sent; returns the message."""
    _Api().put(message, None)
    return message


def context_of(message: MessageExt) -> Any:
    """The context that a message was sent in, for your own spans: `start_span(…, context=…)`."""
    return _Api().sent_in(message)


class SendSpans(ProducerHook):
    """A producer hook that creates spans of sends, by default with the global tracer provider."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._api = _Api()
        self._tracer = self._api.trace.get_tracer(_NAME, tracer_provider=tracer_provider)

    def before_send(self, context: SendContext) -> None:
        """Start a span below the message's context."""
        api, message = self._api, context.messages[0]
        parent = api.sent_in(message)
        attributes = {
            "messaging.system": "rocketmq",
            "messaging.operation.type": "send",
            "messaging.operation.name": "send",
            "messaging.destination.name": context.topic,
            "messaging.destination.partition.id": str(context.queue.queue_id),
            "messaging.rocketmq.client_group": context.producer_group,
            "messaging.client.id": context.client_id,
            "messaging.batch.message_count": len(context.messages),
            "messaging.rocketmq.attempt": context.attempt,
            "server.address": context.broker_address,
        }
        kind = api.trace.SpanKind.PRODUCER
        span = self._tracer.start_span(f"send {context.topic}", parent, kind, attributes)
        context.notes[_SPAN] = span
        # Messages of a batch are already encoded: only a single message can still change.
        if len(context.messages) == 1 and not api.span_context(parent).is_valid:
            api.put(message, api.trace.set_span_in_context(span))

    def after_send(self, context: SendContext) -> None:
        """End the span, with the result of the attempt."""
        span = context.notes.pop(_SPAN)
        if context.result is not None:
            span.set_attribute("messaging.message.id", context.result.msg_id)
        if context.error is not None:
            self._api.fail(span, str(context.error), context.error)
        span.end()


class ConsumeSpans(ConsumerHook):
    """A consumer hook that creates spans of handlers, by default with the global tracer provider."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._api = _Api()
        self._tracer = self._api.trace.get_tracer(_NAME, tracer_provider=tracer_provider)

    def before_consume(self, context: ConsumeHookContext) -> None:
        """Start a span and make it current: the same task calls the handler."""
        api, first = self._api, context.messages[0]
        senders = [api.sent_in(message) for message in context.messages]
        is_batch = len(senders) > 1
        attributes = {
            "messaging.system": "rocketmq",
            "messaging.operation.type": "process",
            "messaging.operation.name": "process",
            "messaging.destination.name": first.topic,
            "messaging.destination.partition.id": str(context.queue.queue_id),
            "messaging.consumer.group.name": context.group,
            "messaging.message.id": first.msg_id,
            "messaging.batch.message_count": len(senders),
            "messaging.rocketmq.reconsume_times": first.reconsume_times,
        }
        span = self._tracer.start_span(
            f"process {first.topic}",
            api.context.Context() if is_batch else senders[0],
            api.trace.SpanKind.CONSUMER,
            attributes,
            self._links(senders) if is_batch else (),
        )
        context.notes[_SPAN] = span
        context.notes[_TOKEN] = api.context.attach(api.trace.set_span_in_context(span))

    def _links(self, senders: list[Any]) -> list[Any]:
        spans = [self._api.span_context(sender) for sender in senders]
        return [self._api.trace.Link(span) for span in spans if span.is_valid]

    def after_consume(self, context: ConsumeHookContext) -> None:
        """End the span, with the result of the handler."""
        span = context.notes.pop(_SPAN)
        self._api.context.detach(context.notes.pop(_TOKEN))
        if context.result is not None:
            span.set_attribute("messaging.rocketmq.consume_result", context.result.value)
        if context.error is not None:
            self._api.fail(span, str(context.error) or "the handler was cancelled", context.error)
        elif context.result is None:
            self._api.fail(span, "the handler was abandoned")
        span.end()
