"""One cluster, its console and a browser for all tests here; a window of its own for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.console.kit.browser import Visitor, chromium, need_chromium
from tests.e2e.console.kit.console_process import ConsoleProcess, add_users, run_console
from tests.e2e.console.kit.story import Shop, open_shop

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_SCREENSHOTS: Final = Path("build") / "browser"

Visit = Callable[..., Visitor]


@pytest.fixture(scope="package")
def _opening_shop() -> Iterator[Future[Shop]]:
    """The cluster, which gets ready while the browser starts."""
    need_chromium()
    # In a thread of its own: Playwright occupies the event loop of the main thread.
    with ExitStack() as stack, ThreadPoolExecutor(1, "shop") as thread:
        yield thread.submit(stack.enter_context, open_shop())
        thread.submit(stack.close).result()


@pytest.fixture(scope="package")
def browser(_opening_shop: Future[Shop]) -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="package")
def shop(browser: Browser, _opening_shop: Future[Shop]) -> Shop:
    """The cluster; see story.py for what is in it."""
    return _opening_shop.result()


@pytest.fixture(scope="package")
def console(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console without login, as on a developer's machine."""
    with run_console(shop.namesrv, tmp_path_factory.mktemp("console")) as running:
        yield running


@pytest.fixture(scope="package")
def guarded_console(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleProcess]:
    """A console with an administrator, ada, and a reader, ruth."""
    folder = tmp_path_factory.mktemp("guarded-console")
    with run_console(shop.namesrv, folder, users=add_users(folder)) as running:
        yield running


@pytest.fixture
def visit(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Visit]:
    """Opens windows; a problem in one of them fails the test, and leaves a picture in build/browser."""
    visitors: list[Visitor] = []

    def open_window(url: str, **options: Any) -> Visitor:
        visitors.append(Visitor(browser, url, **options))
        return visitors[-1]

    yield open_window
    try:
        for visitor in visitors:
            visitor.check()
    except AssertionError:
        _take_pictures(request.node.name, visitors)
        raise
    finally:
        for visitor in visitors:
            visitor.close()


@pytest.fixture
def visitor(visit: Visit, console: ConsoleProcess) -> Visitor:
    """A window at the console without login."""
    return visit(console.url)


def _take_pictures(name: str, visitors: list[Visitor]) -> None:
    for number, visitor in enumerate(visitors):
        visitor.page.screenshot(path=_SCREENSHOTS / f"{name}-{number}.png")
