"""goods: HTTP and messages.

GET  /goods             all; ?ids=a,b: some
GET  /goods/{goods_id}
POST /stock/{order_id}  {items}: take the stock of an order, once
shop-orders             ORDER_CANCELLED: give it back, once
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from webshop.errors import Code
from webshop.events import Item, Kind, OrderEvent, Topic
from webshop.goods import tables
from webshop.kit.emit import Unit
from webshop.kit.kill_points import KillPoint, kill_point
from webshop.kit.service import Service

service = Service("goods", tables=tables.TABLES)


class Take(BaseModel):
    """What an order takes."""

    items: list[Item]


@service.app.get("/goods")
async def list_goods(ids: str | None = None) -> list[dict[str, Any]]:
    """All goods, or those that are asked for and exist."""
    if ids is None:
        rows = await service.database.rows(tables.LIST)
    else:
        rows = await service.database.rows(tables.SOME, ids.split(","))
    return [row._asdict() for row in rows]


@service.app.get("/goods/{goods_id}")
async def one_of_goods(goods_id: str) -> dict[str, Any]:
    """One of the goods."""
    row = await service.database.found(tables.ONE, goods_id, Code.GOODS_UNKNOWN, "goods")
    return dict(row._asdict())


@service.app.post("/stock/{order_id}")
async def take_stock(order_id: str, take: Take) -> dict[str, str]:
    """Take the stock of an order; a repeated request changes nothing."""
    async with service.database.transaction() as connection:
        await tables.take_stock(connection, order_id, take.items)
        kill_point(KillPoint.GOODS_TAKING)
    kill_point(KillPoint.GOODS_TAKEN)
    return {"order_id": order_id, "state": "TAKEN"}


@service.consumes(Topic.ORDERS, Kind.ORDER_CANCELLED)
async def return_stock(event: OrderEvent, unit: Unit) -> None:
    """An order was cancelled."""
    await tables.return_stock(unit.connection, event.order_id)
