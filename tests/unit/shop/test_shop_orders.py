"""The rules of an order: five checks, the pre-order, amounts, what follows from a payment."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webshop.coupons.domain import check_usable
from webshop.errors import Code, RefusedError
from webshop.events import Item, Kind, OrderEvent, decode, encode
from webshop.money import shipping_of
from webshop.order import Order, Request, State
from webshop.orders.domain import check_given, check_goods, is_of, pre_order
from webshop.settings import Way
from webshop.stock import check_stock, quantities
from webshop.users.domain import Level, check_balance, level_of

TEA = Item("tea", 2, 650)
CUP = Item("cup", 1, 890)
PRICES = {"tea": 650, "cup": 890}
STOCK = {"tea": 5, "cup": 1}
NOW = datetime(2026, 11, 18, tzinfo=UTC)


def request(*items: Item, **changes: Any) -> Request:
    """A request whose amounts are right, and then changed."""
    total = sum(item.quantity * item.price for item in items)
    shipping = shipping_of(total)
    right = Request(order_id="7", user_id="ada", items=items, shipping=shipping, total=total + shipping)
    return replace(right, **changes)


def ordered(request: Request, *, user_balance: int = 0, coupon_value: int = 0) -> Order:
    return pre_order(request, user_balance=user_balance, coupon_value=coupon_value, way=Way.OUTBOX, now=NOW)


def refused(code: Code) -> Any:
    def has_code(error: BaseException) -> bool:
        return isinstance(error, RefusedError) and error.code is code

    return pytest.raises(RefusedError, check=has_code)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (request(), Code.NO_ITEMS),
        (request(TEA, order_id=""), Code.BAD_REQUEST),
        (request(TEA, order_id="7" * 65), Code.BAD_REQUEST),
        (request(Item("tea", 0, 650)), Code.BAD_REQUEST),
        (request(Item("tea", -1, 650), TEA), Code.BAD_REQUEST),
        (request(TEA, balance=-1), Code.BAD_REQUEST),
    ],
)
def test_an_order_that_is_not_given_is_refused(wrong: Request, code: Code) -> None:
    with refused(code):
        check_given(wrong)


@pytest.mark.parametrize(
    ("items", "code"),
    [
        ((TEA, Item("pot", 1, 100)), Code.GOODS_UNKNOWN),
        ((Item("tea", 1, 649),), Code.WRONG_PRICE),
        ((Item("cup", 2, 890),), Code.OUT_OF_STOCK),
        ((CUP, TEA, CUP), Code.OUT_OF_STOCK),  # two lines of the same goods
    ],
)
def test_goods_are_checked(items: tuple[Item, ...], code: Code) -> None:
    with refused(code):
        check_goods(request(*items), PRICES, STOCK)


def test_an_order_for_all_that_is_left_is_accepted() -> None:
    check_given(request(Item("tea", 5, 650), CUP))
    check_goods(request(Item("tea", 2, 650), CUP, Item("tea", 3, 650)), PRICES, STOCK)


@pytest.mark.parametrize(("goods_total", "shipping"), [(1, 10_00), (99_99, 10_00), (100_00, 0), (100_01, 0)])
def test_shipping_is_free_from_100(goods_total: int, shipping: int) -> None:
    assert ordered(request(Item("tea", 1, goods_total))).shipping == shipping
    with refused(Code.WRONG_SHIPPING):
        ordered(request(Item("tea", 1, goods_total), shipping=10_00 - shipping))


def test_a_total_that_the_buyer_has_not_seen_is_refused() -> None:
    with refused(Code.WRONG_TOTAL):
        ordered(request(TEA, total=request(TEA).total - 1))


def test_more_balance_than_the_user_has_or_the_order_costs_is_refused() -> None:
    assert ordered(request(TEA, balance=500), user_balance=500).balance_paid == 500
    with refused(Code.BALANCE_TOO_SMALL):
        ordered(request(TEA, balance=501), user_balance=500)
    total = request(TEA).total
    with refused(Code.TOO_MUCH_PAID):
        ordered(request(TEA, balance=total - 99), user_balance=total, coupon_value=100)


@given(
    st.lists(
        st.builds(Item, st.just("tea"), st.integers(1, 9), st.integers(1, 200_00)), min_size=1, max_size=5
    ),
    st.integers(0, 300_00),
    st.floats(0, 1),
)
def test_what_is_paid_is_the_total_to_the_cent(items: list[Item], coupon: int, part: float) -> None:
    asked = request(*items)
    left = asked.total - min(coupon, asked.total)
    asked = replace(asked, balance=int(left * part), coupon_id="c" if coupon else None)
    order = ordered(asked, user_balance=left, coupon_value=coupon)
    assert order.state is State.NEW
    assert order.goods_total + order.shipping == asked.total
    assert order.coupon_value + order.balance_paid + order.amount_due == asked.total
    assert 0 <= order.coupon_value <= coupon and order.amount_due >= 0
    assert is_of(order, asked)


def test_a_repeated_request_means_the_same_order_and_a_different_one_does_not() -> None:
    order = ordered(request(TEA, balance=100), user_balance=100)
    assert is_of(order, request(TEA, balance=100))
    for other in (
        request(CUP, balance=100),
        request(TEA, TEA, balance=100),
        request(TEA),
        request(TEA, balance=100, coupon_id="c"),
        request(TEA, balance=100, user_id="alan"),
    ):
        assert not is_of(order, other)


def test_the_event_of_an_order_carries_all_of_it() -> None:
    order = ordered(request(TEA, balance=5, coupon_id="c"), user_balance=5, coupon_value=100)
    event = OrderEvent.of(order, Kind.REFUND_DUE, payment_id="p", amount=77)
    assert decode(encode(event)) == event
    assert (event.order_id, event.way, event.kind.topic) == ("7", Way.OUTBOX, "shop-orders")
    assert (event.items, event.coupon_id, event.coupon_value) == ((TEA,), "c", 100)
    assert (event.balance_paid, event.amount_due, event.amount) == (5, order.amount_due, 77)


def test_the_same_goods_in_two_lines_are_taken_together_and_in_order() -> None:
    wanted = quantities([TEA, CUP, TEA])
    assert list(wanted.items()) == [("cup", 1), ("tea", 4)]
    check_stock([TEA, CUP, TEA], {"cup": 1, "tea": 4})
    with refused(Code.OUT_OF_STOCK):
        check_stock([TEA, CUP, TEA], {"cup": 1, "tea": 3})
    with refused(Code.GOODS_UNKNOWN):
        check_stock([TEA, CUP, TEA], {"tea": 4})


def test_a_coupon_is_used_by_its_owner_once() -> None:
    check_usable("c", "ada", owner="ada", used_by=None)
    with refused(Code.COUPON_UNKNOWN):
        check_usable("c", "ada", owner=None, used_by=None)
    with refused(Code.COUPON_UNKNOWN):
        check_usable("c", "ada", owner="alan", used_by=None)
    with refused(Code.COUPON_USED):
        check_usable("c", "ada", owner="ada", used_by="6")


def test_levels_begin_at_500_and_2000() -> None:
    assert [level_of(cents) for cents in (0, 499_99, 500_00, 1999_99, 2000_00)] == [
        *(Level.BRONZE, Level.BRONZE, Level.SILVER, Level.SILVER, Level.GOLD)
    ]


def test_a_balance_pays_up_to_its_last_cent() -> None:
    check_balance("ada", 500, 500)
    for amount, balance, code in (
        (501, 500, Code.BALANCE_TOO_SMALL),
        (-1, 500, Code.BAD_REQUEST),
        (1, None, Code.USER_UNKNOWN),
    ):
        with refused(code):
            check_balance("ada", amount, balance)
