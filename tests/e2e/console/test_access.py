"""Access control in the browser: login with keys, the access page, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kourou.testing import LocalCluster
from tests.e2e.console.conftest import Visit
from tests.e2e.console.kit.browser import Visitor, check_accessibility
from tests.e2e.console.kit.changes import confirm, effects, preview, row
from tests.e2e.console.kit.console_process import ConsoleProcess, run_console

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

ROOT = ("root", "root-secret")
ADA = ("ada", "secret-of-ada")


@contextmanager
def console_with_accounts(folder: Path, **settings: Any) -> Iterator[ConsoleProcess]:
    """A console of a cluster with access control, in which its accounts log in."""
    # In a thread of its own: Playwright occupies the event loop of the main thread.
    with ExitStack() as stack, ThreadPoolExecutor(1, "guarded") as thread:
        cluster = thread.submit(stack.enter_context, LocalCluster(**settings)).result()
        with run_console(cluster.namesrv, folder, accounts=True) as console:
            yield console
        thread.submit(stack.close).result()


@pytest.fixture(scope="module")
def guarded(browser: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """With users and policies of RocketMQ 5."""
    settings = {
        "authentication_enabled": True,
        "authorization_enabled": True,
        "init_authentication_user": '{"username":"root","password":"root-secret"}',
    }
    with console_with_accounts(tmp_path_factory.mktemp("accounts"), **settings) as console:
        yield console


@pytest.fixture
def plain(browser: object, tmp_path: Path) -> Iterator[ConsoleProcess]:
    """With accounts of RocketMQ 4."""
    (tmp_path / "conf").mkdir()
    accounts = tmp_path / "conf" / "plain_acl.yml"
    accounts.touch(0o600)
    accounts.write_text("accounts:\n- {accessKey: rocketroot, secretKey: root-secret, admin: true}\n")
    with console_with_accounts(tmp_path, acl_enable=True, rocketmq_home=str(tmp_path)) as console:
        yield console


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


def test_accounts_and_white_lists_of_rocketmq_4_are_changed(visit: Visit, plain: ConsoleProcess) -> None:
    visitor = visit(plain.url)
    page = visitor.open("/access")
    log_in(visitor, ("rocketroot", "root-secret"))
    row(page, "rocketroot").wait_for()
    assert not page.get_by_role("button", name="Create user").count()

    page.get_by_role("button", name="Create account").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Access key").fill("shop-service")
    dialog.get_by_label("Secret key").fill("secret-of-the-shop")
    dialog.get_by_label("Topics", exact=True).fill("orders=PUB\nbills=SUB")
    assert preview(page) == [
        "Creates account shop-service on broker-a: default for topics none → DENY; "
        "default for groups none → DENY; topics none → orders=PUB, bills=SUB"
    ]
    assert "secret-of-the-shop" not in page.content()
    confirm(page)
    row(page, "shop-service").filter(has_text="orders=PUB, bills=SUB").wait_for()
    check_accessibility(page)

    page.get_by_role("button", name="Change: shop-service").click()
    dialog.get_by_label("Groups", exact=True).fill("billing=SUB")
    assert preview(page) == [
        "Changes account shop-service",
        "broker-a: groups none → billing=SUB",
    ]
    confirm(page)
    row(page, "shop-service").filter(has_text="billing=SUB").wait_for()

    page.get_by_role("link", name="White list").click()
    page.get_by_role("button", name="Change white list").click()
    dialog.get_by_label("White list").fill("10.0.0.7")
    assert preview(page)[0] == "White list of broker-a: none → 10.0.0.7"
    confirm(page)
    page.get_by_text("broker-a: 10.0.0.7").wait_for()
    check_accessibility(page)

    page.get_by_role("link", name="Accounts").click()
    page.get_by_role("button", name="Delete: shop-service").click()
    assert effects(page) == ["Deletes account shop-service from broker-a"]
    confirm(page)
    row(page, "shop-service").wait_for(state="detached")
    assert [record["outcome"] for record in plain.audit()] == ["done"] * 4
    text = plain.audit_log.read_text() + plain.server.output + plain.server.errors
    assert "secret-of-the-shop" not in text and "root-secret" not in text
