"""The program that accepts orders."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from kourou import KourouError, Producer
from orders.order import TOPIC, Order


class OrderNotPlacedError(Exception):
    """The order is not stored, as far as is known: ask the customer to try again."""


class Shop:
    """Places orders. Without `namesrv` the address is NAMESRV_ADDR."""

    def __init__(self, namesrv: str | None = None, topic: str = TOPIC, timeout_ms: int = 3_000) -> None:
        self._topic = topic
        self._producer = Producer("shop", namesrv=namesrv, send_timeout_ms=timeout_ms)

    def __enter__(self) -> Self:
        self._producer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._producer.stop()

    def place(self, order: Order) -> str:
        """Place an order; returns the message's id."""
        try:
            return self._producer.send(order.to_message(self._topic)).msg_id
        except KourouError as error:
            raise OrderNotPlacedError(f"{order.order_id}: {error}") from error


if __name__ == "__main__":
    with Shop() as shop:
        print(shop.place(Order(sys.argv[1], int(sys.argv[2]))))
