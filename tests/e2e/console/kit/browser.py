"""Debian's Chromium under Playwright: no network but 127.0.0.1, and pages that fail a test on every error.

Playwright's sync interface occupies the event loop of its thread: nothing else may use asyncio there.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.console.kit import axe_core
from tests.needed import need, need_module

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, Response, Route

_ARGUMENTS: Final = (
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_VIEWPORT: Final = {"width": 1280, "height": 800}
_TIMEOUT_MS: Final = 15_000
_FAILED_LOAD: Final = re.compile(r"Failed to load resource: .* (\d{3}) ")
_SEVERE: Final = ("serious", "critical")
_TAGS: Final = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice")


def need_chromium() -> str:
    """The path of the browser; the test is skipped where there is none."""
    found: str = need(
        "chromium on PATH (.ci/interop-setup installs it)",
        shutil.which("chromium") or shutil.which("chromium-browser"),
    )
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser; the test is skipped where there is none."""
    playwright = need_module("playwright.sync_api")
    path = need_chromium()
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


class Visitor:
    """One user's browser window at a console, and everything that went wrong in it."""

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        options = {"viewport": _VIEWPORT, "locale": "en-GB", "timezone_id": "Asia/Shanghai", **options}
        self.url = url
        self.context: BrowserContext = browser.new_context(**options)
        self.context.set_default_timeout(_TIMEOUT_MS)
        self.context.route(lambda address: not address.startswith(url), self._refuse)
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self._expected: set[int] = set()
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.problems.append(f"uncaught: {error}"))
        self.page.on("response", self._on_response)
        self.page.on("requestfailed", self._on_failed)

    def open(self, path: str) -> Page:
        """Load a path of the console, and wait until its content is there."""
        self.page.goto(self.url + path)
        self.wait_ready()
        return self.page

    def wait_ready(self) -> None:
        """Wait until the page shows its content: a heading, and nothing that is still being loaded. An alert
        on it is a problem."""
        self.page.locator("main h1, [role=alert]").first.wait_for()
        # By locators: a function to wait for would be evaluated, which the page's policy forbids.
        for waiting in ("main .loading", 'main [aria-busy="true"]'):
            self.page.locator(waiting).first.wait_for(state="detached")
        self.problems += [f"alert: {text}" for text in self.page.get_by_role("alert").all_inner_texts()]

    def path(self) -> str:
        """Path and query of the page."""
        return self.page.url.removeprefix(self.url)

    @contextmanager
    def expecting(self, *statuses: int) -> Iterator[None]:
        """Answers with these statuses are part of the test."""
        self._expected |= set(statuses)
        yield
        self.page.wait_for_timeout(0)  # what the browser has reported until now is handled
        self._expected -= set(statuses)

    def check(self) -> None:
        """Fail if anything went wrong since the last call."""
        problems, self.problems = self.problems, []
        assert not problems, "\n".join(problems)

    def close(self) -> None:
        """Close the window."""
        self.context.close()

    # -- what went wrong -------------------------------------------------------------------------

    def _refuse(self, route: Route) -> None:
        if route.request.url.startswith(("data:", "blob:")):
            route.continue_()
        else:
            self.problems.append(f"request to another server: {route.request.url}")
            route.abort()

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        load = _FAILED_LOAD.search(message.text)
        if load and int(load[1]) in self._expected:
            return
        self.problems.append(f"console {message.type}: {message.text}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self._expected:
            request = response.request
            self.problems.append(f"{response.status} for {request.method} {request.url}")

    def _on_failed(self, request: Request) -> None:
        # A page that is left aborts what it still waits for.
        if request.failure != "net::ERR_ABORTED":
            self.problems.append(f"{request.failure} for {request.method} {request.url}")


def check_accessibility(page: Page) -> None:
    """Fail on findings of axe-core that are serious or critical."""
    script = need("axe-core (npm fetches it)", axe_core.script())
    assert isinstance(script, Path)
    # The console's Content-Security-Policy forbids added scripts; evaluation by the debugger is exempt.
    page.evaluate(script.read_text(encoding="utf-8"))
    found = page.evaluate(
        "tags => axe.run(document, {runOnly: tags, resultTypes: ['violations']})", list(_TAGS)
    )
    severe = [
        f"{finding['impact']}: {finding['id']}: {finding['help']}: {node['html'][:200]}"
        for finding in found["violations"]
        if finding["impact"] in _SEVERE
        for node in finding["nodes"][:3]
    ]
    assert not severe, "\n".join(severe)
