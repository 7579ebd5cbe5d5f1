"""Rules of stock: for goods, which take it, and orders, which check it before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from webshop.errors import Code, refuse_if
from webshop.events import Item


def quantities(items: Iterable[Item]) -> dict[str, int]:
    """How many pieces of each of the goods an order takes; sorted, so that two orders never wait for each
    other's rows.

    >>> quantities([Item("tea", 1, 300), Item("cup", 2, 500), Item("tea", 1, 300)])
    {'cup': 2, 'tea': 2}
    """
    total: dict[str, int] = {}
    for item in items:
        total[item.goods_id] = total.get(item.goods_id, 0) + item.quantity
    return dict(sorted(total.items()))


def check_stock(items: Iterable[Item], stock: Mapping[str, int]) -> None:
    """RefusedError unless all goods exist and there is enough of them."""
    for goods_id, wanted in quantities(items).items():
        left = stock.get(goods_id)
        refuse_if(
            left is None, Code.GOODS_UNKNOWN, f"goods {goods_id!r} do not exist; choose others", status=404
        )
        refuse_if(
            left is not None and left < wanted,
            Code.OUT_OF_STOCK,
            f"{wanted} of goods {goods_id!r} are wanted, {left} are left; order fewer",
        )
