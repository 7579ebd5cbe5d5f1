"""PendingSend: one send under way, from the first attempt to the result.

It is told what happens (written, answered, failed, timed_out) and says so to whoever runs it; it decides
nothing. While it waits for a route or a connection it has a timer of its own; once it is written the
connection's table of calls watches the time, and tells it the answer without a turn of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kourou.client.producer.broker_send_queue import BrokerSendQueue, QueuedSend
from kourou.client.producer.producer_hooks import SendContext
from kourou.client.producer.send_request import SendRequest
from kourou.client.producer.send_result import SendResult
from kourou.protocol.bodies.message_queue import MessageQueue
from kourou.protocol.command import CommandHead
from kourou.protocol.message import Message
from kourou.transport.connection import Connection

if TYPE_CHECKING:
    from kourou.client.producer.sends import Sends

ChooseQueue = Callable[[Sequence[MessageQueue]], MessageQueue]
"""How the sender of a message chooses its queue."""


class PendingSend:
    """A message (or a batch) for one broker or another, until `deadline`. Its own sink for answers."""

    # Most sends are answered at the first attempt: what they do not need is not set for each of them.
    _timer: asyncio.TimerHandle | None = None
    _place: dict[QueuedSend, None] | None = None
    attempts: list[str] | None = None
    """What was tried and failed, as a user reads it."""
    may_be_stored = False
    """Whether an attempt was written and not answered."""
    queue: MessageQueue | None = None
    send_queue: BrokerSendQueue | None = None
    connection: Connection | None = None
    context: SendContext | None = None
    half_stored: SendResult | None = None
    """The result of a broker that stored it less safely than wished."""
    written_at = 0.0
    answers_before = 0
    is_over = False

    def __init__(
        self,
        sends: Sends,
        request: SendRequest,
        messages: Sequence[Message],
        choose: ChooseQueue | None,
        future: asyncio.Future[SendResult],
        timeout_ms: int,
        deadline: float,
        attempts_left: int,
        size_bytes: int,
    ) -> None:
        self._sends = sends
        self.request = request
        self.messages = messages
        self.choose = choose
        self.future = future
        self.timeout_ms = timeout_ms
        self.deadline = deadline
        self.attempts_left = attempts_left
        self.size_bytes = size_bytes

    # -- while it waits --------------------------------------------------------------------------

    def wait_in(self, place: dict[QueuedSend, None]) -> None:
        """Wait among others in `place`, at the latest until the deadline."""
        place[self] = None
        self._place = place
        if self._timer is None:
            self._timer = self.future.get_loop().call_at(self.deadline, self._timer_expired)

    def _timer_expired(self) -> None:
        self._timer = None
        if self._place is not None:
            self._place.pop(self, None)
            self._sends.timed_out(self)

    def stop_waiting(self) -> None:
        """Its time is watched elsewhere, or does not matter any more."""
        self._place = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- an attempt ------------------------------------------------------------------------------

    def write_to(self, connection: Connection) -> None:
        """Send it over `connection`, after it has waited."""
        self.stop_waiting()
        self._sends.write(self, connection)

    def attempt_failed(self, error: Exception) -> None:
        """The broker cannot be reached."""
        self.stop_waiting()
        self._sends.failed(self, error)

    # -- a sink for the answer -------------------------------------------------------------------

    def done(self) -> bool:
        """Whether no answer is wanted any more."""
        return self.is_over

    def set_answer(self, head: CommandHead, body: bytes) -> None:
        """The broker answered."""
        try:
            self._sends.answered(self, head)
        except Exception as error:
            self._sends.fail(self, error)

    def set_exception(self, error: Exception) -> None:
        """The broker did not answer in time, or the connection is gone."""
        try:
            self._sends.failed(self, error)
        except Exception as failure:
            self._sends.fail(self, failure)
