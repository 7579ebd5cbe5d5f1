"""What the pages show when a service refuses something, or does not answer."""

from __future__ import annotations

from typing import Any, Final

from webshop.errors import Code, RefusedError

SENTENCES: Final = {
    Code.NO_ITEMS: "The cart is empty.",
    Code.GOODS_UNKNOWN: "The shop no longer has one of these goods.",
    Code.USER_UNKNOWN: "The shop does not know this buyer.",
    Code.WRONG_PRICE: "A price has changed. Look at the cart again.",
    Code.OUT_OF_STOCK: "There is not enough in stock.",
    Code.WRONG_SHIPPING: "The shipping fee has changed. Look at the cart again.",
    Code.WRONG_TOTAL: "The total has changed. Look at the cart again.",
    Code.COUPON_UNKNOWN: "The shop does not know this coupon.",
    Code.COUPON_USED: "The coupon has been used already.",
    Code.BALANCE_TOO_SMALL: "The balance is too low.",
    Code.TOO_MUCH_PAID: "Coupon and balance are more than the order costs.",
    Code.ORDER_UNKNOWN: "The shop does not know this order.",
    Code.ORDER_CANCELLED: "The order is cancelled.",
    Code.ORDER_PAID: "The order is paid already.",
    Code.PAYMENT_EXISTS: "A payment for this order is under way, or done.",
    Code.ORDER_NOT_CONFIRMED: "The order is not confirmed yet. Try again in a moment.",
}
"""For buyers; the service's own words, which name ids and amounts, become the second line."""


def problem(code: str, message: str, hint: str = "") -> dict[str, Any]:
    """The body of a failed request, as the console's parts of the pages read it."""
    return {"error": {"code": code, "message": message, "hint": hint}}


def refusal(error: RefusedError) -> dict[str, Any]:
    """A definite no."""
    sentence, details = SENTENCES.get(error.code), str(error)
    return problem(error.code, sentence or details, details if sentence else "")


def try_again(why: object, *, is_read: bool) -> dict[str, Any]:
    """A service or the database is away, slow, or cannot work now: the same request may succeed later."""
    message = f"The shop cannot {'show' if is_read else 'do'} this at the moment."
    return problem(Code.AWAY, message, str(why).removesuffix("; try again"))


API_TEXTS: Final = {
    "timeout": "The shop has not answered within a minute.",
    "unreachable": "The shop does not answer.",
    "unreachable_hint": "The page tries again by itself.",
    "not_json": "The answer is not JSON (HTTP status {status}): is there a proxy between?",
    "failed": "The request failed with HTTP status {status}.",
    "unknown_outcome": "It is not known whether it was done. Trying again is safe: nothing is done twice.",
}
"""Instead of the texts of the console, which name it."""
