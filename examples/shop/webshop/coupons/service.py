"""coupons: HTTP and messages.

GET  /coupons?user_id=   the coupons of a user
GET  /coupons/{coupon_id}?unused_by=   one; with unused_by, one that this user can use
POST /uses/{order_id}    {coupon_id, user_id}: use a coupon for an order, once
shop-orders              ORDER_CANCELLED: it is unused again, once
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from webshop.coupons import tables
from webshop.coupons.domain import check_usable
from webshop.errors import Code
from webshop.events import Kind, OrderEvent, Topic
from webshop.kit.emit import Unit
from webshop.kit.kill_points import KillPoint, kill_point
from webshop.kit.service import Service

service = Service("coupons", tables=tables.TABLES)


class Use(BaseModel):
    """The coupon of an order."""

    coupon_id: str
    user_id: str


@service.app.get("/coupons")
async def coupons_of(user_id: str) -> list[dict[str, Any]]:
    """All coupons of a user, used ones too."""
    return [row._asdict() for row in await service.database.rows(tables.OF_USER, user_id)]


@service.app.get("/coupons/{coupon_id}")
async def one_coupon(coupon_id: str, unused_by: str | None = None) -> dict[str, Any]:
    """One coupon; with `unused_by` it has to be one that this user can use."""
    row = await service.database.found(tables.ONE, coupon_id, Code.COUPON_UNKNOWN, "coupon")
    if unused_by is not None:
        check_usable(coupon_id, unused_by, owner=row.user_id, used_by=row.used_by)
    return dict(row._asdict())


@service.app.post("/uses/{order_id}")
async def take_coupon(order_id: str, use: Use) -> dict[str, str]:
    """Use a coupon for an order; a repeated request changes nothing."""
    async with service.database.transaction() as connection:
        await tables.take_coupon(connection, order_id, use.coupon_id, use.user_id)
        kill_point(KillPoint.COUPONS_TAKING)
    kill_point(KillPoint.COUPONS_TAKEN)
    return {"order_id": order_id, "state": "TAKEN"}


@service.consumes(Topic.ORDERS, Kind.ORDER_CANCELLED)
async def return_coupon(event: OrderEvent, unit: Unit) -> None:
    """An order was cancelled."""
    if event.coupon_id is not None:
        await tables.return_coupon(unit.connection, event.order_id)
