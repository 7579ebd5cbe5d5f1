"""Buyers: they order, pay, change their minds, lose answers, and wait for the end of each order.

A buyer knows no more than a person with a browser: the answers of the shop. Requests are repeated while the
shop is away. What was ordered is followed until it is PAID or CANCELLED.
Not here: what they are up to (plan.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

from webshop.buyers.plan import WITH_COUPON, Intent, PlannedOrder, order_request, planned_order
from webshop.errors import AwayError, Code, RefusedError
from webshop.kit.calls import Calls

_log = logging.getLogger(__name__)

Json = dict[str, Any]

_ENDS: Final = ("PAID", "CANCELLED")
_MAX_PAYMENTS: Final = 5
_REQUEST_S: Final = 30.0
_GOODS_S: Final = 2.0
_PATIENCE_S: Final = 3.0
_LATE_PAYERS_S: Final = 120.0
_MAX_LOST_S: Final = 0.05
_MAX_CANCEL_S: Final = 0.1
_PAUSES_S: Final = (0.1, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
# No stock, coupon or balance can make these orders right.
_NEVER_RIGHT: Final = frozenset({Intent.WRONG_PRICE, Intent.WRONG_TOTAL})


class Buyers:
    """Buyers with a plan; `counts` shows how far they are."""

    def __init__(self, calls: Calls, *, seed: int, pay_within_s: float) -> None:
        self._calls = calls
        self._seed = seed
        self._pay_within_s = pay_within_s
        self._users: list[Json] = []
        self._goods: list[Json] = []
        self._goods_until = 0.0
        self._under_way = asyncio.Semaphore()
        self.counts: Counter[str] = Counter()
        self.surprises: list[str] = []
        """Orders that the shop should have refused."""

    async def run(self, *, orders: int, buyers: int, rate: float = 0) -> None:
        """Place this many orders (0: without end), and wait until all of them are settled. With a `rate`,
        at most so many are placed in a second."""
        # One request of each buyer: the orders that are not settled could be many more after a fault, and
        # their requests would keep the shop from recovering.
        self._under_way = asyncio.Semaphore(buyers)
        self._users = await self._patiently(lambda: self._get("users", "/users"))
        pace = _Pace(orders, rate)
        async with asyncio.TaskGroup() as lives:
            for _ in range(buyers):
                lives.create_task(self._buy(pace, lives))

    async def _buy(self, pace: _Pace, lives: asyncio.TaskGroup) -> None:
        """One buyer, who does not wait for ever for the end of an order before placing the next one, but for
        the answers to his requests."""
        while (number := await pace.next_number()) is not None:
            asked = asyncio.Event()
            life = lives.create_task(self._live(planned_order(self._seed, number), asked))
            await asked.wait()
            await asyncio.wait([life], timeout=_PATIENCE_S)

    async def _live(self, planned: PlannedOrder, asked: asyncio.Event) -> None:
        """One plan, to the end of its order; `asked` is set when there is nothing more to request."""
        request = await self._request(planned)
        requests = [request]
        if planned.intent is Intent.COUPON_TWICE:
            requests.append({**request, "order_id": planned.an_id("second order")})
        await asyncio.gather(*(self._order(planned, each, asked) for each in requests))

    async def _request(self, planned: PlannedOrder) -> Json:
        user_id = self._users[planned.number % len(self._users)]["user_id"]
        user = await self._patiently(lambda: self._get("users", f"/users/{user_id}"))
        coupons = []
        if planned.intent in WITH_COUPON:
            coupons = await self._patiently(lambda: self._get("coupons", "/coupons", user_id=user_id))
        unused = [each for each in coupons if each["used_by"] is None]
        return order_request(planned, goods=await self._shown_goods(), user=user, coupons=unused)

    async def _shown_goods(self) -> list[Json]:
        """What is for sale; the stock may be a little old, as on a page."""
        if time.monotonic() >= self._goods_until:
            self._goods_until = time.monotonic() + _GOODS_S
            self._goods = await self._patiently(lambda: self._get("goods", "/goods"))
        return self._goods or await self._patiently(lambda: self._get("goods", "/goods"))

    async def _order(self, planned: PlannedOrder, request: Json, asked: asyncio.Event) -> None:
        self.counts["ordered"] += 1
        try:
            order = await self._place(planned, request)
        except RefusedError as refused:
            self.counts[f"refused: {refused.code}"] += 1
        else:
            if planned.intent in _NEVER_RIGHT:
                self.surprises.append(f"order {order['order_id']} was accepted, but had a {planned.intent}")
            await self._pay(planned, order, asked)
        asked.set()
        self.counts["settled"] += 1

    async def _place(self, planned: PlannedOrder, request: Json) -> Json:
        """Place an order; the order as it is then."""
        try:
            order: Json = await self._send(planned, "orders", "/orders", request)
        except RefusedError as refused:
            if refused.code is not Code.ORDER_DIFFERS:
                raise
            # It was placed before the buyers were killed, when the shop showed other balances or coupons.
            order = await self._read_order(request["order_id"])
        return order

    async def _pay(self, planned: PlannedOrder, order: Json, asked: asyncio.Event) -> None:
        """Pay an order, or not, and wait for its end. A declined payment is followed by another."""
        if planned.intent is Intent.PAY_LATE and self._pay_within_s <= _LATE_PAYERS_S:
            asked.set()
            await asyncio.sleep(max(0.0, self._pay_within_s - planned.chance("late").random()))
        attempts = 0 if planned.intent is Intent.NEVER_PAY else _MAX_PAYMENTS
        order_id = order["order_id"]
        for attempt in range(1, attempts + 1):
            payment_id = planned.an_id(f"payment {attempt} of {order_id}")
            payment = {"payment_id": payment_id, "order_id": order_id, "user_id": order["user_id"]}
            with contextlib.suppress(RefusedError):  # paid or cancelled meanwhile
                await self._send(planned, "payments", "/payments", payment)
            if planned.intent is Intent.PAY_THEN_CANCEL:
                await asyncio.sleep(planned.chance("cancel").uniform(0, _MAX_CANCEL_S))
                await self._cancel(order_id)
            asked.set()
            if not await self._is_declined(order_id, payment_id):
                break
            self.counts["declined"] += 1
        asked.set()
        self.counts[(await self._end_of(order_id)).lower()] += 1

    async def _cancel(self, order_id: str) -> None:
        path, body = f"/orders/{order_id}/cancel", {"reason": "changed my mind"}
        with contextlib.suppress(RefusedError):  # paid meanwhile
            await self._patiently(lambda: self._calls.post("orders", path, body, within_s=_REQUEST_S))

    # -- waiting ---------------------------------------------------------------------------------

    async def _is_declined(self, order_id: str, payment_id: str) -> bool:
        """Wait until a payment is declined, or its order has ended."""
        for pause_s in _pauses():
            await asyncio.sleep(pause_s)
            if (await self._read_order(order_id))["state"] in _ENDS:
                return False
            payments = await self._patiently(lambda: self._get("payments", "/payments", order_id=order_id))
            if any(each["payment_id"] == payment_id and each["state"] == "DECLINED" for each in payments):
                return True
        raise AssertionError("unreachable")

    async def _end_of(self, order_id: str) -> str:
        for pause_s in _pauses():
            state: str = (await self._read_order(order_id))["state"]
            if state in _ENDS:
                return state
            await asyncio.sleep(pause_s)
        raise AssertionError("unreachable")

    # -- requests --------------------------------------------------------------------------------

    async def _send(self, planned: PlannedOrder, service: str, path: str, body: Json) -> Any:
        """A POST; for some plans twice at the same time, after one whose answer is lost."""

        async def send() -> Any:
            return await self._patiently(lambda: self._calls.post(service, path, body, within_s=_REQUEST_S))

        if planned.intent is not Intent.REPEAT_REQUESTS:
            return await send()
        lost_s = planned.chance(path).uniform(0, _MAX_LOST_S)
        with contextlib.suppress(TimeoutError, RefusedError):
            await asyncio.wait_for(send(), lost_s)
        answers = await asyncio.gather(send(), send(), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers[0]

    async def _patiently(self, request: Callable[[], Awaitable[Any]]) -> Any:
        """The answer to a request, however long a service is away."""
        while True:
            try:
                async with self._under_way:
                    return await request()
            except AwayError as error:
                _log.warning("%s", error)

    async def _read_order(self, order_id: str) -> Json:
        order: Json = await self._patiently(lambda: self._get("orders", f"/orders/{order_id}"))
        return order

    def _get(self, service: str, path: str, **query: str) -> Awaitable[Any]:
        return self._calls.get(service, path, within_s=_REQUEST_S, **query)


class _Pace:
    """The numbers of the orders, as fast as the rate allows."""

    def __init__(self, orders: int, rate: float) -> None:
        self._numbers = iter(range(orders)) if orders else itertools.count()
        self._interval_s = 1 / rate if rate else 0.0
        self._next = time.monotonic()

    async def next_number(self) -> int | None:
        """The next number; None after the last one."""
        number = next(self._numbers, None)
        if number is not None and self._interval_s:
            self._next = max(self._next + self._interval_s, time.monotonic())
            await asyncio.sleep(self._next - time.monotonic())
        return number


def _pauses() -> Iterator[float]:
    yield from _PAUSES_S
    yield from itertools.repeat(_PAUSES_S[-1])
