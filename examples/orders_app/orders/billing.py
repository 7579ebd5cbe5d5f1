"""The program that bills orders."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from kourou import ConsumeResult, MessageExt, PushConsumer
from orders.order import TOPIC, Order

GROUP = "billing"

Charge = Callable[[Order], None]


class PaymentDownError(Exception):
    """The payment provider does not respond."""


class Billing:
    """Charges for each placed order. If `charge` fails, the order is retried later."""

    def __init__(
        self, charge: Charge, namesrv: str | None = None, topic: str = TOPIC, group: str = GROUP
    ) -> None:
        self._charge = charge
        self._topic = topic
        self._consumer = PushConsumer(group, namesrv=namesrv, consume_from="first")

    def __enter__(self) -> Self:
        self._consumer.start()
        self._consumer.subscribe(self._topic, "placed", self._on_order)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._consumer.stop()

    def run(self) -> None:
        """Bill until Ctrl-C or SIGTERM."""
        self._consumer.run()

    def _on_order(self, message: MessageExt) -> ConsumeResult:
        try:
            self._charge(Order.of(message))
        except PaymentDownError:
            return ConsumeResult.LATER
        return ConsumeResult.SUCCESS


if __name__ == "__main__":
    with Billing(print) as billing:
        billing.run()
