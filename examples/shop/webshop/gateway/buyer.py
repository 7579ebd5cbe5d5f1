"""What the buyer's pages read and change. A request goes to the service that owns the data, unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

from fastapi import APIRouter

import kourou
from webshop.errors import AwayError
from webshop.kit.calls import Calls, path_of
from webshop.settings import Settings

READ_S: Final = 1.5
"""Pages read again after seconds, so a service that is away is reported soon."""


def buyer_routes(settings: Settings, calls: Calls) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/api")
    console = settings.services.get("console")

    @routes.get("/shop")
    async def shop() -> dict[str, Any]:
        """What all pages need."""
        address = f"http://{console}" if console else None
        return {
            "console": address,
            "way": settings.way,
            "pay_within_s": settings.pay_within_s,
            "version": kourou.__version__,
        }

    @routes.get("/goods")
    async def goods() -> dict[str, Any]:
        """All goods."""
        return {"goods": await calls.get("goods", "/goods", within_s=READ_S)}

    @routes.get("/users")
    async def users() -> dict[str, Any]:
        """All buyers, to choose from."""
        return {"users": await calls.get("users", "/users", within_s=READ_S)}

    @routes.get("/users/{user_id}")
    async def user(user_id: str) -> dict[str, Any]:
        """One buyer, with points."""
        problems: list[str] = []
        known, points = await asyncio.gather(
            calls.get("users", path_of("users", user_id), within_s=READ_S),
            or_problem(calls.get("points", path_of("points", user_id), within_s=READ_S), {}, problems),
        )
        return {**known, "points": points.get("points"), "problems": problems}

    @routes.get("/coupons")
    async def coupons(user_id: str) -> dict[str, Any]:
        """The coupons of a buyer."""
        return {"coupons": await calls.get("coupons", "/coupons", user_id=user_id, within_s=READ_S)}

    @routes.get("/orders")
    async def orders(user_id: str, limit: int = 100) -> dict[str, Any]:
        """The orders of a buyer, the newest first."""
        read = await calls.get("orders", "/orders", user_id=user_id, limit=limit, within_s=READ_S)
        return {"orders": read}

    @routes.get("/orders/{order_id}")
    async def order(order_id: str) -> dict[str, Any]:
        """An order, its payments and its messages."""
        problems: list[str] = []
        known, payments, events, goods = await asyncio.gather(
            calls.get("orders", path_of("orders", order_id), within_s=READ_S),
            or_problem(calls.get("payments", "/payments", order_id=order_id, within_s=READ_S), [], problems),
            or_problem(calls.get("log", path_of("log", order_id), within_s=READ_S), [], problems),
            or_problem(calls.get("goods", "/goods", within_s=READ_S), [], problems),
        )
        names = {item["goods_id"]: item["name"] for item in goods}
        return {"order": known, "payments": payments, "events": events, "names": names, "problems": problems}

    @routes.post("/orders")
    async def place_order(body: dict[str, Any]) -> Any:
        """Place an order; the same `order_id` again is the same order."""
        return await calls.post("orders", "/orders", body)

    @routes.post("/orders/{order_id}/cancel")
    async def cancel_order(order_id: str, body: dict[str, Any]) -> Any:
        """Cancel an order that is not paid."""
        return await calls.post("orders", path_of("orders", order_id, "cancel"), body)

    @routes.post("/payments")
    async def pay(body: dict[str, Any]) -> Any:
        """Start a payment; the same `payment_id` again is the same payment."""
        return await calls.post("payments", "/payments", body)

    return routes


async def or_problem(read: Awaitable[Any], otherwise: Any, problems: list[str]) -> Any:
    """A part of a page: the rest is shown without it, and says so."""
    try:
        return await read
    except AwayError as error:
        problems.append(str(error))
        return otherwise
