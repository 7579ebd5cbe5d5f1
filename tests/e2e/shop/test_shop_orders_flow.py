"""Orders with goods, coupons and users, both ways: repeats, refusals, cancellations, late payments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from tests.needed import need_module

for name in ("psycopg_pool", "fastapi", "httpx", "uvicorn"):
    need_module(name)

import httpx  # noqa: E402

from kourou import AsyncProducer  # noqa: E402
from kourou.testing import LocalCluster  # noqa: E402
from tests.e2e.shop.shop_kit import (  # noqa: E402
    create_topics,
    events_in,
    new_cluster,
    new_database,
    running,
    settings_of,
    until,
)
from webshop.coupons.service import service as coupons  # noqa: E402
from webshop.errors import Code, RefusedError  # noqa: E402
from webshop.events import (  # noqa: E402
    Event,
    Item,
    Kind,
    OrderEvent,
    PaymentDue,
    PaymentEvent,
    Topic,
    message_of,
    new_id,
    time_text,
)
from webshop.goods.service import service as goods  # noqa: E402
from webshop.kit.relay import Relay  # noqa: E402
from webshop.kit.rows import columns_of, insert_row  # noqa: E402
from webshop.kit.service import Service  # noqa: E402
from webshop.money import shipping_of  # noqa: E402
from webshop.order import Order, Request  # noqa: E402
from webshop.orders import domain, tables  # noqa: E402
from webshop.orders import service as orders_service  # noqa: E402
from webshop.orders.service import service as orders  # noqa: E402
from webshop.running.catalogue import BALANCE  # noqa: E402
from webshop.running.filling import fill  # noqa: E402
from webshop.settings import Settings, Way  # noqa: E402
from webshop.users.service import service as users  # noqa: E402

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]


@dataclass
class Shop:
    settings: Settings
    cluster: LocalCluster
    http: httpx.AsyncClient
    producer: AsyncProducer

    async def post(self, service: str, path: str, body: object) -> httpx.Response:
        return await self.http.post(f"http://{self.settings.address(service)}{path}", json=body)

    async def get(self, service: str, path: str) -> Any:
        return (await self.http.get(f"http://{self.settings.address(service)}{path}")).json()

    async def place(self, request: Request) -> httpx.Response:
        return await self.post("orders", "/orders", as_json(request))

    async def state(self, order_id: str) -> str:
        return str((await self.get("orders", f"/orders/{order_id}"))["state"])

    async def stock(self, goods_id: str) -> int:
        return int((await self.get("goods", f"/goods/{goods_id}"))["stock"])

    async def user(self, user_id: str) -> dict[str, Any]:
        found: dict[str, Any] = await self.get("users", f"/users/{user_id}")
        return found

    async def coupon_used_by(self, coupon_id: str) -> str | None:
        used_by: str | None = (await self.get("coupons", f"/coupons/{coupon_id}"))["used_by"]
        return used_by

    async def send(self, event: Event, *, times: int = 1) -> None:
        for _ in range(times):
            await self.producer.send(message_of(event), sharding_key=event.order_id)

    async def events(self, order_id: str) -> list[OrderEvent]:
        found = await events_in(self.cluster, Topic.ORDERS)
        return [event for event in found if isinstance(event, OrderEvent) and event.order_id == order_id]

    async def until_events(self, order_id: str, *kinds: Kind) -> list[OrderEvent]:
        """Wait for as many events of an order; these are their kinds."""

        async def are_there() -> bool:
            return len(await self.events(order_id)) >= len(kinds)

        await until(are_there)
        events = await self.events(order_id)
        assert [event.kind for event in events] == list(kinds)
        return events

    async def until_user(self, user_id: str, is_true: Callable[[dict[str, Any]], bool]) -> None:
        async def holds() -> bool:
            return is_true(await self.user(user_id))

        await until(holds)

    async def until_equal(self, read: Callable[[], Awaitable[object]], expected: object) -> None:
        async def is_equal() -> bool:
            return await read() == expected

        await until(is_equal)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=list(Way))
async def shop(request: pytest.FixtureRequest, postgres: int) -> AsyncIterator[Shop]:
    with new_cluster() as cluster:
        create_topics(cluster)
        settings = settings_of(
            *(cluster, new_database(postgres), "goods", "coupons", "users", "orders"), way=request.param.value
        )
        async with (
            running(settings, goods, coupons, users, orders) as http,
            AsyncProducer("test", namesrv=cluster.namesrv) as producer,
        ):
            await fill(settings.database)
            relay = asyncio.create_task(Relay(settings).run())
            yield Shop(settings, cluster, http, producer)
            relay.cancel()
            await asyncio.gather(relay, return_exceptions=True)


def request_of(*items: Item, user_id: str = "ada", coupon_id: str | None = None, balance: int = 0) -> Request:
    items = items or (Item("tea", 2, 650),)
    total = sum(item.quantity * item.price for item in items)
    return Request(
        order_id=new_id(),
        user_id=user_id,
        items=items,
        shipping=shipping_of(total),
        total=total + shipping_of(total),
        coupon_id=coupon_id,
        balance=balance,
    )


def as_json(request: Request) -> dict[str, Any]:
    items = [
        {"goods_id": item.goods_id, "quantity": item.quantity, "price": item.price} for item in request.items
    ]
    fields = ("order_id", "user_id", "shipping", "total", "coupon_id", "balance")
    return {"items": items} | {name: getattr(request, name) for name in fields}


def payment_of(order: dict[str, Any], payment_id: str) -> PaymentEvent:
    return PaymentEvent(
        kind=Kind.PAYMENT_PAID,
        order_id=order["order_id"],
        way=Way(order["way"]),
        payment_id=payment_id,
        user_id=order["user_id"],
        amount=order["amount_due"],
    )


async def test_an_order_takes_stock_coupon_and_balance_and_is_confirmed(shop: Shop) -> None:
    before = await shop.stock("tea")
    request = request_of(coupon_id="alan-1", balance=700, user_id="alan")
    response = await shop.place(request)
    order = response.json()
    assert response.status_code == 200
    assert (order["state"], order["way"], order["amount_due"]) == (
        *("CONFIRMED", shop.settings.way),
        1300 + 1000 - 500 - 700,
    )
    assert await shop.stock("tea") == before - 2
    assert await shop.coupon_used_by("alan-1") == request.order_id
    assert (await shop.user("alan"))["balance"] == BALANCE - 700
    created, confirmed = await shop.until_events(request.order_id, Kind.ORDER_CREATED, Kind.ORDER_CONFIRMED)
    assert (
        (created.items, created.amount_due)
        == (confirmed.items, confirmed.amount_due)
        == (*(request.items, order["amount_due"]),)
    )
    assert await shop.get("orders", "/orders?user_id=alan&limit=1") == [order]


async def test_a_request_that_is_repeated_at_once_and_later_is_one_order(shop: Shop) -> None:
    before = await shop.stock("cup")
    request = request_of(Item("cup", 1, 890))
    responses = await asyncio.gather(*(shop.place(request) for _ in range(5)))
    responses.append(await shop.place(request))
    assert {(response.status_code, response.json()["state"]) for response in responses} == {
        (200, "CONFIRMED")
    }
    assert await shop.stock("cup") == before - 1
    await shop.until_events(request.order_id, Kind.ORDER_CREATED, Kind.ORDER_CONFIRMED)
    other = await shop.post("orders", "/orders", as_json(request) | {"user_id": "alan"})
    assert (other.status_code, other.json()["code"]) == (409, "ORDER_DIFFERS")


async def test_a_refused_request_stores_nothing(shop: Shop) -> None:
    right = as_json(request_of())
    for change, code in (
        ({"items": []}, "NO_ITEMS"),
        ({"user_id": "nobody"}, "USER_UNKNOWN"),
        ({"total": right["total"] - 1}, "WRONG_TOTAL"),
        ({"coupon_id": "alan-2"}, "COUPON_UNKNOWN"),
        ({"coupon_id": "none"}, "COUPON_UNKNOWN"),
        ({"balance": BALANCE + 1}, "BALANCE_TOO_SMALL"),
        ({"items": [{"goods_id": "rocket", "quantity": 21, "price": 9999}]}, "OUT_OF_STOCK"),
        ({"balance": "much"}, "BAD_REQUEST"),
        ({"balance": 10**30}, "BALANCE_TOO_SMALL"),
        ({"order_id": "y?1"}, "BAD_REQUEST"),
        ({"order_id": "../y"}, "BAD_REQUEST"),
        # Ids that would be another request if they were put into a path as they are.
        ({"user_id": "ada?x=1"}, "USER_UNKNOWN"),
        ({"user_id": "a b"}, "USER_UNKNOWN"),
        ({"user_id": "é"}, "USER_UNKNOWN"),
        ({"user_id": "users/ada"}, "BAD_REQUEST"),
        ({"user_id": "a\0b"}, "BAD_REQUEST"),
        ({"coupon_id": "ada-1?x"}, "COUPON_UNKNOWN"),
    ):
        response = await shop.post("orders", "/orders", right | change)
        assert (response.json()["code"], response.is_client_error) == (code, True), change
    assert await orders.database.row(tables.ONE, right["order_id"]) is None


async def test_an_order_whose_coupon_is_refused_half_way_is_cancelled_and_undone(shop: Shop) -> None:
    before = await shop.stock("honey")
    request = request_of(Item("honey", 3, 780), coupon_id="ada-1", balance=100)
    async with coupons.database.transaction() as connection:  # as if a cancellation had come first
        await connection.execute(
            "INSERT INTO coupon_records (order_id, state) VALUES (%s, 'RETURNED')", [request.order_id]
        )
    response = await shop.place(request)
    assert (response.status_code, response.json()["code"]) == (409, "ORDER_CANCELLED")
    _, cancelled = await shop.until_events(request.order_id, Kind.ORDER_CREATED, Kind.ORDER_CANCELLED)
    assert cancelled.reason == "ORDER_CANCELLED"
    await shop.until_equal(lambda: shop.stock("honey"), before)
    assert await shop.coupon_used_by("ada-1") is None
    assert (await shop.place(request)).json()["state"] == "CANCELLED"  # the buyer asks again
    assert await shop.stock("honey") == before


async def test_a_coupon_used_in_several_orders_at_once_pays_for_one(shop: Shop) -> None:
    before = await shop.stock("bread")
    requests = [request_of(Item("bread", 1, 420), coupon_id="ada-2") for _ in range(4)]
    responses = await asyncio.gather(*map(shop.place, requests))
    assert sorted(response.status_code for response in responses) == [200, 409, 409, 409]
    assert {each.json()["code"] for each in responses if each.is_client_error} == {"COUPON_USED"}
    await shop.until_equal(lambda: shop.stock("bread"), before - 1)


async def test_an_order_that_was_stored_before_the_service_died_goes_on(shop: Shop) -> None:
    request = request_of()
    order = domain.pre_order(request, user_balance=0, coupon_value=0, way=Way.OUTBOX, now=datetime.now(UTC))
    async with orders.database.transaction() as connection:
        assert await insert_row(connection, "orders", **columns_of(order))
    assert (await shop.place(request)).json()["state"] == "CONFIRMED"
    await shop.until_events(request.order_id, Kind.ORDER_CONFIRMED)


async def test_a_reminder_that_comes_before_its_order_comes_again(shop: Shop) -> None:
    request = request_of(Item("guitar", 1, 21_500))
    due = PaymentDue(order_id=request.order_id, way=Way(shop.settings.way))
    await shop.send(due)
    await until(lambda: in_inbox(orders, due))
    now = datetime.now(UTC) - timedelta(seconds=1)  # begun before the reminder was sent
    order = domain.pre_order(request, user_balance=0, coupon_value=0, way=due.way, now=now)
    async with orders.database.transaction() as connection:
        assert await insert_row(connection, "orders", **columns_of(order))
    (cancelled,) = await shop.until_events(request.order_id, Kind.ORDER_CANCELLED)
    assert cancelled.reason == "NOT_PAID"


async def test_the_reminder_of_an_attempt_that_was_rolled_back_cancels_nothing(shop: Shop) -> None:
    request = request_of(Item("guitar", 1, 21_500))
    early = time_text(datetime.now(UTC) - timedelta(seconds=5))
    due = PaymentDue(order_id=request.order_id, way=Way(shop.settings.way), at=early)
    assert (await shop.place(request)).json()["state"] == "CONFIRMED"
    await shop.send(due)
    await until(lambda: in_inbox(orders, due))
    assert await shop.state(request.order_id) == "CONFIRMED"


async def test_a_request_that_is_refused_while_another_one_confirms_the_order_is_answered_with_it(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(Item("guitar", 1, 21_500))
    is_confirmed = asyncio.Event()
    take = orders_service._take

    async def sold_out(order: Order) -> None:
        monkeypatch.setattr(orders_service, "_take", take)
        await is_confirmed.wait()
        raise RefusedError(Code.OUT_OF_STOCK, "the last one was sold at that moment")

    monkeypatch.setattr(orders_service, "_take", sold_out)
    first = asyncio.create_task(shop.place(request))
    await until(lambda: orders.database.row(tables.ONE, request.order_id))
    second = await shop.place(request)
    is_confirmed.set()
    assert (await first).json()["state"] == second.json()["state"] == "CONFIRMED"


async def test_an_order_that_is_not_paid_in_time_is_cancelled_once(shop: Shop) -> None:
    before = await shop.stock("lamp"), (await shop.user("carol"))["balance"]
    request = request_of(Item("lamp", 2, 5450), user_id="carol", balance=300, coupon_id="carol-1")
    order = (await shop.place(request)).json()
    due = PaymentDue(order_id=request.order_id, way=Way(order["way"]))
    await shop.send(due, times=3)
    *_, cancelled = await shop.until_events(
        request.order_id, Kind.ORDER_CREATED, Kind.ORDER_CONFIRMED, Kind.ORDER_CANCELLED
    )
    assert cancelled.reason == "NOT_PAID"
    await shop.send(cancelled, times=2)  # as a relay that was killed does

    async def left() -> tuple[int, int]:
        return await shop.stock("lamp"), (await shop.user("carol"))["balance"]

    await shop.until_equal(left, before)
    await shop.until_equal(lambda: shop.coupon_used_by("carol-1"), None)
    await shop.cluster.aio.wait_consumed("shop-goods", topic=Topic.ORDERS)
    await shop.cluster.aio.wait_consumed("shop-users", topic=Topic.ORDERS)
    assert await left() == before


async def test_a_paid_order_counts_once_and_cannot_be_cancelled(shop: Shop) -> None:
    request = request_of(Item("bicycle", 1, 48_900), Item("book", 1, 3_900), user_id="dana")
    order = (await shop.place(request)).json()
    await shop.send(payment_of(order, "p1"), times=3)
    await shop.until_user("dana", lambda user: user["spent"] > 0)
    *_, paid = await shop.until_events(
        request.order_id, Kind.ORDER_CREATED, Kind.ORDER_CONFIRMED, Kind.ORDER_PAID
    )
    assert paid.payment_id == "p1"
    await shop.send(paid)
    await shop.send(replace(paid, event_id=new_id()))  # its record recognises the order, too
    due = PaymentDue(order_id=request.order_id, way=paid.way)
    await shop.send(due)
    cancel = await shop.post("orders", f"/orders/{request.order_id}/cancel", {"reason": "too late"})
    assert (cancel.status_code, cancel.json()["code"]) == (409, "ORDER_PAID")
    await shop.cluster.aio.wait_consumed("shop-users", topic=Topic.ORDERS)
    await until(lambda: in_inbox(orders, due))
    user = await shop.user("dana")
    assert (user["spent"], user["level"]) == (52_800, "SILVER")
    assert await shop.state(request.order_id) == "PAID"


async def test_a_payment_after_the_cancellation_is_refunded_once(shop: Shop) -> None:
    request = request_of()
    order = (await shop.place(request)).json()
    cancel = await shop.post("orders", f"/orders/{request.order_id}/cancel", {"reason": "changed my mind"})
    assert (cancel.json()["state"], cancel.json()["reason"]) == ("CANCELLED", "changed my mind")
    await shop.send(payment_of(order, "late"), times=3)
    kinds = (Kind.ORDER_CREATED, Kind.ORDER_CONFIRMED, Kind.ORDER_CANCELLED, Kind.REFUND_DUE)
    *_, refund = await shop.until_events(request.order_id, *kinds)
    assert (refund.payment_id, refund.amount) == ("late", order["amount_due"])
    await shop.cluster.aio.wait_consumed("shop-orders", topic=Topic.PAYMENTS)
    await shop.until_events(request.order_id, *kinds)


async def test_a_second_payment_of_a_paid_order_is_refunded(shop: Shop) -> None:
    request = request_of()
    order = (await shop.place(request)).json()
    for payment_id in ("first", "second"):
        await shop.send(payment_of(order, payment_id))
    *_, refund = await shop.until_events(
        *(request.order_id, Kind.ORDER_CREATED, Kind.ORDER_CONFIRMED, Kind.ORDER_PAID, Kind.REFUND_DUE)
    )
    paid = await shop.get("orders", f"/orders/{request.order_id}")
    assert {refund.payment_id, paid["payment_id"]} == {"first", "second"}


async def in_inbox(service: Service, event: Event) -> bool:
    """Whether a service has consumed an event."""
    found = "SELECT 1 FROM kourou_idempotence WHERE message_key LIKE %s"
    return bool(await service.database.rows(found, f"%{event.event_id}%"))
