"""points: HTTP and messages.

GET /points/{user_id}
shop-orders             ORDER_PAID: credit the points of the order, once
"""

from __future__ import annotations

from typing import Any

from webshop.events import Kind, OrderEvent, Topic
from webshop.kit.emit import Unit
from webshop.kit.service import Service
from webshop.points import tables
from webshop.points.domain import points_of

service = Service("points", tables=tables.TABLES)


@service.app.get("/points/{user_id}")
async def show_points(user_id: str) -> dict[str, Any]:
    """The points of a user; 0 for one without a paid order."""
    async with service.database.transaction() as connection:
        return {"user_id": user_id, "points": await tables.points_of_user(connection, user_id)}


@service.consumes(Topic.ORDERS, Kind.ORDER_PAID)
async def credit_points(event: OrderEvent, unit: Unit) -> None:
    """An order was paid."""
    await tables.credit(
        unit.connection, order_id=event.order_id, user_id=event.user_id, points=points_of(event.amount_due)
    )
