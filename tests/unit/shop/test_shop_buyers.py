"""The plan of the simulated buyers."""

from __future__ import annotations

from typing import Any

import pytest

from webshop.buyers.plan import WITH_BALANCE, WITH_COUPON, Intent, PlannedOrder, order_request, planned_order
from webshop.money import shipping_of

_GOODS = [
    {"goods_id": "tea", "price": 450, "stock": 10},
    {"goods_id": "pot", "price": 4_999, "stock": 3},
    {"goods_id": "cup", "price": 1, "stock": 0},
]
_USER = {"user_id": "u1", "balance": 300}
_COUPONS = [{"coupon_id": "c1", "value": 500}]


def request(intent: Intent, number: int = 0, **changed: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"goods": _GOODS, "user": _USER, "coupons": _COUPONS, **changed}
    return order_request(PlannedOrder(7, number, intent), **options)


def test_the_same_seed_is_the_same_plan_and_ids_are_unique() -> None:
    """Buyers that were killed and start again must repeat their orders, not place new ones."""
    plan = [planned_order(7, number) for number in range(500)]
    assert plan == [planned_order(7, number) for number in range(500)]
    assert {each.intent for each in plan} == set(Intent)
    ids = {each.order_id for each in plan} | {each.an_id("payment 1") for each in plan}
    ids |= {planned_order(8, number).order_id for number in range(500)}
    assert len(ids) == 1_500
    assert all(len(each) == 32 and int(each, 16) for each in ids)


@pytest.mark.parametrize("intent", Intent)
def test_a_request_is_right_but_for_its_fault(intent: Intent) -> None:
    prices = {each["goods_id"]: each["price"] for each in _GOODS}
    stock = {each["goods_id"]: each["stock"] for each in _GOODS}
    for number in range(30):
        body = request(intent, number)
        goods_total = sum(item["price"] * item["quantity"] for item in body["items"])
        assert body["shipping"] == shipping_of(goods_total)
        is_wrong = {
            Intent.WRONG_TOTAL: body["total"] != goods_total + body["shipping"],
            Intent.WRONG_PRICE: any(item["price"] != prices[item["goods_id"]] for item in body["items"]),
            Intent.TOO_MUCH_BALANCE: body["balance"] > _USER["balance"],
        }
        assert is_wrong == {each: each is intent for each in is_wrong}
        if intent is Intent.TOO_MANY:
            assert body["items"][0]["quantity"] > stock[body["items"][0]["goods_id"]]
        assert (body["coupon_id"] == "c1") == (intent in WITH_COUPON)


def test_coupon_and_balance_pay_at_most_the_total() -> None:
    cheap = [{"goods_id": "tea", "price": 100, "stock": 10}]
    rich = {"user_id": "u1", "balance": 10_000}
    for intent in WITH_BALANCE:
        body = request(intent, goods=cheap, user=rich)
        coupon = 500 if intent in WITH_COUPON else 0
        assert body["balance"] == body["total"] - coupon
    big = [{"coupon_id": "c1", "value": 100_000}]
    assert request(Intent.COUPON_AND_BALANCE, goods=cheap, user=rich, coupons=big)["balance"] == 0


def test_what_is_sold_out_is_not_ordered() -> None:
    ordered = {item["goods_id"] for number in range(30) for item in request(Intent.BUY, number)["items"]}
    assert ordered == {"tea", "pot"}
    sold_out = [{**each, "stock": 0} for each in _GOODS]
    assert request(Intent.BUY, goods=sold_out)["items"]


def test_without_coupons_a_buyer_buys_without() -> None:
    assert request(Intent.COUPON, coupons=[])["coupon_id"] is None
