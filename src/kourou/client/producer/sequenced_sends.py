"""SequencedSends: the sends of an idempotent producer.

Each message gets a sequence of its queue when it is written for the first time, and keeps it: the broker
recognises a repeat and answers as it did, or would have done, the first time. As long as an attempt is
undecided (no answer, connection lost, a broker that failed), the send stays with its broker name and queue;
the address may change, when a slave becomes master. Only a definite refusal frees it for another queue.

A broker that does not announce the feature gets ordinary sends, at least once. Replies and messages for retry
topics are always ordinary. Not here: which sequences may be given out (sequence_numbers.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from kourou.client.core.failure_log import FailureLog
from kourou.client.core.instance import ClientInstance
from kourou.client.producer.pending_send import (
    ChooseQueue,
    PendingSend,
    QueuedSend,
    is_master_away,
    is_retriable,
)
from kourou.client.producer.producer_hooks import ProducerHook
from kourou.client.producer.producer_options import ProducerOptions
from kourou.client.producer.producer_sessions import BrokerPlace, ProducerSessions, not_supported
from kourou.client.producer.send_request import SendRequest, SequencedRequest
from kourou.client.producer.send_result import SendResult
from kourou.client.producer.sends import Sends, always
from kourou.client.producer.sequence_numbers import Numbered, QueueNumbers, Room
from kourou.errors import (
    AccessDeniedError,
    CallTimeoutError,
    ConnectionLostError,
    KourouError,
    MessageRefusedError,
    ProducerFencedError,
    RemotingError,
    ResponseError,
    SendFailedError,
    SequenceJumpError,
    SequenceRefusedError,
    SequenceTooOldError,
    UnknownEpochError,
    UnknownProducerError,
)
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.message import Message
from kourou.protocol.names import is_retry_topic
from kourou.transport.connection import Connection

_log = logging.getLogger(__name__)

_SEQUENCED_CODES: Final = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
_FENCED: Final = ResponseCode.KOUROU_PRODUCER_FENCED
_REFUSALS: Final[dict[int, type[SequenceRefusedError]]] = {
    ResponseCode.KOUROU_UNKNOWN_PRODUCER: UnknownProducerError,
    ResponseCode.KOUROU_PRODUCER_FENCED: ProducerFencedError,
    ResponseCode.KOUROU_UNKNOWN_EPOCH: UnknownEpochError,
    ResponseCode.KOUROU_SEQUENCE_TOO_OLD: SequenceTooOldError,
    ResponseCode.KOUROU_SEQUENCE_JUMP: SequenceJumpError,
}
# A broker that fails in the middle of storing a message may find it on its disk after a restart.
_UNDECIDED_CODES: Final = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE})
_FIRST_PAUSE_S: Final = 0.05
_MAX_PAUSE_S: Final = 1.0
_MAX_PATIENCE: Final = 16
# A broker that forgets each new session as well would otherwise be asked until the timeout.
_MAX_RENEWALS: Final = 2
_AGAIN: Final = (
    "; it may be stored: producer.send_again(error) repeats it without storing it twice, "
    "a new send would be another message"
)


class SequencedSend(PendingSend):
    """One send of an idempotent producer."""

    numbered: Numbered | None = None
    is_ordinary = False
    """Whether it carries no sequence."""
    is_chosen = False
    """Whether the caller has chosen the queue."""
    is_pinned = False
    """Whether an attempt is undecided, so that it stays with its queue."""
    renewals = 0


class SequencedSends(Sends):
    """The sends of one idempotent producer. `name` is the one that brokers know; None: they give an id."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        options: ProducerOptions,
        hooks: Sequence[ProducerHook],
        failures: FailureLog,
        name: str | None,
    ) -> None:
        super().__init__(instance, group, options, hooks, failures)
        self.sessions = ProducerSessions(instance, group, options, name)
        self._paused: dict[QueuedSend, None] = {}

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
        assert isinstance(request, SequencedRequest)
        send = SequencedSend(
            self,
            request,
            messages,
            choose,
            self._loop.create_future(),
            timeout_ms,
            deadline,
            1 + self._options.retry_times,
            size_bytes,
        )
        send.is_chosen = choose is not None
        # Its sequence counts in the queue that it names: the broker does not move it to another one.
        send.priority = messages[0].priority
        send.is_ordinary = request.code not in _SEQUENCED_CODES or is_retry_topic(request.topic)
        if self.sessions.fenced_by is not None:
            self.fail(send, self._fenced(send))
        elif self._options.explicit_sequences and request.sequences is None:
            self.fail(send, _no_sequence(messages[0].topic))
        else:
            self._start(send)
        return send.future

    def begin_again(
        self, error: SendFailedError, timeout_ms: int, deadline: float
    ) -> asyncio.Future[SendResult]:
        """Continue a send that has ended undecided; the caller has entered `in_flight` for it."""
        old, error.undecided = error.undecided, None
        assert isinstance(old, SequencedSend) and old.numbered is not None
        send = SequencedSend(
            self,
            old.request,
            old.messages,
            old.choose,
            self._loop.create_future(),
            timeout_ms,
            deadline,
            1,
            old.size_bytes,
        )
        send.queue, send.is_pinned, send.may_be_stored = old.queue, True, True
        send.patience = old.patience
        # Not among the undecided sequences of the queue again: they have moved on.
        send.numbered = Numbered(old.numbered.session, None, old.numbered.first)
        if self.sessions.fenced_by is not None:
            self.fail(send, self._fenced(send))
        else:
            self._start(send)
        return send.future

    # -- sequences -------------------------------------------------------------------------------

    def write(self, send: PendingSend, connection: Connection) -> None:
        """Make the attempt that `send` is prepared for, with its sequences; or let it wait for them."""
        self._write(send, connection)

    def _write(self, send: PendingSend, connection: Connection, *, is_next: bool = False) -> None:
        assert isinstance(send, SequencedSend) and send.queue is not None
        if send.is_ordinary or send.is_over or send.future.cancelled():
            super().write(send, connection)
            return
        send.waits_for = None
        if self.sessions.fenced_by is not None:
            self.fail(send, self._fenced(send))
            return
        place = self.sessions.place(send.queue.broker_name)
        is_known = place.connection is connection
        if send.numbered is not None:
            if not is_known:
                # Not behind those that wait for a session: it may be opened only after this send is decided.
                send.wait_in(place.reconnecting)
                self._serve(place)
                return
        elif not is_known or place.waiting:
            self._wait_for_session(send, place)
            return
        if not place.is_supported:
            self._write_unnumbered(send, connection)
        elif send.numbered is not None or self._number(send, place, is_next):
            super().write(send, connection)

    def _number(self, send: SequencedSend, place: BrokerPlace, is_next: bool) -> bool:
        """Give sequences to a send; False if it has to wait for them."""
        session, queue, request = place.session, send.queue, send.request
        assert queue is not None and isinstance(request, SequencedRequest)
        if session is None or session.is_ending:
            self._wait_for_session(send, place)
            return False
        if request.sequences is not None:
            send.numbered = Numbered(session, None, request.sequences[0])
            request.set_sequences(session.identity, request.sequences)
            return True
        numbers = session.queues.get(queue) or session.numbers(queue)
        if numbers is None:
            self._wait_for_session(send, place)
            return False
        count = len(send.messages)
        if numbers.waiting and not is_next:
            room = Room.WAIT
        else:
            room = numbers.room(count)
        if room is Room.FREE:
            first = numbers.take(count)
            send.numbered = Numbered(session, numbers, first)
            request.set_sequences(session.identity, range(first, first + count))
            return True
        if room is Room.WAIT:
            send.waits_for = f"queue {queue}: too many sends before it are undecided"
            send.wait_in(numbers.waiting)
        else:
            session.is_ending = True
            self._wait_for_session(send, place)
        return False

    def _write_unnumbered(self, send: SequencedSend, connection: Connection) -> None:
        assert send.queue is not None and isinstance(send.request, SequencedRequest)
        if send.is_pinned:
            self._give_up(send, not_supported(send.queue.broker_name))
        elif self._options.explicit_sequences:
            self.fail(send, not_supported(send.queue.broker_name))
        else:
            self._settle(send)
            send.request.remove_sequences()
            super().write(send, connection)

    def _settle(self, send: SequencedSend, *, is_stored: bool = False) -> None:
        """The sequences of a send are decided, or given up."""
        numbered = send.numbered
        if numbered is None or not numbered.settle(is_stored=is_stored):
            return
        if not is_stored and not send.is_pinned:
            send.numbered = None
        assert send.queue is not None
        place = self.sessions.place(send.queue.broker_name)
        if numbered.numbers is not None and numbered.numbers.waiting:
            self._wake(place, numbered.numbers)
        session = numbered.session
        if session.is_ending and place.waiting:
            self._serve(place)

    def _wake(self, place: BrokerPlace, numbers: QueueNumbers) -> None:
        """Write the sends that waited for room, in order, as far as there is room now."""
        if numbers.is_waking:
            return  # one of them has failed at once
        numbers.is_waking = True
        try:
            while numbers.waiting:
                send = next(iter(numbers.waiting))
                assert isinstance(send, SequencedSend)
                if numbers.room(len(send.messages)) is Room.WAIT:
                    return
                del numbers.waiting[send]
                send.stop_waiting()
                self._write_again(send, place, is_next=True)
        finally:
            numbers.is_waking = False

    # -- sessions --------------------------------------------------------------------------------

    def _wait_for_session(self, send: SequencedSend, place: BrokerPlace) -> None:
        send.waits_for = f"broker {place.broker_name}: the producer was not opened in time"
        send.wait_in(place.waiting)
        self._serve(place)

    def _serve(self, place: BrokerPlace) -> None:
        """Do what the sends that wait need; called again when those of a session that ends are decided."""
        if not place.is_serving and (place.reconnecting or place.can_open):
            place.is_serving = True
            self._instance.tasks.start(self._serve_waiting(place), f"producer-{place.broker_name}")

    async def _serve_waiting(self, place: BrokerPlace) -> None:
        try:
            while place.reconnecting or (place.waiting and place.can_open):
                await self._serve_once(place)
        finally:
            place.is_serving = False

    async def _serve_once(self, place: BrokerPlace) -> None:
        problem: KourouError | None = None
        with_session = bool(place.waiting) and place.can_open
        try:
            topics = {send.request.topic for send in place.waiting if isinstance(send, PendingSend)}
            await self.sessions.connect(place, topics, with_session=with_session)
        except KourouError as error:
            problem = _not_opened(error)
        served, place.reconnecting = list(place.reconnecting), {}
        if with_session:
            served += place.waiting
            place.waiting = {}
        for send in served:
            assert isinstance(send, SequencedSend)
            send.stop_waiting()
            if self.sessions.fenced_by is not None:
                self.fail(send, self._fenced(send))
            elif problem is not None:
                self.failed(send, problem)
            else:
                self._write_again(send, place)

    def _write_again(self, send: SequencedSend, place: BrokerPlace, *, is_next: bool = False) -> None:
        """Write a send that has waited: at once, so that later ones do not overtake it."""
        connection = place.connection
        assert send.send_queue is not None
        if connection is not None and not connection.closed and send.send_queue.address == place.address:
            self._write(send, connection, is_next=is_next)
        else:
            send.attempts_left += 1  # this one has not been made
            self._start(send)

    # -- how an attempt ends ---------------------------------------------------------------------

    def _go_on(self, send: PendingSend, error: Exception) -> None:
        assert isinstance(send, SequencedSend)
        numbered = send.numbered
        code = error.code if isinstance(error, ResponseError) else None
        if send.is_ordinary or (
            send.queue is not None and self.sessions.is_unsupported(send.queue.broker_name)
        ):
            if send.is_chosen:
                send.attempts_left = 0
            super()._go_on(send, error)
            return
        if numbered is not None and code in _REFUSALS:
            assert isinstance(error, ResponseError)
            self._refused(send, numbered, error)
            return
        if self._waits_for_limit(send, error):
            return
        if numbered is not None and not send.is_pinned and _is_undecided(error):
            send.is_pinned = send.may_be_stored = True
            assert send.queue is not None
            send.choose = always(send.queue)
        # Room on a disk, or a permission, takes longer than a send has.
        is_final = code == ResponseCode.KOUROU_DISK_FULL or isinstance(error, AccessDeniedError)
        is_repeated = send.is_chosen and is_retriable(error) and not is_final
        if not send.is_pinned and not is_repeated:
            if send.is_chosen:
                send.attempts_left = 0
            self._settle(send)
            super()._go_on(send, error)
        elif self._is_out_of_time(send) or not is_retriable(error):
            self._give_up(send, error)
        elif is_master_away(error):
            self._wait_for_master(send, error)
        else:
            if isinstance(error, CallTimeoutError):
                # Repeats at a constant rate would keep a slow broker from ever catching up.
                send.patience = min(2 * send.patience, _MAX_PATIENCE)
            self._pause(send)

    def _refused(self, send: SequencedSend, numbered: Numbered, error: ResponseError) -> None:
        """The broker does not accept the sequence. It has stored nothing now."""
        assert send.queue is not None
        place = self.sessions.place(send.queue.broker_name)
        is_current = place.session is numbered.session
        if error.code == _FENCED and is_current:
            self.sessions.fenced_by = f"broker {send.queue.broker_name} at {error.address}"
            self.fail(send, self._fenced(send))
            return
        is_lost = error.code != ResponseCode.KOUROU_SEQUENCE_TOO_OLD
        if is_lost and is_current:
            _log.warning(
                "group %s: broker %s refuses the session of this producer, and a new one is opened: %s",
                self._group,
                send.queue.broker_name,
                error.remark,
            )
            place.session = None
        if is_lost and not send.is_pinned and send.renewals < _MAX_RENEWALS:
            send.renewals += 1
            self._settle(send)
            self._start(send)
            return
        # Fenced by a session that this producer has opened itself.
        kind = UnknownProducerError if error.code == _FENCED else _REFUSALS[error.code]
        problem = f"broker {send.queue.broker_name} at {error.address} answered: {error.remark}"
        may_be_stored = send.may_be_stored or not is_lost
        self.fail(send, kind(send.messages[0].topic, problem, may_be_stored=may_be_stored))

    def _fenced(self, send: SequencedSend) -> ProducerFencedError:
        return self.sessions.fenced_error(send.messages[0].topic, may_be_stored=send.may_be_stored)

    # -- retries ---------------------------------------------------------------------------------

    def _pause(self, send: SequencedSend) -> None:
        """Repeat the attempt after a while, in the same queue."""
        attempts = len(send.attempts or ())
        pause_s = min(_MAX_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(attempts - 1, 10))
        send.waits_for = ""
        send.wait_in(self._paused)
        self._loop.call_later(pause_s, self._end_pause, send)

    def _end_pause(self, send: SequencedSend) -> None:
        if self._paused.pop(send, _MISSING) is not _MISSING:
            send.stop_waiting()
            send.waits_for = None
            # A slave may have become master.
            self._retry(send, refresh=True)

    def _fail_without_route(self, send: PendingSend, problem: Exception) -> None:
        assert isinstance(send, SequencedSend)
        if send.is_pinned or (send.is_chosen and send.attempts):
            self.failed(send, problem)
        else:
            super()._fail_without_route(send, problem)

    # -- how a send ends -------------------------------------------------------------------------

    def _finish(self, send: PendingSend, result: SendResult) -> None:
        assert isinstance(send, SequencedSend)
        self._settle(send, is_stored=True)
        super()._finish(send, result)

    def fail(self, send: PendingSend, error: Exception) -> None:
        """End the send with `error`; it says whether the message may be stored."""
        assert isinstance(send, SequencedSend)
        if send.is_pinned and not isinstance(error, SequenceRefusedError):
            attempts, cause = list(send.attempts or ()), error.__cause__
            if not isinstance(error, SendFailedError):
                attempts.append(str(error))
                cause = error
            topic = send.messages[0].topic
            error = SendFailedError(topic, attempts, send.timeout_ms, may_be_stored=True, hint=_AGAIN)
            error.__cause__ = cause
            error.undecided = send
        super().fail(send, error)

    def _leave(self, send: PendingSend) -> None:
        assert isinstance(send, SequencedSend)
        self._settle(send)
        super()._leave(send)

    def _waiting_places(self) -> list[dict[QueuedSend, None]]:
        numbers = (
            numbers.waiting
            for place in self.sessions.places.values()
            if place.session is not None
            for numbers in place.session.queues.values()
        )
        places = (
            waiting
            for place in self.sessions.places.values()
            for waiting in (place.waiting, place.reconnecting)
        )
        return [*super()._waiting_places(), *places, *numbers, self._paused]

    async def send_oneway(
        self, request: SendRequest, messages: Sequence[Message], choose: ChooseQueue | None
    ) -> None:
        """Refused: without an answer there is nothing to repeat."""
        raise MessageRefusedError(
            "an idempotent producer sends nothing one-way: without an answer it cannot know what to repeat; "
            "use send_nowait, or an ordinary producer"
        )


_MISSING: Final = object()


def _is_undecided(error: Exception) -> bool:
    """Whether the broker may have stored the message nevertheless."""
    if isinstance(error, ResponseError):
        return error.code in _UNDECIDED_CODES
    return isinstance(error, CallTimeoutError | ConnectionLostError)


def _not_opened(error: KourouError) -> KourouError:
    """The error of the sends that waited for a session: none of them was written."""
    if isinstance(error, CallTimeoutError | ConnectionLostError):
        return RemotingError(error.address, f"the producer was not opened: {error}")
    return error


def _no_sequence(topic: str) -> MessageRefusedError:
    return MessageRefusedError(
        f"topic {topic!r}: the application numbers the messages of this producer (explicit_sequences); use "
        "send, send_nowait or send_many, with a queue and a sequence"
    )
