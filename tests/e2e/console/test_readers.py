"""A reader sees everything and can change nothing: no button, and no request by hand."""

from __future__ import annotations

import pytest

from tests.e2e.console.conftest import Visit
from tests.e2e.console.kit.console_process import PASSWORDS, ConsoleProcess
from tests.e2e.console.kit.story import BILLING, COURIERS, ORDERS, Shop

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

WRITES = (
    *("Create topic", "Import topics", "Create group", "Send message", "Reset offsets", "Change", "Copy"),
    *("Delete", "Copy offsets", "Skip", "Send all back", "Send back", "Send a copy", "Deliver to a client"),
    *("Operations", "Stop writes"),
)


def test_a_reader_is_offered_no_change_and_a_request_by_hand_is_refused(
    visit: Visit, guarded_console: ConsoleProcess, shop: Shop
) -> None:
    paths = (
        *(
            "/topics",
            f"/topics/{ORDERS}?tab=consumers",
            "/groups",
            f"/groups/{BILLING}",
            "/brokers/broker-a/0",
        ),
        *("/brokers/broker-a/0?tab=config", f"/dead-letters?group={COURIERS}"),
        f"/messages/{ORDERS}/{shop.order_ids[0]}",
    )
    offered: dict[str, set[str]] = {}
    for user in ("ada", "ruth"):
        visitor = visit(guarded_console.url)
        login = {"user": user, "password": PASSWORDS[user]}
        headers = {"Origin": guarded_console.url}
        session = visitor.context.request.post(
            f"{guarded_console.url}/api/login", data=login, headers=headers
        ).json()
        offered[user] = set()
        for path in paths:
            page = visitor.open(path)
            offered[user] |= set(page.get_by_role("button").all_inner_texts())
            offered[user] |= set(page.get_by_role("link").all_inner_texts())
    refused = visitor.context.request.delete(
        f"{guarded_console.url}/api/topics/{ORDERS}",
        data={"clusters": []},
        headers={**headers, "X-CSRF-Token": session["csrf_token"]},
    )

    assert offered["ada"] & set(WRITES) >= {
        "Create topic",
        "Delete",
        "Reset offsets",
        "Send all back",
        "Change",
    }
    assert not offered["ruth"] & set(WRITES)
    assert refused.status == 403
