"""The rules of orders: five checks, and eight steps of the pre-order. The states are in order.py."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime

from webshop.errors import Code, refuse_if
from webshop.money import shipping_of, shown
from webshop.order import Order, Request, State
from webshop.settings import Way
from webshop.stock import check_stock

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_of(order: Order, request: Request) -> bool:
    """Whether a repeated request means this order."""
    total = order.goods_total + order.shipping
    stored = (order.user_id, order.items, total, order.coupon_id, order.balance_paid)
    return stored == (request.user_id, request.items, request.total, request.coupon_id, request.balance)


def check_given(request: Request) -> None:
    """1. The order is given: an id, and some pieces of some goods."""
    is_id = _ID.fullmatch(request.order_id) is not None
    refuse_if(not is_id, Code.BAD_REQUEST, "order_id has to be 1 to 64 letters, digits, - and _", status=422)
    refuse_if(not request.items, Code.NO_ITEMS, "the order has no items; add some", status=422)
    is_less = any(item.quantity < 1 for item in request.items)
    refuse_if(is_less, Code.BAD_REQUEST, "an item has less than 1 piece; order 1 or more", status=422)
    refuse_if(request.balance < 0, Code.BAD_REQUEST, "balance is less than 0; pay 0 or more", status=422)


def check_goods(request: Request, prices: Mapping[str, int], stock: Mapping[str, int]) -> None:
    """2. The goods exist. 4. The price is their own. 5. The stock is enough. (3. The user exists: the service
    users said so.)"""
    for item in request.items:
        price = prices.get(item.goods_id, item.price)
        wrong = f"goods {item.goods_id!r} cost {shown(price)}, not {shown(item.price)}; look again"
        refuse_if(item.price != price, Code.WRONG_PRICE, wrong)
    check_stock(request.items, stock)


def pre_order(request: Request, *, user_balance: int, coupon_value: int, way: Way, now: datetime) -> Order:
    """Seven steps of the pre-order; the eighth stores it."""
    goods_total = sum(item.quantity * item.price for item in request.items)
    # 2. The shipping fee is that of the rule.
    shipping = shipping_of(goods_total)
    fee = f"shipping costs {shown(shipping)}, not {shown(request.shipping)}; look again"
    refuse_if(request.shipping != shipping, Code.WRONG_SHIPPING, fee)
    # 3. The total is what the buyer has seen.
    total = goods_total + shipping
    costs = f"the order costs {shown(total)}, not {shown(request.total)}; look again"
    refuse_if(request.total != total, Code.WRONG_TOTAL, costs)
    # 4. The coupon exists and is unused: the service coupons said so. What is left of its value is lost.
    left = total - min(coupon_value, total)
    # 5. The balance is not more than what the user has, or what is left to pay.
    balance = request.balance
    little = f"the balance is {shown(user_balance)}, less than {shown(balance)}; pay less by it"
    refuse_if(balance > user_balance, Code.BALANCE_TOO_SMALL, little)
    much = f"{shown(left)} are left to pay, less than {shown(balance)}; pay less by balance"
    refuse_if(balance > left, Code.TOO_MUCH_PAID, much)
    return Order(
        order_id=request.order_id,
        user_id=request.user_id,
        items=request.items,
        goods_total=goods_total,
        shipping=shipping,
        coupon_id=request.coupon_id,
        coupon_value=total - left,
        balance_paid=balance,
        amount_due=left - balance,  # 6.
        state=State.NEW,  # 1. not confirmed
        way=way,
        created_at=now,  # 7.
    )
