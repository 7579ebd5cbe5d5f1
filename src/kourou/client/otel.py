"""OpenTelemetry: spans of what is sent and consumed, and the context that goes with a message.

    pip install 'kourou[otel]'

    with Producer("orders", hooks=[SendSpans()]) as producer:
        producer.send(carry(Message("Orders", b"one book")))

    PushConsumer("billing", hooks=[ConsumeSpans()])

A producer sends from its own loop, often for many callers at once, so nobody's span is current there:
`carry` puts the caller's context into the message's properties (`traceparent` and what else the global
propagator writes). Each attempt to send is a PRODUCER span below it. A message without a context gets that
of its first attempt. Each call of a handler is a CONSUMER span below the message's, or linked to all of a
batch. An `async def` handler runs inside its span; a plain one runs in another thread and asks `context_of`.

OpenTelemetry is imported when one of these is used. Not here: exporters, which the application sets up;
RocketMQ's own trace (`trace=True`).
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
    """What is used of OpenTelemetry."""

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
        """The context in the message's properties; an empty one where there is none."""
        return self.propagate.extract(dict(message.properties), context=self.context.Context())

    def put(self, message: Message, context: Any) -> None:
        """Let the message carry a context."""
        fields: dict[str, str] = {}
        self.propagate.inject(fields, context=context)
        for name, value in fields.items():
            if value:
                message.put_user_property(name, value)

    def span_context(self, context: Any) -> Any:
        """That of the span in `context`; not valid where there is none."""
        return self.trace.get_current_span(context).get_span_context()

    def fail(self, span: Any, description: str, error: BaseException | None = None) -> None:
        """Note on a span that it ended badly."""
        if error is not None:
            span.record_exception(error)
        span.set_status(self.trace.Status(self.trace.StatusCode.ERROR, description))


def carry(message: Message) -> Message:
    """Put the current context into a message that is about to be sent; the same message."""
    _Api().put(message, None)
    return message


def context_of(message: MessageExt) -> Any:
    """The context that a message was sent in, for a span of one's own: `start_span(…, context=…)`."""
    return _Api().sent_in(message)


class SendSpans(ProducerHook):
    """Spans of sends. Without `tracer_provider` the global one makes them."""

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
        # What is inside a batch was encoded before: only a message that travels alone can still change.
        if len(context.messages) == 1 and not api.span_context(parent).is_valid:
            api.put(message, api.trace.set_span_in_context(span))

    def after_send(self, context: SendContext) -> None:
        """End it, with what came of the attempt."""
        span = context.notes.pop(_SPAN)
        if context.result is not None:
            span.set_attribute("messaging.message.id", context.result.msg_id)
        if context.error is not None:
            self._api.fail(span, str(context.error), context.error)
        span.end()


class ConsumeSpans(ConsumerHook):
    """Spans of handlers. Without `tracer_provider` the global one makes them."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._api = _Api()
        self._tracer = self._api.trace.get_tracer(_NAME, tracer_provider=tracer_provider)

    def before_consume(self, context: ConsumeHookContext) -> None:
        """Start a span and make it current: the handler is called by the same task."""
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
        """End it, with what came of the handler."""
        span = context.notes.pop(_SPAN)
        self._api.context.detach(context.notes.pop(_TOKEN))
        if context.result is not None:
            span.set_attribute("messaging.rocketmq.consume_result", context.result.value)
        if context.error is not None:
            self._api.fail(span, str(context.error) or "the handler was cancelled", context.error)
        elif context.result is None:
            self._api.fail(span, "the handler was given up")
        span.end()
