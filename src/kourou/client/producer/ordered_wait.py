"""OrderedWait: sends to one broker that wait together, and leave in the order in which they came."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kourou.client.producer.pending_send import PendingSend, QueuedSend
from kourou.client.producer.send_result import SendResult


class OrderedWait:
    """The sends that wait for one broker name."""

    def __init__(self, broker_name: str) -> None:
        self.broker_name = broker_name
        self.problem = ""
        """Why the last attempt failed."""
        self.waiting: dict[QueuedSend, None] = {}
        self.orders: dict[PendingSend, int] = {}
        """All of its sends by the order in which they came, those in an attempt included."""
        self._next_order = 0

    def enter(self, send: PendingSend, ended: Callable[[asyncio.Future[SendResult]], None]) -> None:
        """Wait here. `ended` is called when the send has ended."""
        send.waits_for = "" if send.attempts else self.problem
        send.wait_in(self.waiting)
        if send not in self.orders:
            self.orders[send] = self._next_order
            self._next_order += 1
            send.future.add_done_callback(ended)

    def leave(self, count: int | None = None) -> list[PendingSend]:
        """Take out the first ones, or all, in order."""
        sends = [send for send in self.waiting if isinstance(send, PendingSend)]
        sends.sort(key=self.orders.__getitem__)
        left = sends[:count]
        for send in left:
            del self.waiting[send]
            send.stop_waiting()
            send.waits_for = None
        return left
