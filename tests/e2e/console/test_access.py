"""Access control in the browser: login with keys, the access page, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from kourou.testing import LocalCluster
from tests.e2e.console.conftest import Visit
from tests.e2e.console.kit.browser import Visitor, check_accessibility
from tests.e2e.console.kit.changes import confirm, preview, row
from tests.e2e.console.kit.console_process import ConsoleProcess, run_console

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

ROOT = ("root", "root-secret")
ADA = ("ada", "secret-of-ada")


@pytest.fixture(scope="module")
def guarded(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console of a cluster with access control, in which its accounts log in."""
    settings = {
        "authentication_enabled": True,
        "authorization_enabled": True,
        "init_authentication_user": '{"username":"root","password":"root-secret"}',
    }
    # In a thread of its own: Playwright occupies the event loop of the main thread.
    with ExitStack() as stack, ThreadPoolExecutor(1, "guarded") as thread:
        cluster = thread.submit(stack.enter_context, LocalCluster(**settings)).result()
        with run_console(cluster.namesrv, tmp_path_factory.mktemp("accounts"), accounts=True) as console:
            yield console
        thread.submit(stack.close).result()


def log_in(visitor: Visitor, keys: tuple[str, str]) -> None:
    """Fill in the form."""
    page = visitor.page
    page.get_by_label("Access key").fill(keys[0])
    page.get_by_label("Secret key").fill(keys[1])
    page.get_by_role("button", name="Log in").click()


def test_an_administrator_creates_a_user_who_then_sees_what_the_brokers_refuse(
    visit: Visit, guarded: ConsoleProcess
) -> None:
    visitor = visit(guarded.url)
    page = visitor.open("/access")
    check_accessibility(page)
    with visitor.expecting(401):
        log_in(visitor, ("root", "wrong-secret"))
        page.get_by_role("alert").filter(has_text="does not accept these keys").wait_for()
    log_in(visitor, ROOT)
    row(page, "root").wait_for()

    page.get_by_role("button", name="Create user").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("User").fill(ADA[0])
    dialog.get_by_label("Password").fill(ADA[1])
    assert preview(page) == ["Creates the Normal user ada on broker-a"]
    assert ADA[1] not in page.content()
    confirm(page)
    row(page, "ada").wait_for()
    check_accessibility(page)

    page.get_by_role("link", name="Permissions").click()
    page.get_by_role("button", name="Add permission").click()
    dialog.get_by_label("User").fill("ada")
    dialog.get_by_label("Resource").fill("Topic:orders")
    dialog.get_by_label("Pub").check()
    assert preview(page) == ["User:ada, Topic:orders on broker-a: nothing → Allow Pub"]
    confirm(page)
    row(page, "User:ada").wait_for()

    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Access key").wait_for()
    log_in(visitor, ADA)
    page.get_by_role("button", name="Log out").wait_for()
    visitor.open("/topics")
    page.get_by_role("status").filter(has_text="User:ada has no permission to access Topic:*").wait_for()
    page.get_by_role("button", name="Create topic").click()
    dialog.get_by_label("Topic").fill("orders")
    preview(page)
    with visitor.expecting(403):
        dialog.get_by_role("button", name="Create topic").click()
        dialog.get_by_text("User:ada has no permission to access Topic:orders").wait_for()
    assert not page.get_by_role("link", name="Audit log").count()

    records = [(record["user"], record["outcome"]) for record in guarded.audit()]
    assert records == [("root", "done"), ("root", "done"), ("ada", "failed")]
    assert ADA[1] not in guarded.audit_log.read_text() + guarded.server.output + guarded.server.errors


def test_the_overview_of_an_account_has_no_charts_of_others(visit: Visit, guarded: ConsoleProcess) -> None:
    visitor = visit(guarded.url)
    visitor.open("/")
    log_in(visitor, ROOT)
    visitor.page.get_by_text("No charts: the console samples").wait_for()
