"""Messages: found by time, key, id and condition; bodies of every kind, and none that runs in the page."""

from __future__ import annotations

import pytest

from tests.e2e.console.kit.browser import Visitor
from tests.e2e.console.kit.changes import preview, row
from tests.e2e.console.kit.story import (
    BILLING,
    LARGE_BYTES,
    MARKUP,
    ORDER_COUNT,
    ORDERS,
    SNIPPETS,
    WAREHOUSE,
    Shop,
)

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


def test_a_message_is_found_by_time_by_key_and_by_id(visitor: Visitor, shop: Shop) -> None:
    page = visitor.open("/messages")
    page.get_by_label("Topic").fill(ORDERS)
    page.get_by_role("button", name="Show").click()
    messages = page.get_by_role("table", name="Messages")
    messages.get_by_text(f"order-{ORDER_COUNT - 1}", exact=True).wait_for()

    page.get_by_role("link", name="By key").click()
    page.get_by_role("textbox", name="Key", exact=True).fill("order-7")
    page.get_by_role("button", name="Find").click()
    found = messages.get_by_role("rowheader").get_by_role("link")
    found.first.wait_for()
    assert found.count() == 1
    found.click()
    page.get_by_text('"order": 7').wait_for()

    visitor.open(f"/messages?tab=id&topic={ORDERS}")
    page.get_by_label("Message id").fill(shop.order_ids[7])
    page.get_by_role("button", name="Open").click()
    page.get_by_text('"order": 7').wait_for()
    page.get_by_role("link", name="Next in the queue").click()
    visitor.wait_ready()

    assert page.get_by_text('"order": 7').count() == 0


def test_what_is_shown_has_a_link_that_shows_the_same(visitor: Visitor) -> None:
    page = visitor.open("/messages")
    page.get_by_label("Topic").fill(ORDERS)
    page.get_by_label("Tag").fill("paid")
    page.get_by_label("Order").select_option("oldest")
    page.get_by_role("button", name="Show").click()
    table = page.get_by_role("table", name="Messages")
    table.get_by_text("order-1", exact=True).wait_for()
    shown = table.inner_text()

    visitor.open(visitor.path())

    assert table.inner_text() == shown
    assert table.get_by_role("rowheader").count() == ORDER_COUNT // 3


def test_properties_and_bodies_are_searched_with_progress(visitor: Visitor) -> None:
    page = visitor.open(f"/messages?tab=search&topic={ORDERS}")
    page.get_by_label("SQL").fill("region = 'north' AND amount > 50")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("Done", exact=True).wait_for()

    assert page.get_by_role("table", name="Messages").get_by_role("rowheader").count() == 5


def test_a_search_that_fails_does_not_leave_the_results_of_the_one_before(visitor: Visitor) -> None:
    page = visitor.open(f"/messages?tab=search&topic={ORDERS}")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("table", name="Messages").wait_for()

    page.get_by_label("SQL").fill("region = = 'north'")
    with visitor.expecting(400):
        page.get_by_role("button", name="Search").click()
        page.get_by_role("alert").wait_for()
        visitor.problems.clear()

    assert page.get_by_role("table", name="Messages").count() == 0


def test_the_groups_of_a_message_and_its_delivery_to_a_client(visitor: Visitor, shop: Shop) -> None:
    page = visitor.open(f"/messages/{ORDERS}/{shop.order_ids[0]}")
    row(page, WAREHOUSE).get_by_text("consumed", exact=True).wait_for()
    assert row(page, BILLING).get_by_text("offline").is_visible()

    row(page, WAREHOUSE).get_by_role("button", name="Deliver to a client").click()
    preview(page)
    page.get_by_role("button", name="Do it").click()

    page.get_by_role("dialog").get_by_text("CR_SUCCESS").wait_for()


def test_markup_in_properties_and_bodies_is_shown_as_text(visitor: Visitor, shop: Shop) -> None:
    page = visitor.open(f"/messages?topic={SNIPPETS}")
    page.get_by_text("<img src=x").first.wait_for()
    visitor.open(f"/messages/{SNIPPETS}/{shop.markup_id}")

    assert MARKUP in row(page, "note").inner_text()
    assert page.get_by_role("main").get_by_text("<script>").count() >= 2
    assert page.locator("main img, main script").count() == 0
    assert "owned" not in page.title()


def test_a_binary_body_is_shown_in_hex(visitor: Visitor, shop: Shop) -> None:
    page = visitor.open(f"/messages/{SNIPPETS}/{shop.binary_id}")

    page.get_by_text("00 01 02 03").wait_for()


def test_a_large_body_is_cut_and_can_be_downloaded(visitor: Visitor, shop: Shop) -> None:
    page = visitor.open(f"/messages/{SNIPPETS}/{shop.large_id}")
    page.get_by_text("Shown: the first").wait_for()

    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()

    assert download.value.path().stat().st_size == LARGE_BYTES


def test_a_message_that_does_not_exist_is_reported_with_what_to_do(visitor: Visitor) -> None:
    page = visitor.page
    with visitor.expecting(404):
        page.goto(f"{visitor.url}/messages/{ORDERS}/0000000000000000000000000000FFFF")
        page.get_by_role("alert").wait_for()
        visitor.problems.clear()

    assert "0000000000000000000000000000FFFF" in page.get_by_role("alert").inner_text()
