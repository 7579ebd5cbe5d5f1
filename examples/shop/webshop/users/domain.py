"""The rules of users: balances and levels."""

from __future__ import annotations

from enum import StrEnum

from webshop.errors import Code, refuse_if
from webshop.money import shown


class Level(StrEnum):
    """What a user gets for spending."""

    BRONZE = "BRONZE"
    SILVER = "SILVER"
    GOLD = "GOLD"


def level_of(spent: int) -> Level:
    """The level of a user who has spent so many cents.

    >>> level_of(499_99).value, level_of(500_00).value, level_of(2000_00).value
    ('BRONZE', 'SILVER', 'GOLD')
    """
    if spent >= 2000_00:
        return Level.GOLD
    return Level.SILVER if spent >= 500_00 else Level.BRONZE


def check_balance(user_id: str, amount: int, balance: int | None) -> None:
    """RefusedError unless the user exists and has enough."""
    unknown = f"there is no user {user_id!r}; see GET /users"
    refuse_if(balance is None, Code.USER_UNKNOWN, unknown, status=404)
    negative = f"{shown(amount)} cannot be paid by balance; pay 0 or more"
    refuse_if(amount < 0, Code.BAD_REQUEST, negative, status=422)
    little = (
        f"user {user_id!r} has a balance of {shown(balance or 0)}, less than {shown(amount)}; pay less by it"
    )
    refuse_if(amount > (balance or 0), Code.BALANCE_TOO_SMALL, little)
