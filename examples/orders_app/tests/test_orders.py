"""The shop against a real broker: fixtures `rocketmq` and `rocketmq_topic` come with Kourou."""

from __future__ import annotations

import json

import pytest
from orders.billing import Billing, PaymentDownError
from orders.order import Order
from orders.shop import OrderNotPlacedError, Shop

from kourou import AsyncProducer
from kourou.testing import LocalCluster, NotConsumedError


def test_an_order_is_stored_under_its_id(rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    with Shop(rocketmq.namesrv, rocketmq_topic) as shop:
        msg_id = shop.place(Order("order-1", 4200))
    (message,) = rocketmq.messages(rocketmq_topic)
    assert (message.msg_id, message.keys, message.tags) == (msg_id, ("order-1",), "placed")
    assert json.loads(message.body) == {"order_id": "order-1", "cents": 4200}


def test_every_order_is_billed(rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    billed: list[Order] = []
    orders = [Order(f"order-{number}", number) for number in range(20)]
    with Billing(billed.append, rocketmq.namesrv, rocketmq_topic):
        with Shop(rocketmq.namesrv, rocketmq_topic) as shop:
            for order in orders:
                shop.place(order)
        rocketmq.wait_consumed("billing", topic=rocketmq_topic)
    assert sorted(billed, key=lambda order: order.cents) == orders


def test_an_order_is_billed_when_the_payment_provider_is_back(
    rocketmq: LocalCluster, rocketmq_topic: str
) -> None:
    attempts: list[str] = []

    def charge(order: Order) -> None:
        attempts.append(order.order_id)
        if len(attempts) == 1:
            raise PaymentDownError

    with Billing(charge, rocketmq.namesrv, rocketmq_topic, group="patient-billing"):
        with Shop(rocketmq.namesrv, rocketmq_topic) as shop:
            shop.place(Order("order-1", 4200))
        rocketmq.wait_consumed("patient-billing", topic=rocketmq_topic)
    assert attempts == ["order-1", "order-1"]


def test_nobody_bills(rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    with Shop(rocketmq.namesrv, rocketmq_topic) as shop:
        shop.place(Order("order-1", 4200))
    with pytest.raises(NotConsumedError, match="no member of the group is online"):
        rocketmq.wait_consumed("nobody", topic=rocketmq_topic, timeout_s=0.1)


def test_a_customer_hears_that_no_broker_answers(rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    with Shop(rocketmq.namesrv, rocketmq_topic, timeout_ms=500) as shop:
        with rocketmq.pause(), pytest.raises(OrderNotPlacedError, match="order-1"):
            shop.place(Order("order-1", 4200))
        assert shop.place(Order("order-2", 1))


def test_orders_outlive_a_restart_of_a_broker() -> None:
    billed: list[Order] = []
    with LocalCluster() as mq:  # a separate one: other tests need not wait for it
        mq.create_topic("Orders")
        with Shop(mq.namesrv) as shop:
            shop.place(Order("order-1", 1))
            mq.restart_broker()
            shop.place(Order("order-2", 2))
        with Billing(billed.append, mq.namesrv):
            mq.wait_consumed("billing")
    assert {order.order_id for order in billed} == {"order-1", "order-2"}


async def test_a_producer_of_the_website_is_billed_too(rocketmq: LocalCluster, rocketmq_topic: str) -> None:
    billed: list[Order] = []
    with Billing(billed.append, rocketmq.namesrv, rocketmq_topic, group="web-billing"):
        async with AsyncProducer("website", namesrv=rocketmq.namesrv) as producer:
            await producer.send(Order("order-1", 4200).to_message(rocketmq_topic))
        await rocketmq.aio.wait_consumed("web-billing", topic=rocketmq_topic)
    assert billed == [Order("order-1", 4200)]
