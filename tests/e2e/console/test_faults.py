"""A broker that hangs in the middle of an action: a clear message for it, and the others are done."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kourou.testing import LocalCluster
from tests.e2e.console.conftest import Visit
from tests.e2e.console.kit.changes import preview, row
from tests.e2e.console.kit.console_process import run_console

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

TIMEOUTS_MS = 40_000  # of the requests for plan and change, 5 s each, on a loaded machine


@pytest.fixture
def cluster(browser: Browser) -> Iterator[LocalCluster]:
    """A cluster of its own."""
    # In a thread of its own: Playwright occupies the event loop of the main thread.
    with ThreadPoolExecutor(1, "cluster") as thread:
        running = thread.submit(LocalCluster(brokers=2).start).result()
        yield running
        thread.submit(running.stop).result()


def test_a_broker_hangs_between_the_preview_and_the_change(
    visit: Visit, cluster: LocalCluster, tmp_path: Path
) -> None:
    with run_console(cluster.namesrv, tmp_path) as console:
        visitor = visit(console.url)
        page = visitor.open("/topics")
        page.get_by_role("button", name="Create topic").click()
        page.get_by_role("dialog").get_by_label("Topic").fill("Half")
        assert "broker-b" in " ".join(preview(page))
        dialog = page.get_by_role("dialog")

        with cluster.pause(1):
            dialog.get_by_role("button", name="Create topic").click()
            dialog.get_by_text("Failed for 1 of 2 targets.").wait_for(timeout=TIMEOUTS_MS)
            assert dialog.get_by_text("no answer from").is_visible()
            visitor.open("/brokers")
            page.get_by_text("Incomplete: parts of the cluster could not be read").wait_for()
            assert row(page, "broker-a").count() == 1

    visitor.page.close()
    assert [line["outcome"] for line in console.audit()] == ["partly"]
