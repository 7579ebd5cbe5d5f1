"""LeaseCalls: what an application does with a popped message: acknowledge, return, extend.

The first of ack and return counts. One that comes too late raises LeaseExpiredError and sends nothing: the
message is delivered again, maybe to another consumer already.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from kourou.argument_types import check_int
from kourou.client.core.instance import ClientInstance
from kourou.client.core.subscription import Subscription
from kourou.client.pop.acks import AckPipeline
from kourou.client.pop.pop_calls import PopCalls
from kourou.client.pop.popped import (
    MAX_INVISIBLE_MS,
    MIN_INVISIBLE_MS,
    LeasedMessage,
    LeaseState,
    retry_delay_ms,
)
from kourou.errors import ClientStateError, KourouError, LeaseExpiredError
from kourou.protocol.message import MessageExt

_log = logging.getLogger(__name__)


def check_invisible_ms(name: str, value: int) -> None:
    """ValueError unless a message can be invisible for that long."""
    check_int(name, value)
    if not MIN_INVISIBLE_MS <= value <= MAX_INVISIBLE_MS:
        raise ValueError(f"{name} is {value}; it must be from {MIN_INVISIBLE_MS} to {MAX_INVISIBLE_MS}")


class LeaseCalls:
    """The calls of one consumer."""

    def __init__(self, instance: ClientInstance, calls: PopCalls) -> None:
        self._loop = asyncio.get_running_loop()
        self._instance = instance
        self._calls = calls
        self.acks = AckPipeline(instance, calls)

    async def ack(self, message: LeasedMessage) -> None:
        """Acknowledge a message; on return the broker has it."""
        lease = message.lease
        self._instance.check_running()
        async with lease.changing:
            if lease.state is LeaseState.HELD:
                self._check_held(message, "it cannot be acknowledged")
                self.acks.put(lease)
        if lease.state is LeaseState.RETURNED or lease.ack is None:
            raise ClientStateError(f"message {message.msg_id} was returned, so it cannot be acknowledged")
        # Shielded: the ack is on its way whether or not its caller waits.
        await asyncio.shield(lease.ack)

    async def nack(self, message: LeasedMessage, delay_ms: int | None) -> None:
        """Have a message delivered again after a delay."""
        if delay_ms is None:
            delay_ms = retry_delay_ms(message.reconsume_times)
        check_int("delay_ms", delay_ms, at_least=0)
        if delay_ms > MAX_INVISIBLE_MS:
            raise ValueError(f"delay_ms is {delay_ms}; it must be at most {MAX_INVISIBLE_MS}")
        await self._change(message, delay_ms, "it cannot be returned", LeaseState.RETURNED)

    async def extend(self, message: LeasedMessage, invisible_ms: int) -> None:
        """Have a message stay invisible for that time from now."""
        check_invisible_ms("invisible_ms", invisible_ms)
        await self._change(message, invisible_ms, "it cannot be extended")

    async def _change(
        self, message: LeasedMessage, invisible_ms: int, what: str, after: LeaseState = LeaseState.HELD
    ) -> None:
        # Shielded: a caller that is cancelled must not leave the message with its old handle.
        changed = asyncio.ensure_future(self._change_held(message, invisible_ms, what, after))
        changed.add_done_callback(_retrieve)
        await asyncio.shield(changed)

    async def _change_held(
        self, message: LeasedMessage, invisible_ms: int, what: str, after: LeaseState
    ) -> None:
        lease = message.lease
        self._instance.check_running()
        async with lease.changing:
            if lease.state is not LeaseState.HELD:
                done = "acknowledged" if lease.state is LeaseState.ACKED else "returned"
                raise ClientStateError(f"message {message.msg_id} was {done} before, so {what}")
            self._check_held(message, what)
            await self._calls.change(lease, invisible_ms)
            lease.state = after

    def _check_held(self, message: LeasedMessage, what: str) -> None:
        if message.lease.is_over(self._loop.time()):
            raise LeaseExpiredError(message.topic, message.msg_id, what)

    def ack_later(self, message: LeasedMessage) -> None:
        """Acknowledge a held message without waiting; a failure is logged."""
        self.acks.put(message.lease).add_done_callback(partial(_log_ack, message))

    def selected(self, subscription: Subscription, messages: list[LeasedMessage]) -> list[LeasedMessage]:
        """The messages that a subscription selects. The broker compares only hashes of tags: the others are
        acknowledged."""
        every: list[MessageExt] = list(messages)
        kept = set(map(id, subscription.keeps(every)))
        if len(kept) == len(messages):
            return messages
        for message in messages:
            if id(message) not in kept:
                self.ack_later(message)
        return [message for message in messages if id(message) in kept]

    # -- blocks ----------------------------------------------------------------------------------

    async def end_block(self, messages: Sequence[LeasedMessage], *, is_failed: bool) -> None:
        """The end of a `with` block: acknowledge what is still held, or return it if the block has failed."""
        held = [message for message in messages if message.lease.state is LeaseState.HELD]
        if not is_failed:
            await self.ack_all(held)
            return
        for error in await asyncio.gather(*(self._return(message, None) for message in held)):
            if error is not None:  # the exception of the block matters more
                _log.warning("a message is delivered again only when its invisible time is over: %s", error)

    async def ack_all(self, messages: Sequence[LeasedMessage]) -> None:
        """Acknowledge all; the first failure is raised once all are answered."""
        outcomes = await asyncio.gather(*(self.ack(message) for message in messages), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def nack_all(self, messages: Sequence[LeasedMessage], delay_ms: int | None) -> None:
        """Return all; the first failure is raised once all are answered."""
        outcomes = await asyncio.gather(
            *(self.nack(message, delay_ms) for message in messages), return_exceptions=True
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def release(self, messages: Sequence[LeasedMessage]) -> None:
        """Make messages visible at once that nothing was done with; failures are logged."""
        held = [message for message in messages if message.lease.state is LeaseState.HELD]
        errors = [each for each in await asyncio.gather(*(self._return(m, 0) for m in held)) if each]
        if errors:
            _log.warning(
                "%d messages are delivered again only when their invisible time is over: %s",
                len(errors),
                errors[0],
            )

    async def _return(self, message: LeasedMessage, delay_ms: int | None) -> KourouError | None:
        try:
            await self.nack(message, delay_ms)
        except LeaseExpiredError:
            return None  # visible already
        except KourouError as error:
            return error
        return None


def _log_ack(message: LeasedMessage, outcome: asyncio.Future[None]) -> None:
    if not outcome.cancelled() and (error := outcome.exception()) is not None:
        _log.warning("message %s is delivered again: its ack failed: %s", message.msg_id, error)


def _retrieve(changed: asyncio.Future[None]) -> None:
    if not changed.cancelled():
        changed.exception()  # retrieved, since the caller may have been cancelled
