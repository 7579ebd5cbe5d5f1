"""Transactions: the half messages of a producer, and their outcomes.

A transaction has one outcome: it is recorded before it is sent to a broker, and every later check gets the
same. While a transaction is open, checks get UNKNOWN, since the application's own check cannot see unfinished
work. A check over the connection on which the broker has confirmed the end gets UNKNOWN too: Apache's 5.x
stores ends seconds later, and a repeated end would deliver the message twice. TransactionListener calls the
application's check: a sync function in a thread of the producer, an async one on its loop.
Not here: sending the half message (transaction_producer.py).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from kourou.client.core.failure_log import FailureLog
from kourou.client.core.instance import ClientInstance
from kourou.client.core.namespaces import Namespace
from kourou.client.core.transaction_state import TransactionState
from kourou.client.producer.producer_hooks import EndTransactionContext, ProducerHook, call_hooks
from kourou.client.producer.producer_stats import ProducerCounters
from kourou.client.producer.send_result import SendResult
from kourou.client.push.handler_threads import HandlerThreads
from kourou.errors import ConnectionLostError, KourouError, RemotingError
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.transactions import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from kourou.protocol.message import Message, MessageExt
from kourou.protocol.message_id import parse_offset_msg_id
from kourou.protocol.properties import MessageConst
from kourou.protocol.record import decode_record
from kourou.transport.connection import Connection
from kourou.transport.request import Request

_log = logging.getLogger(__name__)


TransactionCheck: TypeAlias = Callable[[MessageExt], TransactionState | Awaitable[TransactionState]]
"""Looks up the outcome of a message's transaction, in the application's own database."""

LocalTransaction: TypeAlias = Callable[[Message], TransactionState | Awaitable[TransactionState]]
"""Executes the local transaction of a message, and returns its outcome."""


async def call_user(
    function: Callable[[Any], TransactionState | Awaitable[TransactionState]],
    argument: Message | MessageExt,
    threads: HandlerThreads,
) -> TransactionState:
    """Call a function of the application, in a thread or on the loop; TypeError for a wrong result."""
    if _is_async(function):
        returned = function(argument)
    else:
        returned = await threads.run(function, argument)
    state = await returned if inspect.isawaitable(returned) else returned
    if not isinstance(state, TransactionState):
        raise wrong_state(function, state)
    return state


def wrong_state(function: Callable[..., Any], returned: object) -> TypeError:
    """The error for a function of the application that did not return a state."""
    name = getattr(function, "__qualname__", None) or repr(function)
    return TypeError(f"{name} returned {returned!r}; it has to return a TransactionState")


def _is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 (an object with an async __call__)
    )


class TransactionListener:
    """Calls the application's check, at most `concurrency` at once. An exception is logged and means UNKNOWN:
    the broker sends the check again."""

    def __init__(self, check: TransactionCheck, threads: HandlerThreads, concurrency: int) -> None:
        self._check = check
        self._threads = threads
        self._turns = asyncio.Semaphore(concurrency)

    async def check(self, message: MessageExt) -> TransactionState:
        """The outcome of the transaction; UNKNOWN if the check fails."""
        async with self._turns:
            try:
                return await call_user(self._check, message, self._threads)
            except Exception:
                _log.exception("the check of transaction message %s failed", message.msg_id)
                return TransactionState.UNKNOWN


UNKNOWN: Final = TransactionState.UNKNOWN
# Java's checkRequestHoldMax. A broker repeats dropped checks.
_MAX_CHECKS: Final = 2_000
# A broker sends a check within minutes if the end did not arrive.
_MAX_REMEMBERED: Final = 10_000
_END_TIMEOUT_MS: Final = 3_000


class Transactions:
    """The transactions of one producer."""

    def __init__(
        self,
        instance: ClientInstance,
        namespace: Namespace,
        group: str,
        listener: TransactionListener,
        counters: ProducerCounters,
        hooks: Sequence[ProducerHook],
        failures: FailureLog,
    ) -> None:
        self._instance = instance
        self._namespace = namespace
        self._group = group
        self._listener = listener
        self._counters = counters
        self._hooks = [hook.end_transaction for hook in hooks]
        self._failures = failures
        self._open: set[str] = set()
        self._all_ended = asyncio.Event()
        self._all_ended.set()
        self._outcomes: OrderedDict[str, TransactionState] = OrderedDict()
        self._confirmed: dict[str, Connection] = {}
        self._checks = 0

    # -- outcomes --------------------------------------------------------------------------------

    def open(self, msg_id: str) -> None:
        """A transaction begins; its half message may be in flight."""
        self._open.add(msg_id)
        self._all_ended.clear()

    def record(self, msg_id: str, state: TransactionState) -> None:
        """A transaction is over; later checks get this outcome."""
        self._decide(msg_id, state)
        self._close(msg_id)

    def _decide(self, msg_id: str, state: TransactionState) -> None:
        if state is UNKNOWN:
            return
        self._outcomes[msg_id] = state
        while len(self._outcomes) > _MAX_REMEMBERED:
            forgotten, _ = self._outcomes.popitem(last=False)
            self._confirmed.pop(forgotten, None)

    def _close(self, msg_id: str) -> None:
        self._open.discard(msg_id)
        if not self._open:
            self._all_ended.set()

    async def wait_ended(self, timeout_ms: int) -> int:
        """Wait for open transactions, at most `timeout_ms`; returns how many are left."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._all_ended.wait()
        except TimeoutError:
            pass
        return len(self._open)

    # -- ends ------------------------------------------------------------------------------------

    async def end(self, message: Message, half: SendResult, topic: str, state: TransactionState) -> None:
        """Send the outcome to the broker of the half message. If that fails, its check gets the same."""
        self._decide(half.msg_id, state)
        self._count(state)
        try:
            await self._send_end(message, half, topic, state)
        except (KourouError, TimeoutError) as error:
            _log.warning(
                "group %s: the broker may not know that message %s is to %s; it will send a check: %s",
                self._group,
                half.msg_id,
                state.name,
                error,
            )
        finally:
            self._close(half.msg_id)

    async def _send_end(
        self, message: Message, half: SendResult, topic: str, state: TransactionState
    ) -> None:
        header = EndTransactionRequestHeader(
            topic=topic,
            producer_group=self._group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=parse_offset_msg_id(half.offset_msg_id).phy_offset,
            commit_or_rollback=state.value,
            msg_id=half.msg_id,
            transaction_id=half.transaction_id or half.msg_id,
        )
        broker_name = half.queue.broker_name
        address = self._instance.routes.master(broker_name)
        self._call_hooks(message, header, address or "", state)
        if state is not UNKNOWN:
            # The half message is at the new master, too, and at the same offset.
            call = partial(self._call, header=header)
            await self._instance.masters.call_master(half.queue, _END_TIMEOUT_MS / 1000, call)
        elif address is None:
            raise RemotingError("", f"broker {broker_name!r} has no master at present")
        else:
            await self._instance.api.end_transaction(address, header)  # has no response

    async def _call(self, address: str, header: EndTransactionRequestHeader) -> None:
        """End a transaction, and wait for the broker's confirmation."""
        async with asyncio.timeout(_END_TIMEOUT_MS / 1000):
            connection = await self._instance.remoting.connection(address)
            command = self._instance.api.command(RequestCode.END_TRANSACTION, header)
            try:
                answer = await connection.call(command, _END_TIMEOUT_MS)
            except ConnectionLostError as error:
                # Not repeated: an Apache broker that has stored the end would deliver the message twice.
                raise RemotingError(address, f"the end is not confirmed: {error}") from error
        if answer.code != ResponseCode.SUCCESS:
            raise self._instance.api.response_error(answer, address)
        self._confirmed[header.msg_id] = connection

    def _count(self, state: TransactionState) -> None:
        if state is TransactionState.COMMIT:
            self._counters.transactions_committed += 1
        elif state is TransactionState.ROLLBACK:
            self._counters.transactions_rolled_back += 1
        else:
            self._counters.transactions_unknown += 1

    def _call_hooks(
        self,
        message: Message | MessageExt,
        header: EndTransactionRequestHeader,
        address: str,
        state: TransactionState,
    ) -> None:
        if self._hooks:
            context = EndTransactionContext(
                producer_group=self._group,
                client_id=self._instance.client_id,
                message=message,
                msg_id=header.msg_id,
                transaction_id=header.transaction_id,
                broker_address=address,
                state=state,
                from_transaction_check=header.from_transaction_check,
            )
            call_hooks(self._hooks, context, self._failures)

    # -- checks ----------------------------------------------------------------------------------

    def check(self, request: Request) -> None:
        """CHECK_TRANSACTION_STATE: a broker's check of a half message, answered in a task over this
        connection."""
        header = request.header(CheckTransactionStateRequestHeader)
        message = decode_record(request.body)
        group = message.get_property(MessageConst.PROPERTY_PRODUCER_GROUP)
        if group != self._group:
            _log.warning(
                "group %s got the check of message %s of group %s; it is not answered",
                self._group,
                message.msg_id,
                group,
            )
        elif self._checks >= _MAX_CHECKS:
            _log.warning("%d checks are waiting; dropped that of %s", self._checks, message.msg_id)
        else:
            self._checks += 1
            self._instance.tasks.start(self._answer(request, header, message), f"check-{message.msg_id}")

    async def _answer(
        self, request: Request, header: CheckTransactionStateRequestHeader, message: MessageExt
    ) -> None:
        try:
            wire_topic = message.topic
            message.topic = self._namespace.unwrap(wire_topic)
            message.broker_name = request.ext_fields.get("bname", "")
            state = await self._state_of(message, request.connection)
            end = EndTransactionRequestHeader(
                topic=wire_topic,
                producer_group=self._group,
                tran_state_table_offset=header.tran_state_table_offset,
                commit_log_offset=header.commit_log_offset,
                commit_or_rollback=state.value,
                from_transaction_check=True,
                msg_id=message.msg_id,
                transaction_id=header.transaction_id,
            )
            self._counters.transaction_checks += 1
            self._call_hooks(message, end, request.connection.remote_address, state)
            request.connection.send_oneway(self._instance.api.command(RequestCode.END_TRANSACTION, end))
        except KourouError as error:
            _log.warning("the check of transaction message %s is not answered: %s", message.msg_id, error)
        finally:
            self._checks -= 1

    async def _state_of(self, message: MessageExt, connection: Connection) -> TransactionState:
        msg_id = message.msg_id
        if self._confirmed.get(msg_id) is connection:
            return UNKNOWN
        if (known := self._outcomes.get(msg_id)) is not None:
            return known
        if msg_id in self._open:
            return UNKNOWN
        state = await self._listener.check(message)
        if (known := self._outcomes.get(msg_id)) is not None:
            return known  # another check has decided meanwhile
        self._decide(msg_id, state)
        return state
