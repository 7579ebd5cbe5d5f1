"""The dialog of every change: preview, confirm, and what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page


def preview(page: Page) -> list[str]:
    """Go on from the form of the open dialog to its preview; returns what will happen."""
    page.get_by_role("dialog").get_by_role("button", name="Preview").click()
    return effects(page)


def effects(page: Page) -> list[str]:
    """What will happen, as the open dialog says."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("heading", name="What will happen").wait_for()
    return dialog.locator(".effects > li").all_inner_texts()


def confirm(page: Page, button: str = "Do it") -> None:
    """Do it, and wait for the end of the dialog: every target has done it."""
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name=button, exact=True).click()
    dialog.wait_for(state="detached")


def row(page: Page, name: str) -> Locator:
    """The row of a table with this row header."""
    return page.get_by_role("row").filter(has=page.get_by_role("rowheader", name=name, exact=True))
