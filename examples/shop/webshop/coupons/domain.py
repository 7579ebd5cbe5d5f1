"""The rules of coupons."""

from __future__ import annotations

from webshop.errors import Code, refuse_if


def check_usable(coupon_id: str, user_id: str, *, owner: str | None, used_by: str | None) -> None:
    """RefusedError unless the coupon exists, is the user's own and unused."""
    not_his = f"user {user_id!r} has no coupon {coupon_id!r}; choose another"
    refuse_if(owner != user_id, Code.COUPON_UNKNOWN, not_his, status=404)
    used = f"coupon {coupon_id!r} was used for order {used_by}; choose another"
    refuse_if(used_by is not None, Code.COUPON_USED, used)
