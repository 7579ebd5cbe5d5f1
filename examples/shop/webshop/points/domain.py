"""How many points an order earns."""

from __future__ import annotations

from typing import Final

_CENTS_A_POINT: Final = 100


def points_of(amount_due: int) -> int:
    """One point for each full 1.00 that was paid; coupons and balances earn none.

    >>> points_of(99), points_of(100), points_of(12_345)
    (0, 1, 123)
    """
    return amount_due // _CENTS_A_POINT
