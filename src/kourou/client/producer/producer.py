"""AsyncProducer: sends messages to any RocketMQ.

Not here: how a message gets to a broker (sends.py), transactions (transaction_producer.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain, pairwise
from types import TracebackType
from typing import Final, Self, Unpack

from kourou.argument_types import check_int, wrong_type
from kourou.client.core.client_blocks import ASYNC_NOT_STARTED, AsyncBlockOnly
from kourou.client.core.failure_log import REPORT_INTERVAL_MS, FailureLog
from kourou.client.core.instance import ClientInstance
from kourou.client.core.message_checks import check_group
from kourou.client.core.namespaces import Namespace
from kourou.client.core.settings import ClientSettings, lists_options
from kourou.client.core.stop_once import StopOnce
from kourou.client.core.unique_id import shared_unique_ids
from kourou.client.producer.atomic_batch import AsyncAtomicBatch
from kourou.client.producer.atomic_publish import AtomicHandle, AtomicPublish
from kourou.client.producer.atomic_sessions import AtomicSessions
from kourou.client.producer.outgoing import Outgoing, PreparedOutgoing, plan_batches
from kourou.client.producer.pending_send import ChooseQueue
from kourou.client.producer.producer_groups import enter_group, leave_group
from kourou.client.producer.producer_hooks import Preparation, checked_hooks
from kourou.client.producer.producer_options import ProducerKeywords, ProducerOptions, split_keywords
from kourou.client.producer.producer_stats import ProducerStats
from kourou.client.producer.queue_choice import QueueChoice, QueueSelector
from kourou.client.producer.request_reply import Requests, reply_to
from kourou.client.producer.send_request import SendRequest, SequencedRequest
from kourou.client.producer.send_result import SendResult, broker_of_handle, split_result
from kourou.client.producer.sends import Sends
from kourou.client.producer.sequenced_sends import SequencedSend, SequencedSends
from kourou.client.trace.producer_trace import ProducerTrace, TraceDispatcher
from kourou.errors import (
    CallTimeoutError,
    ClientStateError,
    KourouError,
    MessageRefusedError,
    NoReplyError,
    NoRouteError,
    PartlySentError,
    ProducerFencedError,
    SendFailedError,
    TooManyRequestsError,
)
from kourou.protocol.atomic import MAX_TIMEOUT_MS
from kourou.protocol.bodies import ConsumerData, MessageQueue
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.send import RecallMessageRequestHeader
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.producer_sequence import MAX_SEQUENCE, check_producer_name
from kourou.transport.request import Processor

# Compressing less than this is faster than handing it to a thread.
_COMPRESS_IN_THREAD_BYTES: Final = 64 * 1024


@lists_options(ProducerOptions, ClientSettings)
class AsyncProducer(AsyncBlockOnly):
    """Sends messages; use it in an `async with` block, or call `start` and `stop`.

        async with AsyncProducer("orders", namesrv="127.0.0.1:9876") as producer:
            result = await producer.send(Message("TopicTest", b"hello", tags="TagA"))
            print(result.msg_id, result.queue)

    `group` identifies producers that do the same work. All options are keywords: those of ProducerOptions
    (`send_timeout_ms`, `retry_times`, …) and those of every client, ClientSettings (`namesrv`, …).
    Created and used on one event loop; any number of tasks may share it.
    """

    _is_transactional = False

    def __init__(self, group: str, **options: Unpack[ProducerKeywords]) -> None:
        check_group(group)
        self._options, self._settings = split_keywords(options)
        self._namespace = _namespace_of(self._settings)
        self._group = group
        self._wire_group = self._namespace.wrap(group)
        self._wire_name = _wire_name(self._options.name, self._namespace)
        self._instance = ClientInstance(
            self._settings,
            self,
            title=f"producer {group}",
            default_topic_queue_nums=self._options.default_topic_queue_nums,
            uses_all_brokers=self._is_transactional,
        )
        self._hooks = checked_hooks(self._options.hooks)
        self._failures = FailureLog()
        self._preparation = Preparation(self._hooks, self._failures)
        self._outgoing = self._make_outgoing()
        self._choice = QueueChoice(self._namespace)
        self._requests = Requests(self._instance)
        self._sends: Sends | None = None
        self._atomics: AtomicSessions | None = None
        self._now: Callable[[], float] = time.monotonic
        self._trace: TraceDispatcher | None = None
        self._is_stopping = False
        self._stop_once = StopOnce(f"producer {group}")

    def _make_outgoing(self) -> Outgoing:
        # A class of its own, so that sends without such hooks do not look for them.
        ids = shared_unique_ids()
        if not self._preparation:
            return Outgoing(self._namespace, self._options, ids)
        return PreparedOutgoing(self._namespace, self._options, ids, self._preparation)

    @property
    def prepares_messages(self) -> bool:
        """For the sync client: whether hooks use the context variables of callers."""
        return bool(self._preparation)

    # -- life ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find a name server. Routes and brokers are looked up when they are needed."""
        self._now = asyncio.get_running_loop().time
        await self._instance.start()
        try:
            await self._start_trace()
            self._sends = self._make_sends()
        except BaseException:
            await self._close_connections()
            raise
        if self._hooks:
            self._instance.every(REPORT_INTERVAL_MS, self._failures.report, "failures")
        enter_group(self._wire_group, transactional=self._is_transactional)

    def _make_sends(self) -> Sends:
        options = self._options
        if not options.is_idempotent:
            return Sends(self._instance, self._wire_group, options, self._hooks, self._failures)
        return SequencedSends(
            self._instance, self._wire_group, options, self._hooks, self._failures, self._wire_name
        )

    async def _start_trace(self) -> None:
        if self._options.trace:
            trace = TraceDispatcher(self._group, "PRODUCE", self._settings, topic=self._options.trace_topic)
            await trace.start()
            self._trace = trace
            self._hooks = (*self._hooks, ProducerTrace(self._group, trace))

    async def stop(self) -> None:
        """Wait for sends in flight, at most `send_timeout_ms`, unregister and close all connections.
        Later sends are rejected. May be called twice."""
        if self._sends is None:
            return
        self._is_stopping = True
        await self._stop_once.wait(self._stop_now)

    async def _stop_now(self) -> None:
        assert self._sends is not None
        try:
            if self._is_ours():
                await self._finish_work(self._sends)
        finally:
            await self._failures.report()
            leave_group(self._wire_group, transactional=self._is_transactional)
            try:
                await self._close_connections()
            finally:
                self._sends.fail_waiting()
                self._requests.fail_all(ClientStateError("this client was stopped before a reply came"))

    async def _close_connections(self) -> None:
        try:
            await self._instance.stop()
        finally:
            if self._trace is not None:
                await self._trace.stop()

    def _is_ours(self) -> bool:
        """Whether there is work to wait for: not in a forked child, nor after a failure."""
        try:
            self._instance.check_running()
        except ClientStateError:
            return False
        return True

    async def _finish_work(self, sends: Sends) -> None:
        await sends.close(self._options.send_timeout_ms)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def wait_failed(self) -> None:
        """Wait until a background task fails and raise its error; return after `stop`. Not needed for sends:
        the next call of a failed producer raises the error."""
        await self._instance.wait_failed()

    def _running(self) -> Sends:
        self._instance.check_running()
        if self._is_stopping or self._sends is None:
            raise ClientStateError("this client is stopping; make a new one")
        return self._sends

    # -- identity --------------------------------------------------------------------------------

    def __repr__(self) -> str:
        namesrvs = ";".join(self._instance.namesrvs.addresses) or "not started"
        return f"{type(self).__name__}({self._group!r}, {namesrvs})"

    @property
    def group(self) -> str:
        """The producer group, as it was given."""
        return self._group

    @property
    def client_id(self) -> str:
        """The client id that brokers know."""
        return self._instance.client_id

    @property
    def options(self) -> ProducerOptions:
        """The options of this producer."""
        return self._options

    def producer_groups(self) -> Iterable[str]:
        """For the instance: the producer group."""
        return (self._wire_group,)

    def consumer_data(self) -> Iterable[ConsumerData]:
        """For the instance: a producer consumes nothing."""
        return ()

    def topics(self) -> Iterable[str]:
        """For the instance: routes are requested when something is sent."""
        return ()

    def processors(self) -> Mapping[int, Processor]:
        """For the instance: the requests that brokers send to a producer."""
        return {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._requests.handle_reply}

    # -- send ------------------------------------------------------------------------------------

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
        sharding_key: str | None = None,
        sequence: int | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send one message and wait until a broker has stored it.

        By default the queues of the topic take turns, and another broker is tried when one fails. A queue
        that you choose is the only one that is tried: `queue` itself, the one that `selector` returns for
        `arg`, or the one that messages with this `sharding_key` share.

        Raises MessageRefusedError for a message that no broker would accept, NoRouteError, ResponseError
        for a response that another broker would give too, SendFailedError otherwise; `timeout_ms`
        (default: `send_timeout_ms`) bounds the whole call. After a timeout the message may be stored
        nevertheless (`may_be_stored`). AccessDeniedError with `wait_ms`: the broker has rejected the key of
        this client, and the message was not sent. `sequence`: of a producer with `explicit_sequences`.
        """
        sends = self._running()
        choose = self._choice(message, queue, selector, arg, sharding_key)
        timeout_ms, deadline = self._deadline(timeout_ms)
        body = await self._compressed_early(message) if is_large(message) else None
        request = self._outgoing.request(message, body=body)
        if sequence is not None:
            self._set_sequences(request, queue, (sequence,))
        return await self._send(sends, request, (message,), choose, timeout_ms, deadline)

    def send_nowait(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
        sharding_key: str | None = None,
        sequence: int | None = None,
        timeout_ms: int | None = None,
    ) -> asyncio.Future[SendResult]:
        """Like `send`, without waiting: the future gets the result. Many sends share a write this way.

        TooManyRequestsError when `max_in_flight` sends are in flight: await some of them first.
        Messages to one queue are written in the order of these calls.
        """
        sends = self._running()
        choose: ChooseQueue | None = None
        if queue is not None or selector is not None or sharding_key is not None:
            choose = self._choice(message, queue, selector, arg, sharding_key)
        timeout_ms, deadline = self._deadline(timeout_ms)
        request = self._outgoing.request(message)
        if sequence is not None:
            self._set_sequences(request, queue, (sequence,))
        size_bytes = len(request.body)
        if not sends.in_flight.try_enter(size_bytes):
            raise TooManyRequestsError("brokers", "sends", sends.in_flight.count)
        return sends.begin(request, (message,), choose, timeout_ms, deadline, size_bytes)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
        sharding_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Send a message without waiting for a response. Only finding a broker can fail. Idempotent producers
        do not offer it."""
        sends = self._running()
        choose = self._choice(message, queue, selector, arg, sharding_key)
        timeout_ms, deadline = self._deadline(timeout_ms)
        request = self._outgoing.request(message)
        try:
            async with asyncio.timeout_at(deadline):
                await sends.send_oneway(request, (message,), choose)
        except TimeoutError:
            raise SendFailedError(
                message.topic, ["no broker could be reached, or none takes more bytes"], timeout_ms
            ) from None

    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        sequences: Sequence[int] | None = None,
        timeout_ms: int | None = None,
    ) -> list[SendResult]:
        """Send messages in batches, and wait until brokers have stored them; one result for each, in order.

        A batch has messages of one topic, up to `max_batch_bytes`, and goes to one queue; delayed messages
        are sent alone. Nothing is sent if one message is rejected. PartlySentError lists what was stored if
        not all were. If the producer was fenced, that is its cause, or raised itself if nothing is stored.
        `queue`: the one for all of them. `sequences`, one for each message: of a producer with
        `explicit_sequences`; a batch is sent when those before it are stored.
        """
        sends = self._running()
        messages = _listed(messages)
        timeout_ms, deadline = self._deadline(timeout_ms)
        if self._preparation and messages:
            self._preparation(messages)  # before they are measured
        limit = min(self._options.max_batch_bytes, self._options.max_message_bytes)
        plans = _planned(messages, limit, is_sequenced=self._options.is_idempotent)
        choose = None
        if queue is not None:
            # All are checked: a batch goes to the queue, whatever the topic of its messages.
            for message in {message.topic: message for message in messages}.values():
                choose = self._choice(message, queue)
        parts = []
        for plan in plans:
            part = [messages[index] for index in plan]
            parts.append((plan, part, self._outgoing.part(part)))
        if sequences is None:
            outcomes = await asyncio.gather(
                *(
                    self._send(sends, request, part, choose, timeout_ms, deadline)
                    for _, part, request in parts
                ),
                return_exceptions=True,
            )
        else:
            _check_sequences(messages, plans, sequences)
            for plan, _, request in parts:
                self._set_sequences(request, queue, [sequences[index] for index in plan])
            outcomes = [
                outcome
                async for outcome in self._one_after_another(sends, parts, choose, timeout_ms, deadline)
            ]
        results: dict[int, SendResult | BaseException] = {}
        for (plan, part, _), outcome in zip(parts, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                results.update(dict.fromkeys(plan, outcome))
            else:
                results.update(zip(plan, self._results_of(part, outcome), strict=True))
        return _all_or_raise([results[index] for index in range(len(messages))], messages, timeout_ms)

    async def _one_after_another(
        self,
        sends: Sends,
        parts: Sequence[tuple[list[int], list[Message], SendRequest]],
        choose: ChooseQueue | None,
        timeout_ms: int,
        deadline: float,
    ) -> AsyncIterator[SendResult | Exception]:
        """Send each part when the one before it is stored; none after a failure."""
        failure: Exception | None = None
        for _, part, request in parts:
            if failure is None:
                try:
                    yield await self._send(sends, request, part, choose, timeout_ms, deadline)
                    continue
                except KourouError as error:
                    failure = error
                    yield error
                    continue
            earlier = "not sent, since messages before it could not be stored"
            yield SendFailedError(part[0].topic, [earlier], timeout_ms)

    async def send_again(self, error: SendFailedError, *, timeout_ms: int | None = None) -> SendResult:
        """Of an idempotent producer: continue a send that failed while it `may_be_stored`. The message goes
        to the same queue with the same sequence, and is stored once, whatever became of earlier attempts.
        For a batch of `send_many` the result is that of its first message.

        Raises what `send` raises. The send may be continued again with the new error.
        """
        sends = self._sequenced("send_again")
        if not isinstance(error, SendFailedError):
            raise wrong_type("error", "a SendFailedError", error)
        undecided = error.undecided
        if not isinstance(undecided, SequencedSend):
            raise ValueError(
                "this error cannot be continued: the message is not stored (see may_be_stored), the send "
                "was continued already, or it is not of an idempotent producer; use send"
            )
        timeout_ms, deadline = self._deadline(timeout_ms)
        await self._enter(sends, undecided.size_bytes, error.topic, timeout_ms, deadline)
        return await sends.begin_again(error, timeout_ms, deadline)

    async def last_sequence(self, queue: MessageQueue) -> int:
        """Of an idempotent producer: the highest of its sequences stored in `queue`; -1: none. A named
        producer opens its name first, which fences a program that has opened it before."""
        sends = self._sequenced("last_sequence")
        if not isinstance(queue, MessageQueue):
            raise wrong_type("queue", "a MessageQueue", queue)
        return await sends.sessions.last_sequence(
            MessageQueue(self._namespace.wrap(queue.topic), queue.broker_name, queue.queue_id)
        )

    def _sequenced(self, method: str) -> SequencedSends:
        sends = self._running()
        if not isinstance(sends, SequencedSends):
            raise ClientStateError(f"{method} needs an idempotent producer: idempotent=True, or a name")
        return sends

    def _set_sequences(
        self, request: SendRequest, queue: MessageQueue | None, sequences: Sequence[int]
    ) -> None:
        """Let the messages of a request have the sequences that the caller gave."""
        if not self._options.explicit_sequences:
            raise ValueError("sequence is for a named producer with explicit_sequences=True")
        if queue is None:
            raise ValueError("sequence needs the queue whose messages it counts")
        for sequence in sequences:
            check_int("sequence", sequence, at_least=0)
            if sequence > MAX_SEQUENCE:
                raise ValueError(f"sequence is {sequence}; it must be at most {MAX_SEQUENCE}")
        assert isinstance(request, SequencedRequest)
        request.sequences = sequences

    def _results_of(self, part: Sequence[Message], outcome: SendResult) -> list[SendResult]:
        if len(part) == 1:
            return [outcome]
        return split_result(outcome, [self._outgoing.uniq_key(message) for message in part])

    async def _send(
        self,
        sends: Sends,
        request: SendRequest,
        messages: Sequence[Message],
        choose: ChooseQueue | None,
        timeout_ms: int,
        deadline: float,
    ) -> SendResult:
        size_bytes = len(request.body)
        if not sends.in_flight.try_enter(size_bytes):
            await self._enter(sends, size_bytes, messages[0].topic, timeout_ms, deadline)
        return await sends.begin(request, messages, choose, timeout_ms, deadline, size_bytes)

    @staticmethod
    async def _enter(sends: Sends, size_bytes: int, topic: str, timeout_ms: int, deadline: float) -> None:
        """Wait until one more send may be in flight."""
        try:
            await sends.in_flight.enter(size_bytes, deadline)
        except TimeoutError:
            waited = f"no room: {sends.in_flight.count} other sends are in flight"
            raise SendFailedError(topic, [waited], timeout_ms) from None

    # -- atomic publishes ------------------------------------------------------------------------

    def atomic(self, *, timeout_ms: int = 60_000) -> AsyncAtomicBatch:
        """Messages for any topics, queues and brokers that become visible together or not at all:

            async with producer.atomic() as batch:
                await batch.send(Message("orders", b"..."))
                await batch.send(Message("stock", b"..."))

        Leaving the block commits; an exception rolls back. On return the decision is durable, and each broker
        publishes its messages within a second: a consumer may see those of one broker first. `timeout_ms`
        bounds the block with its commit: after it, the publish is rolled back. Brokers have to be Kourou's.
        With a `name`, programs that used it for atomic publishes before are fenced.

        The block raises AtomicRolledBackError if nothing is published, AtomicUndecidedError if the outcome is
        not known, ProducerFencedError, ClientError if no broker can coordinate it.
        """
        self._running()
        check_int("timeout_ms", timeout_ms, at_least=1)
        if timeout_ms > MAX_TIMEOUT_MS:
            raise ValueError(f"timeout_ms is {timeout_ms}; it must be at most {MAX_TIMEOUT_MS}")
        return AsyncAtomicBatch(
            sessions=self._atomic_sessions(),
            instance=self._instance,
            options=self._options,
            choice=self._choice,
            prepare=self._prepared,
            timeout_ms=timeout_ms,
        )

    async def begin_atomic(self, *, timeout_ms: int = 60_000) -> AtomicPublish:
        """An atomic publish whose parts are staged by several processes: they get its `handle`, and this one
        commits it. Use `atomic` otherwise."""
        self._running()
        return await self._atomic_sessions().begin(timeout_ms)

    def join_atomic(self, handle: AtomicHandle) -> AtomicPublish:
        """An atomic publish that another process has begun."""
        self._running()
        return self._atomic_sessions().publish(handle)

    def _atomic_sessions(self) -> AtomicSessions:
        if self._atomics is None:
            self._atomics = AtomicSessions(self._instance, self._wire_group, self._options, self._wire_name)
        return self._atomics

    async def _prepared(self, message: Message) -> SendRequest:
        body = await self._compressed_early(message) if is_large(message) else None
        return self._outgoing.request(message, body=body)

    # -- request and reply -----------------------------------------------------------------------

    async def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        arg: object = None,
        sharding_key: str | None = None,
        timeout_ms: int | None = None,
    ) -> MessageExt:
        """Send a message and wait for the reply of its consumer (see `reply_to`).

        SendFailedError: it was not sent. NoReplyError: it was sent, but no reply arrived in time.
        """
        sends = self._running()
        choose = self._choice(message, queue, selector, arg, sharding_key)
        timeout_ms, deadline = self._deadline(timeout_ms)
        correlation_id, extra, reply = self._requests.expect(timeout_ms)
        try:
            request = self._outgoing.request(message, extra=extra)
            await self._register_for_reply(request.topic, message.topic, timeout_ms, deadline)
            await self._send(sends, request, (message,), choose, timeout_ms, deadline)
            async with asyncio.timeout_at(deadline):
                return await reply
        except TimeoutError:
            raise NoReplyError(message.topic, correlation_id, timeout_ms) from None
        finally:
            self._requests.forget(correlation_id)

    async def _register_for_reply(
        self, wire_topic: str, topic: str, timeout_ms: int, deadline: float
    ) -> None:
        """Register with the brokers that may deliver the reply."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._requests.prepare(wire_topic)
        except TimeoutError:
            failed = "no answer from the name server or the brokers"
            raise SendFailedError(topic, [failed], timeout_ms) from None

    def reply_to(self, request: MessageExt, body: bytes) -> Message:
        """The reply to a request that was consumed: `await producer.send(producer.reply_to(message, …))`."""
        return reply_to(request, body)

    # -- other -----------------------------------------------------------------------------------

    async def recall(self, topic: str, recall_handle: str, *, timeout_ms: int | None = None) -> str:
        """Recall a timer message before its time, by `SendResult.recall_handle`; returns its message id.

        ResponseError when the broker no longer has it, or is older than version 5. `timeout_ms` (default:
        `send_timeout_ms`) bounds the whole call.
        """
        self._running()
        timeout_ms, deadline = self._deadline(timeout_ms)
        broker_name = broker_of_handle(recall_handle)
        wire_topic = self._namespace.wrap(topic)
        try:
            async with asyncio.timeout_at(deadline):
                await self._instance.routes.get(wire_topic)
        except TimeoutError:
            raise CallTimeoutError(
                self._instance.namesrvs.current, RequestCode.GET_ROUTEINFO_BY_TOPIC, timeout_ms
            ) from None
        address = self._instance.routes.master(broker_name)
        if address is None:
            raise NoRouteError(topic, f"broker {broker_name!r} of the recall handle has no master at present")
        header = RecallMessageRequestHeader(
            producer_group=self._wire_group, topic=wire_topic, recall_handle=recall_handle
        )
        left_ms = max(1, int((deadline - self._now()) * 1000))
        return await self._instance.api.recall(address, header, left_ms)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be sent to; `send` accepts one of them as `queue`."""
        self._running()
        route = await self._instance.routes.get(self._namespace.wrap(topic), to_publish=True)
        return self._choice.shown(topic, route.publish_queues)

    async def flush(self) -> None:
        """Wait until no send is in flight. Errors are raised by the sends themselves. Takes no longer than
        their timeouts."""
        await self._running().in_flight.wait_idle()

    def stats(self) -> ProducerStats:
        """Counters since the start of this producer."""
        if self._sends is None:
            raise ClientStateError(ASYNC_NOT_STARTED)
        in_flight = self._sends.in_flight
        return ProducerStats(
            **asdict(self._sends.counters), in_flight=in_flight.count, in_flight_bytes=in_flight.size_bytes
        )

    # -- parts of a send -------------------------------------------------------------------------

    def _deadline(self, timeout_ms: int | None) -> tuple[int, float]:
        if timeout_ms is None:
            timeout_ms = self._options.send_timeout_ms
        elif type(timeout_ms) is not int or timeout_ms <= 0:
            check_int("timeout_ms", timeout_ms, at_least=1)
        return timeout_ms, self._now() + timeout_ms / 1000

    async def _compressed_early(self, message: Message) -> bytes | None:
        """A large body, compressed in a thread."""
        if not self._options.compress_over_bytes <= len(message.body) <= self._options.max_message_bytes:
            return None  # not compressed, or rejected later
        return await asyncio.to_thread(self._outgoing.compressed, message.body)


def is_large(message: Message) -> bool:
    """Whether the body is large enough to be compressed in a thread."""
    return isinstance(message, Message) and len(message.body) >= _COMPRESS_IN_THREAD_BYTES


def _namespace_of(settings: ClientSettings) -> Namespace:
    namesrv = settings.namesrv if isinstance(settings.namesrv, str) else ""
    return Namespace.of(settings.namespace, namesrv)


def _listed(messages: Iterable[Message]) -> list[Message]:
    try:
        return list(messages)
    except TypeError:
        if isinstance(messages, Iterable):
            raise
        raise wrong_type("messages", "a list of Message", messages) from None


def _wire_name(name: str | None, namespace: Namespace) -> str | None:
    """A producer name as brokers know it: namespaces do not share names."""
    if name is None or not namespace.name:
        return name
    wire_name = f"{namespace.name}.{name}"
    check_producer_name(wire_name)
    return wire_name


def _check_sequences(
    messages: Sequence[Message], plans: Sequence[Sequence[int]], sequences: Sequence[int]
) -> None:
    if len(sequences) != len(messages):
        raise ValueError(f"{len(messages)} messages have {len(sequences)} sequences")
    if any(after <= before for before, after in pairwise(sequences)):
        raise ValueError("sequences must ascend, so that the last one stored tells where to resume")
    if list(chain.from_iterable(plans)) != list(range(len(messages))):
        raise MessageRefusedError(
            "messages with sequences are stored in their order: send delayed ones one by one, with `send`"
        )


def _planned(messages: list[Message], max_batch_bytes: int, *, is_sequenced: bool) -> list[list[int]]:
    try:
        return plan_batches(messages, max_batch_bytes, is_sequenced=is_sequenced)
    except AttributeError:
        for message in messages:
            if not isinstance(message, Message):
                raise TypeError(
                    f"send_many takes Messages, not {type(message).__name__}: Message(topic, body)"
                ) from None
        raise


def _all_or_raise(
    results: list[SendResult | BaseException], messages: Sequence[Message], timeout_ms: int
) -> list[SendResult]:
    stored = [result for result in results if isinstance(result, SendResult)]
    if len(stored) < len(results):
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, Exception):
                raise result  # this call was cancelled
        fenced = next((result for result in results if isinstance(result, ProducerFencedError)), None)
        if fenced is not None and not stored and not any(map(_may_be_stored, results)):
            raise fenced
        topics = ", ".join(dict.fromkeys(message.topic for message in messages))
        raise PartlySentError(topics, results, timeout_ms) from fenced
    return stored


def _may_be_stored(result: object) -> bool:
    return isinstance(result, SendFailedError) and result.may_be_stored
