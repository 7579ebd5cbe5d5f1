"""What is around every page: menu, keyboard, themes, languages, unknown paths."""

from __future__ import annotations

import re

import pytest

from tests.e2e.console.conftest import Visit
from tests.e2e.console.kit.browser import Visitor
from tests.e2e.console.kit.console_process import ConsoleProcess

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

CHINESE = re.compile(r"[\u4e00-\u9fff]")


def background(visitor: Visitor) -> tuple[int, ...]:
    """The color of the page."""
    color = visitor.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    return tuple(map(int, re.findall(r"\d+", color)[:3]))


def test_the_menu_leads_to_every_page_and_back(visitor: Visitor) -> None:
    page = visitor.open("/")
    links = page.get_by_role("navigation", name="Menu").get_by_role("link")
    paths = [link.get_attribute("href") for link in links.all()]
    assert len(paths) >= 12

    for link, path in zip(links.all(), paths, strict=True):
        link.click()
        visitor.wait_ready()
        assert visitor.path() == path
        assert link.get_attribute("aria-current") == "page"

    page.go_back()
    visitor.wait_ready()
    assert visitor.path() == paths[-2]


def test_pages_are_reached_by_the_keyboard_alone(visitor: Visitor) -> None:
    page = visitor.open("/")

    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/topics")
    visitor.wait_ready()
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keyboard shortcuts").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    page.keyboard.press("/")
    page.keyboard.type("Ord")

    assert page.get_by_role("searchbox").first.input_value() == "Ord"


def test_the_first_tab_stop_skips_the_menu(visitor: Visitor) -> None:
    page = visitor.open("/")

    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    assert page.evaluate("document.activeElement.id") == "main"


def test_the_theme_follows_the_system_until_another_is_chosen(visit: Visit, console: ConsoleProcess) -> None:
    light, dark = visit(console.url), visit(console.url, color_scheme="dark")
    for visitor in (light, dark):
        visitor.open("/")
    assert min(background(light)) > 200
    assert max(background(dark)) < 80

    page = dark.page
    while "light" not in (page.get_by_role("button", name="Theme").get_attribute("title") or ""):
        page.get_by_role("button", name="Theme").click()
    dark.open("/audit")

    assert min(background(dark)) > 200


def test_a_chinese_browser_sees_chinese_and_can_change_to_english(
    visit: Visit, console: ConsoleProcess
) -> None:
    visitor = visit(console.url, locale="zh-CN")
    page = visitor.open("/topics")
    assert CHINESE.search(page.get_by_role("heading", level=1).inner_text())
    assert page.locator("html").get_attribute("lang") == "zh"

    page.get_by_role("button", name="English").click()
    visitor.open("/groups")

    assert page.get_by_role("heading", level=1).inner_text() == "Groups"
    assert page.locator("html").get_attribute("lang") == "en"


def test_a_table_with_columns_beyond_the_edge_is_marked(visit: Visit, console: ConsoleProcess) -> None:
    visitor = visit(console.url, viewport={"width": 800, "height": 800})
    page = visitor.open("/brokers")
    marked = page.locator(".table-scroll[data-more]")
    marked.wait_for()

    page.locator(".table-scroll").first.evaluate("element => element.scrollTo(10000, 0)")

    marked.wait_for(state="detached")


def test_an_unknown_path_leads_back_to_the_overview(visitor: Visitor) -> None:
    page = visitor.page
    page.goto(visitor.url + "/no/such/page")

    page.get_by_text("There is no such page").wait_for()
    page.get_by_role("link", name="To the overview").click()
    visitor.wait_ready()

    assert visitor.path() == "/"
