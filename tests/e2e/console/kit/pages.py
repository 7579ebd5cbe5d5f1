"""Every page of the console, by a name for tests, with paths that show something of the shop (story.py)."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from tests.e2e.console.kit.story import BILLING, COURIERS, ORDERS, Shop

LISTS: Final = {
    "overview": "/",
    "brokers": "/brokers",
    "topics": "/topics",
    "groups": "/groups",
    "producers": "/producers",
    "messages": "/messages",
    "dead letters": "/dead-letters",
    "trace": "/trace",
    "delayed": "/delayed",
    "name servers": "/namesrvs",
    "access": "/access",
    "doctor": "/doctor",
    "pipelines": "/pipelines",
    "audit": "/audit",
}
"""The pages of the menu."""

DETAILS: Final = ("broker", "topic", "group", "message", "dead letters of a group", "trace of a message")


def path_of(name: str, shop: Shop) -> str:
    """The path of a page."""
    if name in LISTS:
        return LISTS[name]
    order_id = shop.order_ids[0]
    return {
        "broker": "/brokers/broker-a/0",
        "topic": f"/topics/{ORDERS}",
        "group": f"/groups/{BILLING}",
        "message": f"/messages/{ORDERS}/{order_id}",
        "dead letters of a group": f"/dead-letters?group={quote(COURIERS)}",
        "trace of a message": f"/trace?id={order_id}",
    }[name]
