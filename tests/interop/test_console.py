"""The console at Apache's cluster: its pages read what Apache's servers answer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.e2e.console.kit.browser import Visitor, chromium, need_chromium
from tests.e2e.console.kit.console_process import run_console
from tests.e2e.console.kit.pages import DETAILS, LISTS, path_of
from tests.e2e.console.kit.story import Shop, fill_shop
from tests.interop.kit import apache, wire

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.interop, pytest.mark.browser]

VERSION = "5.5.0"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """Apache's name server and broker, in the state of the browser tests."""
    need_chromium()
    folder = tmp_path_factory.mktemp("apache")
    with ExitStack() as stack:
        # Killed at the end, since the orderly stop of a broker takes up to ten seconds.
        namesrv = apache.start_namesrv(VERSION, folder)
        stack.callback(namesrv.kill)
        broker = apache.start_broker(
            VERSION, folder, [namesrv.address], properties={"traceTopicEnable": "true"}
        )
        stack.callback(broker.kill)
        # It may find no name server in its first round; a change of its permission makes it register now.
        wire.set_config(broker.address, brokerPermission=6)
        wire.wait_route(namesrv.address, "TBW102", broker.address)
        # In a thread of its own: Playwright occupies the event loop of the main thread.
        with ExitStack() as clients, ThreadPoolExecutor(1, "shop") as thread:
            yield thread.submit(clients.enter_context, fill_shop(namesrv.address)).result()
            thread.submit(clients.close).result()


@pytest.fixture(scope="module")
def console_url(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with run_console(shop.namesrv, tmp_path_factory.mktemp("console")) as console:
        yield console.url


@pytest.fixture(scope="module")
def browser(shop: Shop) -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.mark.parametrize("name", [*LISTS, *DETAILS])
def test_a_page_shows_what_apache_answers(name: str, shop: Shop, console_url: str, browser: Browser) -> None:
    visitor = Visitor(browser, console_url)
    try:
        visitor.open(path_of(name, shop))
        visitor.check()
    finally:
        visitor.close()
