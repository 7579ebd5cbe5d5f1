"""Brokers: their configuration is found, changed, and protected from two administrators at once."""

from __future__ import annotations

import pytest

from tests.e2e.console.conftest import Visit
from tests.e2e.console.kit.browser import Visitor
from tests.e2e.console.kit.changes import confirm, effects, preview, row
from tests.e2e.console.kit.console_process import ConsoleProcess

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

KEY = "maxTransferCountOnMessageInMemory"


def open_key(visitor: Visitor, value: str) -> None:
    """Enter a new value of KEY, as far as the preview."""
    page = visitor.open(f"/brokers/broker-a/0?tab=config&c_search={KEY}")
    row(page, KEY).get_by_role("button", name="Change").click()
    page.get_by_role("dialog").get_by_label(KEY).fill(value)
    assert any(KEY in effect and value in effect for effect in preview(page))


def test_a_key_is_found_and_changed_and_the_change_is_in_the_audit_log(
    visitor: Visitor, console: ConsoleProcess
) -> None:
    page = visitor.open("/brokers")
    page.get_by_role("link", name="broker-b").first.click()
    page.get_by_role("link", name="Configuration").click()
    page.get_by_role("searchbox").fill("flushDisk")
    row(page, "brokerName").wait_for(state="detached")
    row(page, "flushDiskType").wait_for()

    open_key(visitor, "64")
    confirm(page)
    row(page, KEY).get_by_text("64", exact=True).wait_for()
    visitor.open("/audit")

    assert KEY in page.get_by_role("main").inner_text()
    assert KEY in str(console.audit()[-1])


def test_a_value_that_the_broker_would_refuse_is_reported_at_its_field(visitor: Visitor) -> None:
    page = visitor.open(f"/brokers/broker-a/0?tab=config&c_search={KEY}")
    row(page, KEY).get_by_role("button", name="Change").click()
    dialog = page.get_by_role("dialog")
    field = dialog.get_by_label(KEY)
    field.fill("many")

    with visitor.expecting(400):
        dialog.get_by_role("button", name="Preview").click()
        dialog.get_by_text("must be").wait_for()

    assert field.get_attribute("aria-invalid") == "true"


def test_the_second_of_two_administrators_is_shown_what_changed_meanwhile(
    visit: Visit, console: ConsoleProcess
) -> None:
    first, second = visit(console.url), visit(console.url)
    open_key(first, "65")
    open_key(second, "66")
    confirm(first.page)

    with second.expecting(409):
        second.page.get_by_role("dialog").get_by_role("button", name="Do it").click()
        second.page.get_by_text("The cluster has changed since the preview. Nothing was done.").wait_for()
    assert "65" in " ".join(effects(second.page))
    confirm(second.page)

    row(second.page, KEY).get_by_text("66", exact=True).wait_for()
