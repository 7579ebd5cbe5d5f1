"""Sends: delivers messages to brokers, many at a time, each within its own timeout.

The fast path needs no task and no iteration of the loop: the route is known, the connection is open, the
request is written together with others, and the response resolves the caller's future. A send that has to
wait (for a route, a connection, or a broker that reads slowly) waits in order, so that messages of one caller
to one queue stay in order unless an attempt fails.
Not here: the content of a request (outgoing.py), which failures are retried (pending_send.py), waiting for a
new master (master_waits.py) or because of a limit of the account (limit_waits.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from kourou.client.core.failure_log import FailureLog
from kourou.client.core.instance import ClientInstance
from kourou.client.core.refusals import is_rejected_login, response_error
from kourou.client.core.routes import TopicRoute
from kourou.client.producer.limit_waits import LimitWaits
from kourou.client.producer.master_waits import MasterWaits, SilentMasters
from kourou.client.producer.pending_send import (
    BrokerSendQueue,
    ChooseQueue,
    InFlight,
    PendingSend,
    QueuedSend,
    describe_attempt,
    is_master_away,
    is_retriable,
    is_route_stale,
    is_withheld,
)
from kourou.client.producer.producer_hooks import ProducerHook, SendContext, call_hooks
from kourou.client.producer.producer_options import ProducerOptions
from kourou.client.producer.producer_stats import ProducerCounters
from kourou.client.producer.queue_choice import LatencyFaults, QueuePicker, queue_of_priority
from kourou.client.producer.send_request import ONEWAY, SendFrames, SendRequest
from kourou.client.producer.send_result import SEND_STATUSES, SendResult, SendStatus, send_result
from kourou.errors import (
    AccessDeniedError,
    CallTimeoutError,
    ClientStateError,
    ConnectError,
    ConnectionLostError,
    LimitError,
    NoRouteError,
    ResponseError,
    SendFailedError,
    TopicLimitError,
)
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.codes import MessageSysFlag, RequestCode, ResponseCode
from kourou.protocol.command import CommandHead
from kourou.protocol.message import Message
from kourou.transport.connection import Connection

_OK: Final = SendStatus.SEND_OK
_PREPARED: Final = MessageSysFlag.TRANSACTION_PREPARED_TYPE.value
# Tolerance for timers, which may fire slightly before the deadline.
_TICK_S: Final = 0.001
# A thousand sends that fail together cause one request to the name server.
_REFRESH_INTERVAL_S: Final = 1.0
_LOOK_MS: Final = 1_000


class Sends:
    """The sends of one producer, on its loop, from the start of its instance to the stop."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: ProducerOptions,
        hooks: Sequence[ProducerHook],
        failures: FailureLog,
    ) -> None:
        self._instance = instance
        self._loop = asyncio.get_running_loop()
        self._options = options
        self._group = group
        self._before = [hook.before_send for hook in hooks]
        self._after = [hook.after_send for hook in hooks]
        self._failures = failures
        self._logins = instance.api.logins
        self._frames = SendFrames(
            group, options.create_topic_key, options.default_topic_queue_nums, instance.settings.credentials
        )
        self.faults = LatencyFaults() if options.send_latency_fault else None
        self._picker = QueuePicker(self.faults)
        self._send_queues: dict[str, BrokerSendQueue] = {}
        self._without_route: dict[str, dict[QueuedSend, None]] = {}
        self._refreshed_at: dict[str, float] = {}
        self._masters = MasterWaits(instance, self._start)
        self._limits = LimitWaits(self._start)
        instance.every(_LOOK_MS, SilentMasters(instance, self._send_queues).look, "silent brokers")
        self._is_closed = False
        self.in_flight = InFlight(options.max_in_flight, options.max_in_flight_bytes)
        self.counters = ProducerCounters()

    # -- a new send ------------------------------------------------------------------------------

    def begin(
        self,
        request: SendRequest,
        messages: Sequence[Message],
        choose: ChooseQueue | None,
        timeout_ms: int,
        deadline: float,
        size_bytes: int,
    ) -> asyncio.Future[SendResult]:
        """Send a request that already counts as in flight."""
        future: asyncio.Future[SendResult] = self._loop.create_future()
        # A queue chosen by the caller cannot be replaced by another.
        attempts = 1 if choose is not None else 1 + self._options.retry_times
        send = PendingSend(
            self, request, messages, choose, future, timeout_ms, deadline, attempts, size_bytes
        )
        # Of a single message the broker chooses the queue.
        if request.code == RequestCode.SEND_BATCH_MESSAGE:
            send.priority = messages[0].priority
        self._start(send)
        return future

    def _start(self, send: PendingSend) -> None:
        topic = send.request.topic
        route = self._instance.routes.known(topic)
        if route is None or topic in self._without_route or not route.publish_queues:
            self._wait_for_route(send, refresh=False)
        else:
            self._attempt(send, route)

    def _attempt(self, send: PendingSend, route: TopicRoute) -> None:
        masters = self._masters
        try:
            last = None if send.queue is None else send.queue.broker_name
            if send.repeats_in is not None:
                queue = send.repeats_in
            elif send.choose is not None:
                queue = send.choose(route.publish_queues)
            elif not masters.waits:
                queue = self._picker.pick(route.publish_queues, last)
            else:
                others = masters.others(route.publish_queues)
                queue = self._picker.pick(others or route.publish_queues, last)
            if send.priority is not None and send.choose is None and send.repeats_in is None:
                queue = queue_of_priority(route.publish_queues, queue.broker_name, send.priority)
            if masters.waits and masters.holds(send, queue):
                return
            if self._limits.waits and self._limits.holds(send, queue):
                return
            send.queue = queue
            send.attempts_left -= 1
            send.send_queue = send_queue = self._send_queue(queue)
            if self._logins.has_rejected:
                self._logins.check(send_queue.address, send.request.code)
            if self._before:
                self._call_before(send, queue, send_queue.address)
        except (NoRouteError, AccessDeniedError) as error:
            self.failed(send, error)
        except Exception as error:  # raised by the caller's selector
            self.fail(send, error)
        else:
            connection = send_queue.ready()
            if connection is None:
                send_queue.wait(send)
            else:
                self.write(send, connection)

    def _send_queue(self, queue: MessageQueue) -> BrokerSendQueue:
        address = self._instance.routes.master(queue.broker_name)
        if address is None:
            raise NoRouteError(queue.topic, f"broker {queue.broker_name!r} has no master at present")
        send_queue = self._send_queues.get(address)
        if send_queue is None:
            instance = self._instance
            send_queue = BrokerSendQueue(address, instance.remoting, instance.tasks, instance.announce)
            self._send_queues[address] = send_queue
        return send_queue

    def write(self, send: PendingSend, connection: Connection) -> None:
        """Make the attempt that `send` is prepared for."""
        if send.is_over or send.future.cancelled():
            self._leave(send)
            return
        request, queue, send_queue = send.request, send.queue, send.send_queue
        assert queue is not None and send_queue is not None
        deadline, timeout_ms = send.deadline, send.timeout_ms
        if (attempt_ms := self._options.attempt_timeout_ms) is not None:
            attempt_ms *= send.patience
            timeout_ms = min(attempt_ms, timeout_ms)
            deadline = min(deadline, self._loop.time() + attempt_ms / 1000)
        if self.faults is not None:
            send.written_at = self._loop.time()
        send.connection = connection
        send.answers_before = send_queue.answers
        try:
            opaque = connection.calls.enter(request.code, deadline, timeout_ms, send)
            head = self._frames.head(request, queue, opaque)
        except Exception as error:
            self.failed(send, error)
            return
        connection.send_parts((head, request.body), len(head) + len(request.body))

    # -- waiting for a route ---------------------------------------------------------------------

    def _wait_for_route(self, send: PendingSend, *, refresh: bool) -> None:
        topic = send.request.topic
        waiting = self._without_route.get(topic)
        if waiting is None:
            waiting = self._without_route[topic] = {}
            self._instance.tasks.start(self._find_route(topic, refresh=refresh), f"route-{topic}")
        send.wait_in(waiting)

    async def _find_route(self, topic: str, *, refresh: bool) -> None:
        routes = self._instance.routes
        route, problem = None, None
        try:
            if refresh:
                self._refreshed_at[topic] = self._loop.time()
                await routes.refresh(topic, to_publish=True)
            route = await routes.get(topic, to_publish=True)
        except Exception as error:
            # Without a name server, sends to known brokers still work.
            route, problem = routes.known(topic), error
        waiting = self._without_route.pop(topic)
        for send in waiting:
            assert isinstance(send, PendingSend)
            send.stop_waiting()
            if route is not None and route.publish_queues:
                self._attempt(send, route)
            else:
                self._fail_without_route(send, problem or NoRouteError(topic, "it has no queue to write to"))

    def _fail_without_route(self, send: PendingSend, problem: Exception) -> None:
        """There is no route. If a broker was tried before, the error lists that attempt too."""
        broker_name = self._instance.routes.last_written(send.request.topic)
        if broker_name is not None and is_master_away(problem) and self._may_wait(send):
            self._masters.wait(send, broker_name, str(problem))
        elif send.attempts:
            self._record_attempt(send, str(problem))
            self._give_up(send, problem)
        else:
            self.fail(send, problem)

    # -- how an attempt ends ---------------------------------------------------------------------

    def answered(self, send: PendingSend, answer: CommandHead) -> None:
        queue, send_queue = send.queue, send.send_queue
        assert queue is not None and send_queue is not None
        send_queue.answers += 1
        status = SEND_STATUSES.get(answer.code)
        if status is None:
            credentials = self._instance.settings.credentials
            error = response_error(answer.code, answer.remark or "", send_queue.address, credentials)
            self._logins.answered(send_queue.address, send.request.code, error)
            self.failed(send, error)
            return
        if self._logins.has_rejected:
            self._logins.answered(send_queue.address, send.request.code)
        result = send_result(answer, status, queue, send.request.uniq_key, send.messages[0].topic)
        if self.faults is not None:
            latency_ms = (self._loop.time() - send.written_at) * 1000
            self.faults.update(queue.broker_name, latency_ms, isolate=False)
        if send.context is not None:
            self._call_after(send, result, None)
        if status is not _OK and self._options.retry_another_broker_when_not_store_ok:
            if send.attempts_left > 0 and not self._is_closed:
                send.half_stored = result
                send.repeats_in = None
                self._record_attempt(send, f"broker {queue.broker_name}: {status.name}")
                self._retry(send, refresh=False)
                return
        self._finish(send, result)

    def failed(self, send: PendingSend, error: Exception) -> None:
        """An attempt failed: retry, or fail the send."""
        queue = send.queue
        broker_name = "unknown" if queue is None else queue.broker_name
        address = "unknown" if send.send_queue is None else send.send_queue.address
        if send.repeats_in is not None:
            send.repeats_in = None
            if isinstance(error, LimitError) and send.attempts:
                send.attempts.pop()  # the same again: a send may wait often
        self._record_attempt(send, describe_attempt(broker_name, address, error))
        send.may_be_stored |= _may_be_stored(error)
        send.is_tried |= not is_withheld(error)
        if self.faults is not None and queue is not None:
            is_reachable = not isinstance(error, ConnectError)
            self.faults.update(broker_name, 0.0, isolate=True, reachable=is_reachable)
        if isinstance(error, CallTimeoutError):
            _close_if_silent(send, error)
        if send.context is not None:
            self._call_after(send, None, error)
        self._go_on(send, error)

    def _go_on(self, send: PendingSend, error: Exception) -> None:
        """Decide what follows a failed attempt."""
        if not is_retriable(error):
            self.fail(send, error)
        elif self._waits_for_limit(send, error):
            return
        elif is_master_away(error) and self._may_wait(send) and not self._has_other_broker(send):
            self._wait_for_master(send, error)
        elif send.attempts_left <= 0 or self._is_out_of_time(send):
            self._give_up(send, error)
        elif is_rejected_login(error) and not self._has_other_broker(send):
            self._give_up(send, error)
        else:
            self._retry(send, refresh=is_route_stale(error))

    def _waits_for_limit(self, send: PendingSend, error: Exception) -> bool:
        """Whether the account is over a limit, or the topic is and no other broker can be tried. Then the
        send waits as long as the broker says, and fails at once if it has less time and no other broker."""
        if not isinstance(error, LimitError) or error.wait_s is None or not self._may_wait(send):
            return False
        if isinstance(error, TopicLimitError):
            if not self._options.wait_for_topic_limit or self._has_other_broker(send):
                return False
        queue = send.queue
        assert queue is not None
        if self._loop.time() + error.wait_s < send.deadline - _TICK_S:
            send.attempts_left += 1  # waiting is limited by time only
            self.counters.retried += 1
            self._limits.wait(send, queue, error)
        elif self._has_other_broker(send):
            return False
        else:
            self._give_up(send, error)
        return True

    def _may_wait(self, send: PendingSend) -> bool:
        """Whether a send may be repeated until its deadline."""
        if send.queue is not None and not self._instance.routes.had_master(send.queue.broker_name):
            return False  # the caller has chosen a queue of a broker that does not exist
        return self._options.retry_times > 0 and not self._is_out_of_time(send)

    def _has_other_broker(self, send: PendingSend) -> bool:
        """Whether the next attempt can be made elsewhere."""
        route = self._instance.routes.known(send.request.topic)
        if send.choose is not None or send.attempts_left <= 0 or route is None or send.queue is None:
            return False
        return bool(self._masters.others(route.publish_queues, send.queue.broker_name))

    def _wait_for_master(self, send: PendingSend, error: Exception) -> None:
        """Repeat the attempt when the broker has another master, or the same one accepts messages again."""
        queue = send.queue
        assert queue is not None
        send.attempts_left += 1  # waiting is limited by time only
        if send.choose is not None:
            send.choose = always(queue)
        self.counters.retried += 1
        self._masters.wait(send, queue.broker_name, str(error))

    def _is_out_of_time(self, send: PendingSend) -> bool:
        return self._is_closed or self._loop.time() >= send.deadline - _TICK_S

    def timed_out(self, send: PendingSend) -> None:
        """The deadline has passed while `send` waited."""
        if send.waits_for is not None:
            if send.waits_for:
                self._record_attempt(send, send.waits_for)
        elif send.send_queue is None or send.queue is None:
            self._record_attempt(send, "no answer from the name server")
        else:
            self._record_attempt(
                send, f"broker {send.queue.broker_name}: no connection to {send.send_queue.address} took it"
            )
        self._give_up(send, None)

    def _retry(self, send: PendingSend, *, refresh: bool) -> None:
        self.counters.retried += 1
        topic = send.request.topic
        last = self._refreshed_at.get(topic)
        if refresh and (last is None or self._loop.time() - last >= _REFRESH_INTERVAL_S):
            self._wait_for_route(send, refresh=True)
        else:
            self._start(send)

    @staticmethod
    def _record_attempt(send: PendingSend, attempt: str) -> None:
        if send.attempts is None:
            send.attempts = []
        send.attempts.append(attempt)

    # -- how a send ends -------------------------------------------------------------------------

    def _finish(self, send: PendingSend, result: SendResult) -> None:
        counters, future = self.counters, send.future
        counters.sent += len(send.messages)
        counters.sent_bytes += send.size_bytes
        counters.send_s += self._loop.time() - send.deadline + send.timeout_ms / 1000
        if not future.done():
            future.set_result(result)
        self._leave(send)

    def _give_up(self, send: PendingSend, cause: Exception | None) -> None:
        if cause is not None and is_withheld(cause) and not (send.is_tried or send.may_be_stored):
            self.fail(send, cause)
            return
        name = send.awaited_broker
        error = SendFailedError(
            send.messages[0].topic,
            send.attempts or [],
            send.timeout_ms,
            may_be_stored=send.may_be_stored,
            hint="" if name is None else f"; no master of {name} accepted it in that time",
        )
        error.__cause__ = cause
        self.fail(send, error)

    def fail(self, send: PendingSend, error: Exception) -> None:
        """End the send with `error`, or with the result of a broker that stored the message less safely."""
        if send.half_stored is not None:
            self._finish(send, send.half_stored)
            return
        self.counters.failed += len(send.messages)
        if not send.future.done():
            send.future.set_exception(error)
        self._leave(send)

    def _leave(self, send: PendingSend) -> None:
        if not send.is_over:
            send.is_over = True
            self.in_flight.leave(send.size_bytes)

    # -- one-way ---------------------------------------------------------------------------------

    async def send_oneway(
        self, request: SendRequest, messages: Sequence[Message], choose: ChooseQueue | None
    ) -> None:
        """Write a request that has no response. On return it is in the write buffer."""
        route = await self._instance.routes.get(request.topic, to_publish=True)
        queue = self._picker.pick(route.publish_queues) if choose is None else choose(route.publish_queues)
        send_queue = self._send_queue(queue)
        self._logins.check(send_queue.address, request.code)
        connection = await self._instance.remoting.connection(send_queue.address)
        await connection.wait_writable()
        context = None
        if self._before:
            context = self._context(messages, queue, send_queue.address, attempt=1)
            context.is_oneway = True
            call_hooks(self._before, context, self._failures)
            _encode_again(request, messages)
        head = self._frames.head(request, queue, connection.calls.next_opaque(), ONEWAY)
        connection.send_parts((head, request.body), len(head) + len(request.body))
        self.counters.oneway += 1
        if context is not None:
            call_hooks(self._after, context, self._failures)

    # -- stop ------------------------------------------------------------------------------------

    async def close(self, timeout_ms: int) -> None:
        """Wait for sends in flight, at most `timeout_ms`; afterwards nothing is retried."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.in_flight.wait_idle()
        except TimeoutError:
            pass
        finally:
            self._is_closed = True

    def fail_waiting(self) -> None:
        """The client is stopped: fail the sends that still wait."""
        for place in self._waiting_places():
            for send in list(place):
                place.pop(send)
                assert isinstance(send, PendingSend)
                send.stop_waiting()
                self.fail(send, ClientStateError("this client was stopped before the message was sent"))

    def _waiting_places(self) -> list[dict[QueuedSend, None]]:
        return [
            *self._without_route.values(),
            *(send_queue.waiting for send_queue in self._send_queues.values()),
            *(wait.waiting for wait in self._masters.waits.values()),
            *(wait.waiting for wait in self._limits.waits.values()),
        ]

    # -- hooks -----------------------------------------------------------------------------------

    def _context(
        self, messages: Sequence[Message], queue: MessageQueue, address: str, *, attempt: int
    ) -> SendContext:
        return SendContext(
            producer_group=self._group,
            client_id=self._instance.client_id,
            messages=messages,
            queue=queue,
            broker_address=address,
            attempt=attempt,
        )

    def _call_before(self, send: PendingSend, queue: MessageQueue, address: str) -> None:
        attempt = 1 + len(send.attempts or ())
        send.context = self._context(send.messages, queue, address, attempt=attempt)
        send.context.is_half = bool(send.request.sys_flag & _PREPARED)
        call_hooks(self._before, send.context, self._failures)
        _encode_again(send.request, send.messages)

    def _call_after(self, send: PendingSend, result: SendResult | None, error: Exception | None) -> None:
        context, send.context = send.context, None
        if context is not None:
            context.result, context.error = result, error
            call_hooks(self._after, context, self._failures)


def always(queue: MessageQueue) -> ChooseQueue:
    """The choice of a send that stays with its queue."""
    return lambda queues: queue


def _may_be_stored(error: Exception) -> bool:
    """Whether the broker may have stored the message nevertheless: without an answer, and when it ceased to
    be master before the slaves had acknowledged the message."""
    if isinstance(error, ResponseError):
        return error.code == ResponseCode.SERVICE_NOT_AVAILABLE
    return isinstance(error, CallTimeoutError | ConnectionLostError)


def _close_if_silent(send: PendingSend, error: CallTimeoutError) -> None:
    """Close a connection that delivered nothing since the send: the broker hangs, or it is dead."""
    send_queue, connection = send.send_queue, send.connection
    if send_queue is not None and connection is not None and send_queue.answers == send.answers_before:
        connection.close(f"no answer to a send within {error.timeout_ms} ms")


def _encode_again(request: SendRequest, messages: Sequence[Message]) -> None:
    """Encode the properties again: a hook may have added one."""
    if not request.batch:
        request.set_properties(messages[0].encode_properties() + request.extra_properties)
