"""Money is an int of cents, in Python, in SQL (bigint) and in JSON; only pages show it with a point."""

from __future__ import annotations

from typing import Final

FREE_SHIPPING_FROM: Final = 100_00
SHIPPING: Final = 10_00


def shipping_of(goods_total: int) -> int:
    """The shipping fee: free from 100.00, else 10.00.

    >>> shipping_of(99_99), shipping_of(100_00)
    (1000, 0)
    """
    return 0 if goods_total >= FREE_SHIPPING_FROM else SHIPPING


def shown(cents: int) -> str:
    """An amount for people: pages, logs and errors.

    >>> shown(123456), shown(-5)
    ('1,234.56', '-0.05')
    """
    sign = "-" if cents < 0 else ""
    return f"{sign}{abs(cents) // 100:,}.{abs(cents) % 100:02d}"
