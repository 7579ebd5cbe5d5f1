"""A FastAPI application that sends and consumes messages during its lifetime.

    pip install fastapi uvicorn
    NAMESRV_ADDR=127.0.0.1:9876 uvicorn --factory fastapi_lifespan:create_app

Producer and consumer start and stop with the application: handlers finish, offsets are stored. Each worker
process has its own. `/health` fails when the consumer has failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kourou import AsyncProducer, AsyncPushConsumer, Message, MessageExt

if TYPE_CHECKING:
    from fastapi import FastAPI

TOPIC = "WebOrders"
GROUP = "web-billing"


@dataclass
class Shop:
    """The state that requests and message handlers share."""

    producer: AsyncProducer
    watch: asyncio.Task[None]
    """Ends when the consumer stops, with its error if it failed."""
    billed: list[str] = field(default_factory=list)

    async def place(self, order_id: str) -> str:
        """Send an order; returns the message's id."""
        result = await self.producer.send(Message(TOPIC, order_id.encode(), keys=[order_id]))
        return result.msg_id

    async def bill(self, message: MessageExt) -> None:
        """The handler of orders. A real one stores its results in a database: see `@idempotent`."""
        self.billed.append(message.keys[0])


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start before the first request, stop after the last."""
    async with AsyncProducer("shop") as producer, AsyncPushConsumer(GROUP) as consumer:
        watch = asyncio.create_task(consumer.wait(), name="consumer")
        app.state.shop = shop = Shop(producer, watch)
        await consumer.subscribe(TOPIC, shop.bill)
        yield
    await watch


def create_app() -> FastAPI:
    """The application, for `uvicorn --factory`."""
    from fastapi import FastAPI, HTTPException

    app = FastAPI(lifespan=lifespan)

    @app.post("/orders/{order_id}")
    async def place_order(order_id: str) -> dict[str, str]:
        return {"msg_id": await app.state.shop.place(order_id)}

    @app.get("/health")
    async def health() -> dict[str, int]:
        if app.state.shop.watch.done():
            raise HTTPException(503, "the consumer has ended")
        return {"billed": len(app.state.shop.billed)}

    return app
