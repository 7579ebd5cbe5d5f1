"""One cluster, its console and a browser for all tests here; a window of its own for each."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from kourou.testing import LocalCluster
from tests.e2e.console.kit.browser import Visitor, chromium, need_chromium
from tests.e2e.console.kit.console_process import ConsoleProcess, add_users, run_console
from tests.e2e.console.kit.story import Shop, fill_shop

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_PICTURES: Final = Path("build") / "browser"
_HAS_FAILED: Final = pytest.StashKey[bool]()

Visit = Callable[..., Visitor]


@pytest.fixture(scope="package")
def _opening_shop() -> Iterator[Future[Shop]]:
    """The cluster, which gets ready while the browser starts."""
    need_chromium()
    # In a thread of its own: Playwright occupies the event loop of the main thread.
    with ExitStack() as stack, ThreadPoolExecutor(1, "shop") as thread:
        yield thread.submit(_open_shop, stack)
        thread.submit(stack.close).result()


def _open_shop(stack: ExitStack) -> Shop:
    cluster = stack.enter_context(LocalCluster(brokers=2, slaves=1))
    return stack.enter_context(fill_shop(cluster.namesrv))


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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note a failure for the fixture that takes pictures."""
    report = yield
    item.stash[_HAS_FAILED] = item.stash.get(_HAS_FAILED, False) or report.failed
    return report


@pytest.fixture
def visit(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Visit]:
    """Opens windows; a problem in one of them fails the test. A test that fails leaves pictures of them in
    build/browser."""
    visitors: list[Visitor] = []

    def open_window(url: str, **options: Any) -> Visitor:
        visitors.append(Visitor(browser, url, **options))
        return visitors[-1]

    yield open_window
    problems = [problem for visitor in visitors for problem in visitor.problems]
    if problems or request.node.stash.get(_HAS_FAILED, False):
        for number, visitor in enumerate(visitors):
            visitor.page.screenshot(path=_PICTURES / f"{request.node.name}-{number}.png")
    for visitor in visitors:
        visitor.close()
    assert not problems, "\n".join(problems)


@pytest.fixture
def visitor(visit: Visit, console: ConsoleProcess) -> Visitor:
    """A window at the console without login."""
    return visit(console.url)
