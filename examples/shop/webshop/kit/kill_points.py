"""Kill points: named places where a process dies if a test wants it to.

A point is armed by a file with its name in the folder `kill_points` of the settings. The first process that
reaches it removes the file, creates NAME.hit, and kills itself by SIGKILL: no `finally`, no flush. Without
the folder nothing is looked up.

Between every two steps of every flow there is one. Steps of the kit have the kind of the event in their
names, so that each flow has its own:

    what a route emits       {SERVICE}_{STEP}_{KIND}: IN_WORK ── HALF_STORED or OUTBOX_WRITTEN ──
    (kit/emit.py)            BEFORE_COMMIT ── COMMITTED ── EMITTED
    what a consumer emits    HALF_STORED or OUTBOX_WRITTEN ── CONSUMED, behind the commit of the inbox
    what a consumer handles  {SERVICE}_{STEP}_{KIND}: RECEIVED ── HANDLED ── BEFORE_ACK; HANDLED is before
                             the commit of the inbox, if the handler has one
    the relay                RELAY_CLAIMED ── RELAY_SENT ── RELAY_DELETED ── RELAY_COMMITTED
"""

from __future__ import annotations

import contextlib
import os
import signal
from enum import StrEnum, auto
from pathlib import Path
from typing import Final

_EMITTED_BY_ROUTES: Final = {
    "ORDERS": ("ORDER_CREATED", "ORDER_CONFIRMED", "ORDER_CANCELLED"),
    "PAYMENTS": ("PAYMENT_CREATED", "PAYMENT_PAID", "PAYMENT_DECLINED", "PAYMENT_REFUNDED"),
}
_EMITTED_BY_CONSUMERS: Final = {"ORDERS": ("ORDER_CANCELLED", "ORDER_PAID", "REFUND_DUE")}
_HANDLED: Final = {
    "GOODS": ("ORDER_CANCELLED",),
    "COUPONS": ("ORDER_CANCELLED",),
    "USERS": ("ORDER_CANCELLED", "ORDER_PAID"),
    "ORDERS": ("PAYMENT_DUE", "PAYMENT_PAID"),
    "PAYMENTS": ("PAYMENT_CREATED", "REFUND_DUE"),
    "POINTS": ("ORDER_PAID",),
}
_FLOWS: Final = (
    (
        _EMITTED_BY_ROUTES,
        ("IN_WORK", "HALF_STORED", "OUTBOX_WRITTEN", "BEFORE_COMMIT", "COMMITTED", "EMITTED"),
    ),
    (_EMITTED_BY_CONSUMERS, ("HALF_STORED", "OUTBOX_WRITTEN", "CONSUMED")),
    (_HANDLED, ("RECEIVED", "HANDLED", "BEFORE_ACK")),
)


def _points_of_the_kit() -> list[str]:
    names = {
        f"{service}_{step}_{kind}": None
        for services, steps in _FLOWS
        for service, kinds in services.items()
        for step in steps
        for kind in kinds
    }
    return list(names)


class KillPoint(StrEnum):
    """All points of the shop; the name of the file is the name in lower case."""

    # Placing an order, in the service orders.
    ORDER_CHECKED = auto()
    ORDER_STORED = auto()
    STOCK_TAKEN = auto()
    COUPON_TAKEN = auto()
    BALANCE_TAKEN = auto()
    ORDER_CONFIRMED = auto()
    # A deduction, in its service: in the transaction, and behind its commit.
    GOODS_TAKING = auto()
    GOODS_TAKEN = auto()
    COUPONS_TAKING = auto()
    COUPONS_TAKEN = auto()
    USERS_TAKING = auto()
    USERS_TAKEN = auto()
    # Paying, in payments and at the provider.
    PAYMENT_STORED = auto()
    CHARGE_SENT = auto()
    CALLBACK_RECEIVED = auto()
    CALLBACK_STORED = auto()
    REFUND_STORED = auto()
    REFUND_SENT = auto()
    PROVIDER_ACCEPTED = auto()
    PROVIDER_CALLING = auto()
    PROVIDER_CALLED = auto()
    PROVIDER_REFUNDED = auto()
    # The log, which handles events of all kinds together.
    LOG_RECEIVED = auto()
    LOG_HANDLED = auto()
    LOG_BEFORE_ACK = auto()
    # The relay.
    RELAY_CLAIMED = auto()
    RELAY_SENT = auto()
    RELAY_DELETED = auto()
    RELAY_COMMITTED = auto()

    _ignore_ = "each"
    for each in _points_of_the_kit():
        vars()[each] = each.lower()


_folder: str | None = None
HIT: Final = ".hit"


def use_folder(folder: str | None) -> None:
    """Where this process looks for armed points; None: nowhere."""
    global _folder
    _folder = folder


def kill_point(point: str) -> None:
    """Die here if the point is armed."""
    if _folder is None:
        return
    armed = os.path.join(_folder, point)
    try:
        os.unlink(armed)  # of several processes one succeeds
    except FileNotFoundError:
        return
    Path(armed + HIT).touch()
    os.kill(os.getpid(), signal.SIGKILL)


def kill_point_of(service: str, step: str, kind: str) -> None:
    """The point of a step of the kit, such as `RECEIVED`, for events of a kind."""
    if _folder is not None:
        kill_point(f"{service}_{step}_{kind}".lower())


def arm(folder: str | Path, point: KillPoint) -> None:
    """For tests: the next process that reaches the point dies."""
    Path(folder, point).touch()


def disarm(folder: str | Path, point: KillPoint) -> bool:
    """For tests: whether the point was still armed; it is not any more."""
    with contextlib.suppress(FileNotFoundError):
        Path(folder, point).unlink()
        return True
    return False


def is_hit(folder: str | Path, point: KillPoint) -> bool:
    """Whether a process has died there."""
    return Path(folder, point + HIT).exists()
