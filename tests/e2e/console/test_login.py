"""Users of the console: login, logout, and what a reader may do."""

from __future__ import annotations

import pytest

from tests.e2e.console.conftest import Visit
from tests.e2e.console.kit.browser import Visitor, check_accessibility
from tests.e2e.console.kit.console_process import PASSWORDS, ConsoleProcess

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


def log_in(visitor: Visitor, user: str, *, password: str = "") -> None:
    """Fill in the form."""
    page = visitor.page
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password or PASSWORDS[user])
    page.get_by_role("button", name="Log in").click()


def test_a_user_logs_in_and_gets_to_the_page_that_was_opened(
    visit: Visit, guarded_console: ConsoleProcess
) -> None:
    visitor = visit(guarded_console.url)
    page = visitor.open("/audit?user=ada")
    check_accessibility(page)

    with visitor.expecting(401):
        log_in(visitor, "ada", password="wrong password")
        page.get_by_role("alert").wait_for()
    log_in(visitor, "ada")
    page.get_by_role("heading", name="Audit log").wait_for()

    assert visitor.path() == "/audit?user=ada"


def test_after_logout_the_pages_ask_for_a_login_again(visit: Visit, guarded_console: ConsoleProcess) -> None:
    visitor = visit(guarded_console.url)
    page = visitor.open("/")
    log_in(visitor, "ada")

    page.get_by_role("button", name="Log out").click()
    page.get_by_role("button", name="Log in").wait_for()

    assert page.request.get(guarded_console.url + "/api/overview").status == 401
    visitor.open("/brokers")
    assert page.get_by_label("Password").is_visible()
