"""The two ways in which a request fails.

    ShopError
    ├── RefusedError   the answer is no, and stays no: out of stock, wrong price (HTTP 4xx)
    └── AwayError      no answer: a service, the database or the broker is away (HTTP 503); try again

Both become JSON: {"error": "what, where, what to do next", "code": "OUT_OF_STOCK"}.
"""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """Why a request was refused; the `code` of an error."""

    BAD_REQUEST = "BAD_REQUEST"
    # The five checks of an order.
    NO_ITEMS = "NO_ITEMS"
    GOODS_UNKNOWN = "GOODS_UNKNOWN"
    USER_UNKNOWN = "USER_UNKNOWN"
    WRONG_PRICE = "WRONG_PRICE"
    OUT_OF_STOCK = "OUT_OF_STOCK"
    # The steps of the pre-order.
    WRONG_SHIPPING = "WRONG_SHIPPING"
    WRONG_TOTAL = "WRONG_TOTAL"
    COUPON_UNKNOWN = "COUPON_UNKNOWN"
    COUPON_USED = "COUPON_USED"
    BALANCE_TOO_SMALL = "BALANCE_TOO_SMALL"
    TOO_MUCH_PAID = "TOO_MUCH_PAID"
    # Orders and payments.
    ORDER_UNKNOWN = "ORDER_UNKNOWN"
    ORDER_DIFFERS = "ORDER_DIFFERS"
    ORDER_CANCELLED = "ORDER_CANCELLED"
    ORDER_PAID = "ORDER_PAID"
    ORDER_NOT_CONFIRMED = "ORDER_NOT_CONFIRMED"
    PAYMENT_EXISTS = "PAYMENT_EXISTS"
    PAYMENT_UNKNOWN = "PAYMENT_UNKNOWN"
    PAYMENT_DIFFERS = "PAYMENT_DIFFERS"
    WRONG_AMOUNT = "WRONG_AMOUNT"
    WRONG_SIGNATURE = "WRONG_SIGNATURE"
    # Nothing is refused: try again.
    AWAY = "AWAY"

    @classmethod
    def of(cls, text: str | None) -> Code:
        """The code that another service answered; BAD_REQUEST if there is none."""
        known = {each.value: each for each in cls}
        return known.get(text or "", cls.BAD_REQUEST)


class ShopError(Exception):
    """A request that failed."""

    code: Code
    status: int

    def as_json(self) -> dict[str, str]:
        """The body of the HTTP response."""
        return {"error": str(self), "code": self.code}


class RefusedError(ShopError):
    """A definite no: a repetition of the request gets the same answer."""

    def __init__(self, code: Code, message: str, *, status: int = 409) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


class AwayError(ShopError):
    """A service, the database or the broker cannot be reached: whether the request was carried out is not
    known. Repeating it is safe, since requests have ids."""

    code = Code.AWAY
    status = 503


def refuse_if(is_wrong: bool, code: Code, message: str, *, status: int = 409) -> None:
    """A rule: raise RefusedError if it is broken."""
    if is_wrong:
        raise RefusedError(code, message, status=status)
