"""A person's day: a topic from its creation to its end with a message in it; a reset; dead letters."""

from __future__ import annotations

import time

import pytest

from tests.e2e.console.kit.browser import Visitor
from tests.e2e.console.kit.changes import confirm, effects, preview, row
from tests.e2e.console.kit.console_process import ConsoleProcess
from tests.e2e.console.kit.story import BILLING, COURIERS, DEAD, LAG, ORDER_COUNT, ORDERS, REPORTING

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

TRACE_S = 30  # records are sent in the background


def test_from_a_new_topic_to_the_trace_of_its_message_and_its_end(
    visitor: Visitor, console: ConsoleProcess
) -> None:
    page = visitor.open("/topics")
    page.get_by_role("button", name="Create topic").click()
    page.get_by_role("dialog").get_by_label("Topic").fill("Journey")
    page.get_by_role("dialog").get_by_label("Queues to write").fill("2")
    assert len(preview(page)) >= 2  # on each broker
    confirm(page, "Create topic")
    page.get_by_role("searchbox").fill("journey")
    row(page, "Journey").get_by_role("link", name="Journey").click()
    visitor.wait_ready()

    page.get_by_role("button", name="Send message").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Body as").select_option("json")
    dialog.get_by_role("textbox", name="Body").fill('{"step": "sent"}')
    dialog.get_by_label("Keys").fill("journey-1")
    dialog.get_by_label("Properties").fill("region=north")
    dialog.get_by_label("Write a trace").check()
    preview(page)
    dialog.get_by_role("button", name="Send", exact=True).click()
    dialog.get_by_text("The broker has stored the message.").wait_for()
    message_id = dialog.get_by_role("link").inner_text()
    dialog.get_by_role("button", name="Close").last.click()

    page.get_by_role("link", name="Messages").last.click()
    page.get_by_text(message_id).click()
    page.get_by_text('"step": "sent"').wait_for()
    visitor.open("/messages?tab=key&topic=Journey&key=journey-1")
    assert page.get_by_text(message_id).is_visible()
    visitor.open(f"/messages/Journey/{message_id}")
    page.get_by_role("main").get_by_role("link", name="Trace").click()
    visitor.wait_ready()
    deadline = time.monotonic() + TRACE_S
    while page.get_by_role("table", name="Sends").count() == 0 and time.monotonic() < deadline:
        page.get_by_role("button", name="Show").click()
        visitor.wait_ready()
    assert page.get_by_role("table", name="Sends").get_by_text("success").is_visible()

    visitor.open("/topics/Journey")
    page.get_by_role("button", name="Delete").click()
    assert effects(page)
    confirm(page, "Delete")
    page.wait_for_url("**/topics")
    visitor.open("/topics?search=journey")

    assert row(page, "Journey").count() == 0
    changes = [(line["operation"].partition("_")[0], line["path"]) for line in console.audit()]
    assert changes[-3:] == [
        ("post", "/api/topics"),
        ("post", "/api/topics/Journey/messages"),
        ("delete", "/api/topics/Journey"),
    ]


def test_a_group_is_reset_after_a_look_at_what_that_means(visitor: Visitor) -> None:
    page = visitor.open("/groups?sort=lag&order=desc")
    assert str(LAG) in row(page, BILLING).inner_text()
    row(page, BILLING).get_by_role("link", name=BILLING).click()
    visitor.wait_ready()

    page.get_by_role("button", name="Reset offsets", exact=True).click()
    page.get_by_role("dialog").get_by_label("Reset to").select_option("earliest")
    preview(page)
    moves = page.get_by_role("dialog").get_by_role("table")
    assert moves.get_by_role("row").count() == 1 + 2 * 2  # queues of both brokers
    confirm(page, "Reset offsets")

    page.get_by_role("main").get_by_text(str(ORDER_COUNT), exact=True).first.wait_for()


def test_members_that_subscribe_differently_are_reported(visitor: Visitor) -> None:
    page = visitor.open(f"/groups/{REPORTING}?tab=members")

    page.get_by_text("different subscriptions").first.wait_for()
    page.get_by_role("rowheader").get_by_role("link").first.click()
    visitor.wait_ready()

    assert page.get_by_text(ORDERS).first.is_visible()


def test_dead_letters_are_exported_and_sent_back_to_their_group(visitor: Visitor) -> None:
    page = visitor.open("/dead-letters")
    row(page, COURIERS).get_by_role("link", name=COURIERS).click()
    visitor.wait_ready()
    letters = page.get_by_role("table", name=f"Dead letters of {COURIERS}")
    assert letters.get_by_role("rowheader").count() == DEAD
    with page.expect_download() as download:
        page.get_by_role("link", name="Export all").click()
    assert len(download.value.path().read_text("utf-8").splitlines()) == DEAD

    letters.get_by_role("checkbox").nth(1).check()
    page.get_by_role("button", name="Send back", exact=True).click()
    preview(page)
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Send back", exact=True).click()

    dialog.get_by_role("table", name="Outcome of each dead letter").get_by_text("sent", exact=True).wait_for()
