"""The shop's pages in a browser, at a whole shop: buying, paying, failing, and the faults of the operator."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.console.kit.browser import Visitor, check_accessibility, chromium, need_chromium
from tests.needed import need_module

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

    from webshop.running.shop import Shop

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

PICTURES: Final = Path("build") / "browser"
PAGES: Final = ("/", "/orders", "/operator", "/compare", "/figures")
PHONE: Final = {"width": 390, "height": 800}
EVIL: Final = "<img src=x onerror=\"document.title='hacked'\">"
RECOVERY_MS: Final = 30_000  # a process of Python starts, on a loaded machine
LIFE: Final = ["ORDER_CREATED", "ORDER_CONFIRMED", "PAYMENT_CREATED", "PAYMENT_PAID", "ORDER_PAID"]

Execute = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """A whole shop without simulated buyers and without Spark."""
    need_chromium()
    need_module("fastapi")
    from anyio.from_thread import start_blocking_portal

    from webshop.running.shop import Shop, ShopOptions

    with tempfile.TemporaryDirectory(prefix="kourou-shop-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)  # run by root, the database is another user's
        options = ShopOptions(
            folder=Path(name), buyers=0, has_spark=False, is_durable=False, restart_s=0.1, is_quiet=True
        )
        # In a thread of its own: Playwright occupies the event loop of this one.
        with start_blocking_portal() as portal, portal.wrap_async_context_manager(Shop(options)) as running:
            behave(running, decline_rate=0)
            yield running
            running.supervisor.kill_all()  # there is nothing left to end in order


def behave(shop: Shop, **behaviour: object) -> None:
    """Change how the payment provider behaves."""
    httpx = need_module("httpx")
    httpx.put(f"{shop.url('provider')}/behaviour", json=behaviour).raise_for_status()


@pytest.fixture(scope="module")
def browser(shop: Shop) -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def visitor(request: pytest.FixtureRequest, browser: Browser, shop: Shop) -> Iterator[Visitor]:
    """A window of its own; anything that goes wrong in it fails the test."""
    visitor = Visitor(browser, shop.url("gateway"))
    yield visitor
    visitor.page.screenshot(path=PICTURES / f"{request.node.name}.png", full_page=True)
    visitor.check()
    visitor.close()


@pytest.fixture
def execute(shop: Shop) -> Execute:
    """Looks into the database of the services, or changes it."""
    psycopg = need_module("psycopg")

    def run(statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(shop.settings.database, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            rows: list[tuple[Any, ...]] = cursor.fetchall() if cursor.description else []
        return rows

    return run


def choose(visitor: Visitor, user_id: str) -> Page:
    """Be this buyer, at the goods."""
    page = visitor.open("/")
    page.get_by_label("Buyer").select_option(user_id)
    return page


def add(page: Page, goods: str, quantity: int = 1) -> None:
    page.get_by_role("button", name=f"Add {goods} to the cart").click()
    page.get_by_label(f"Quantity of {goods}").fill(str(quantity))


def order_button(page: Page) -> Locator:
    return page.get_by_role("button", name=re.compile("^Order for"))


def pay_button(page: Page) -> Locator:
    return page.get_by_role("button", name=re.compile("^Pay "))


def wait_state(page: Page, words: str) -> None:
    page.locator(".page-head").get_by_text(words, exact=True).wait_for(timeout=RECOVERY_MS)


def life(page: Page) -> list[str]:
    """The kinds of the messages on the timeline."""
    return page.get_by_role("list", name="Messages of the order").locator(".badge").all_inner_texts()


def act(page: Page, action: str, process: str, *, state: str) -> None:
    """Click on a fault of a process, and wait for the state that follows."""
    table = page.get_by_role("table", name="Processes")
    row = table.get_by_role("row").filter(has=page.get_by_role("rowheader", name=process, exact=True))
    row.get_by_role("button", name=f"{action} {process}").click()
    page.get_by_role("status").get_by_text(f"{process}: ").wait_for()
    row.get_by_text(state, exact=True).wait_for(timeout=RECOVERY_MS)


def set_declined(page: Page, *, percent: int) -> None:
    page.get_by_label("Declined payments in percent").fill(str(percent))
    page.get_by_role("button", name="Apply").click()
    page.get_by_text("The provider behaves so from now on.").wait_for()


def test_an_order_is_placed_once_paid_and_its_life_is_shown(
    visitor: Visitor, shop: Shop, execute: Execute
) -> None:
    httpx = need_module("httpx")
    page = choose(visitor, "ada")
    add(page, "Desk lamp", 2)
    page.get_by_label("Coupon").select_option(index=1)
    page.get_by_label("From the balance").fill("5.00")
    order_button(page).dblclick()
    page.wait_for_url("**/orders/*")
    assert len(execute("SELECT * FROM orders.orders WHERE user_id = 'ada'")) == 1
    pay_button(page).click()
    wait_state(page, "paid")
    page.get_by_text("ORDER_PAID", exact=True).wait_for()
    check_accessibility(page)
    [(coupon_value, balance_paid, due, stored_due)] = execute(
        "SELECT coupon_value, balance_paid, goods_total + shipping - coupon_value - balance_paid, amount_due"
        " FROM orders.orders WHERE user_id = 'ada'"
    )
    assert (balance_paid, due) == (500, stored_due) and coupon_value > 0
    assert page.locator(".sums-due dd").inner_text() == f"{due // 100:,}.{due % 100:02d}"

    assert sorted(life(page)) == sorted(LIFE)
    step = page.locator(".life-step", has_text="ORDER_PAID")
    facts = dict(re.findall(r"(Topic|Queue|Offset|Way)\s+(\S+)", step.inner_text()))
    [(topic, queue_id, queue_offset, msg_id)] = execute(
        "SELECT topic, queue_id, queue_offset, msg_id FROM log.events WHERE kind = 'ORDER_PAID'"
        " AND order_id = (SELECT order_id FROM orders.orders WHERE user_id = 'ada')"
    )
    assert (facts["Topic"], facts["Queue"], facts["Offset"]) == (topic, str(queue_id), str(queue_offset))
    link = step.get_by_role("link", name=msg_id).get_attribute("href")
    assert link == f"{shop.url('console')}/messages/{topic}/{msg_id}"
    found = httpx.get(f"{shop.url('console')}/api/messages/{topic}/{msg_id}")
    assert found.status_code == 200, found.text

    page.get_by_role("link", name="My orders").first.click()
    page.get_by_role("table", name="Orders").get_by_text("paid", exact=True).wait_for()


def test_an_order_that_fails_says_why_and_the_cart_stays(visitor: Visitor, execute: Execute) -> None:
    page = choose(visitor, "alan")
    add(page, "Model rocket, the last ones", 21)  # there are 20
    with visitor.expecting(409):
        order_button(page).click()
        page.get_by_text("There is not enough in stock.").wait_for()
    page.get_by_label("From the balance").fill("1,000.00")
    assert order_button(page).is_disabled()
    page.get_by_label("From the balance").fill("")
    page.get_by_label("Quantity of Model rocket, the last ones").fill("1")
    order_button(page).click()
    page.get_by_text("else it is cancelled").wait_for()
    page.get_by_role("button", name="Cancel the order").click()
    wait_state(page, "cancelled")
    page.get_by_text("cancelled by the buyer").wait_for()
    page.get_by_text("The order was not paid.").wait_for()
    page.get_by_text("ORDER_CANCELLED", exact=True).wait_for()
    # The delay message was sent first, and delivered an hour later.
    execute(
        "INSERT INTO log.events (event_id, order_id, kind, topic, broker, queue_id, queue_offset, msg_id, at,"
        " stored_at, way, body) SELECT 'due', order_id, 'PAYMENT_DUE', topic, broker, queue_id, queue_offset,"
        " msg_id, at, at + interval '1 hour', way, body FROM log.events WHERE kind = 'ORDER_CREATED'"
        " AND order_id = (SELECT order_id FROM orders.orders WHERE user_id = 'alan')"
    )
    visitor.open(visitor.path())
    page.get_by_text("PAYMENT_DUE", exact=True).wait_for()
    assert life(page) == ["ORDER_CREATED", "ORDER_CONFIRMED", "ORDER_CANCELLED", "PAYMENT_DUE"]
    assert execute("SELECT state FROM orders.orders WHERE user_id = 'alan' AND state <> 'CANCELLED'") == []


def test_an_order_without_an_answer_is_placed_once(visitor: Visitor, execute: Execute) -> None:
    page = visitor.open("/operator")
    act(page, "Stop", "orders", state="stopped")
    choose(visitor, "barbara")
    add(page, "Desk lamp")
    with visitor.expecting(503):
        order_button(page).click()
        page.get_by_text("The shop cannot do this at the moment.").wait_for()
    visitor.open("/operator")
    act(page, "Continue", "orders", state="running")
    # What has no answer yet is kept when the page is left.
    visitor.open("/")
    page.get_by_role("button", name="Try again").click()
    page.wait_for_url("**/orders/*")
    wait_state(page, "waiting for payment")
    assert len(execute("SELECT * FROM orders.orders WHERE user_id = 'barbara'")) == 1


def test_the_operator_injects_faults_and_sees_the_shop_recover(visitor: Visitor) -> None:
    page = visitor.open("/operator")
    with visitor.expecting(503):
        act(page, "Kill", "postgres", state="running")
        page.get_by_role("list", name="What happened").get_by_text("killed by SIGKILL").wait_for()
        page.get_by_text("No invariant is violated.").wait_for()
        set_declined(page, percent=100)
    choose(visitor, "edsger")
    add(page, "Desk lamp")
    order_button(page).click()
    pay_button(page).click()
    page.get_by_text("declined", exact=True).wait_for(timeout=RECOVERY_MS)
    address = visitor.path()

    visitor.open("/operator")
    page.get_by_role("button", name="Back to normal").click()
    page.get_by_text("The provider behaves normally again.").wait_for()
    page.get_by_role("button", name="Back to normal", disabled=True).wait_for()
    assert page.get_by_label("Declined payments in percent").input_value() == "5"
    set_declined(page, percent=0)
    with visitor.expecting(503):
        act(page, "End", "provider", state="down")
        visitor.open(address)
        pay_button(page).click()
        page.get_by_role("button", name="Payment under way").wait_for()
        page.goto(f"{visitor.url}/operator")
        act(page, "Start", "provider", state="running")
    visitor.open(address)
    wait_state(page, "paid")


def test_names_are_text(visitor: Visitor, execute: Execute) -> None:
    execute("UPDATE goods.goods SET name = %s, picture = %s WHERE goods_id = 'tea'", EVIL, EVIL)
    execute("UPDATE users.users SET name = %s WHERE user_id = 'grace'", EVIL)
    page = choose(visitor, "grace")
    add(page, EVIL)
    order_button(page).click()
    page.wait_for_url("**/orders/*")
    visitor.wait_ready()
    page.get_by_text(EVIL).first.wait_for()
    visitor.open("/orders")
    assert page.locator("main img").count() == 0
    assert page.title() == "My orders · Shop"


def test_every_page_is_accessible_and_fits_a_phone(browser: Browser, shop: Shop) -> None:
    visitor = Visitor(browser, shop.url("gateway"), color_scheme="dark", viewport=PHONE)
    for path in PAGES:
        page = visitor.open(path)
        check_accessibility(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
    visitor.check()
    visitor.close()
