"""users: HTTP and messages.

GET  /users
GET  /users/{user_id}
POST /balance/{order_id}  {user_id, amount}: pay a part of an order by balance, once
shop-orders               ORDER_CANCELLED: pay it back, once
                          ORDER_PAID: the amount due counts as spent, and gives a level
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from webshop.errors import Code
from webshop.events import Kind, OrderEvent, Topic
from webshop.kit.emit import Unit
from webshop.kit.kill_points import KillPoint, kill_point
from webshop.kit.service import Service
from webshop.users import tables

service = Service("users", tables=tables.TABLES)


class Pay(BaseModel):
    """What an order pays by the balance of its user."""

    user_id: str
    amount: int


@service.app.get("/users")
async def list_users() -> list[dict[str, Any]]:
    """All users."""
    return [row._asdict() for row in await service.database.rows(tables.LIST)]


@service.app.get("/users/{user_id}")
async def one_user(user_id: str) -> dict[str, Any]:
    """One user."""
    row = await service.database.found(tables.ONE, user_id, Code.USER_UNKNOWN, "user")
    return dict(row._asdict())


@service.app.post("/balance/{order_id}")
async def take_balance(order_id: str, pay: Pay) -> dict[str, str]:
    """Pay a part of an order by balance; a repeated request changes nothing."""
    async with service.database.transaction() as connection:
        await tables.take_balance(connection, order_id, pay.user_id, pay.amount)
        kill_point(KillPoint.USERS_TAKING)
    kill_point(KillPoint.USERS_TAKEN)
    return {"order_id": order_id, "state": "TAKEN"}


@service.consumes(Topic.ORDERS, Kind.ORDER_CANCELLED)
async def return_balance(event: OrderEvent, unit: Unit) -> None:
    """An order was cancelled."""
    if event.balance_paid:
        await tables.return_balance(unit.connection, event.order_id)


@service.consumes(Topic.ORDERS, Kind.ORDER_PAID)
async def add_spent(event: OrderEvent, unit: Unit) -> None:
    """An order was paid."""
    await tables.add_spent(unit.connection, event.order_id, event.user_id, event.amount_due)
