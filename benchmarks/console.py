"""The console at 5,000 topics and 2,000 groups: time until pages appear, added memory, cost for sends.

    python -m benchmarks console [--runs 5] [--rounds 5] [--seconds 5] [--write]

A `kourou standalone --console` with one broker, filled by _console_scale.py.
Pages: each is opened in a new browser window without cache. Paint is the browser's first-contentful-paint,
content the time until the page shows its data; the median of the runs.
Memory: RSS of that process after all pages were opened, less that of a standalone without a console.
Sends: loadgen.c at the broker, alternating without and with ten open consoles; the median of the ratios.
The consoles repeat the requests that a browser was seen to make: ten browsers would take the cores.
Needs Chromium, Playwright and a C compiler. --write puts the result into benchmarks/results.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from tests.child_process import dies_with_parent
from tests.e2e.console.kit.browser import Visitor, chromium

from benchmarks._broker_loadgen import Loadgen, build
from benchmarks._console_polling import Consoles, Poll
from benchmarks._console_scale import GROUPS, STORE_KEYS, TOPICS, fill, group_name, topic_name
from benchmarks._namesrv_load import ServerProbe

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Request

RESULTS = Path(__file__).parent / "results"
AIMS = "content within 1,500 ms, 60 MB, 97 %"
PAGES = (
    *("/", "/brokers", "/brokers/broker-a/0", "/topics", f"/topics/{topic_name(42)}", "/groups"),
    *(
        f"/groups/{group_name(42)}",
        "/producers",
        f"/messages?topic={topic_name(42)}",
        "/dead-letters",
        "/trace",
    ),
    *("/delayed", "/namesrvs", "/doctor", "/pipelines", "/audit"),
)
OPEN_PAGES = ("/", "/", "/", "/", "/topics", "/topics", "/groups", "/groups", "/brokers", "/doctor")
RECORD_S = 11  # pages poll every 2 to 5 s
LOAD_TOPIC = "Load"
_SETTLE_S = 3
_TIMEOUT_MS = 60_000


# -- the servers -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Server:
    """A running standalone."""

    pid: int
    namesrv: str
    broker_port: int
    console_url: str  # empty without a console

    @property
    def rss_mb(self) -> float:
        """Its resident memory."""
        return ServerProbe(self.pid).rss_bytes() / 1e6


@contextmanager
def standalone(store: Path, *, console: bool) -> Iterator[Server]:
    """Run a standalone on free ports."""
    ports = ["--namesrv-port", "0", "--broker-port", "0"]
    ports += ["--console", "--console-port", "0"] if console else []
    command = [
        *dies_with_parent(),
        sys.executable,
        "-m",
        "kourou.cli.main",
        "standalone",
        "--store",
        str(store),
        *ports,
    ]
    home = {"HOME": str(store), "XDG_CONFIG_HOME": str(store / "home")}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **home})
    try:
        assert process.stdout is not None
        ready = re.match(r".*namesrvAddr=(\S+) \(broker \S+:(\d+);", process.stdout.readline())
        if ready is None:
            raise RuntimeError("the standalone did not start; its message is above")
        line = process.stdout.readline() if console else ""
        url = line.removeprefix("console: ").strip().rstrip("/")
        # The rest of its output is a few lines, which fit into the pipe.
        yield Server(process.pid, ready[1], int(ready[2]), url)
    finally:
        process.terminate()
        process.wait(60)


# -- the measurements --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opening:
    """How long a page took to appear, in milliseconds."""

    paint_ms: float
    content_ms: float


def open_page(browser: Browser, url: str, path: str) -> Opening:
    """Open a page in a new window, and wait for its data."""
    visitor = Visitor(browser, url)
    visitor.context.set_default_timeout(_TIMEOUT_MS)
    try:
        began = time.perf_counter()
        visitor.open(path)
        content_ms = (time.perf_counter() - began) * 1_000
        paint = visitor.page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
        )
        visitor.check()
    finally:
        visitor.close()
    if paint is None:
        raise RuntimeError(f"{path}: nothing was painted")
    return Opening(paint, content_ms)


def record(browser: Browser, url: str, path: str) -> list[Poll]:
    """The requests of an open page, after those that load it."""
    visitor = Visitor(browser, url)
    try:
        visitor.open(path)
        polls: list[Poll] = []
        began = time.monotonic()

        def note(request: Request) -> None:
            if "/api/" in request.url:
                polls.append(Poll(request.url.removeprefix(url), time.monotonic() - began))

        visitor.page.on("request", note)
        visitor.page.wait_for_timeout(RECORD_S * 1_000)
    finally:
        visitor.close()
    return [poll for poll in polls if poll.at_s < RECORD_S]


@dataclass(frozen=True)
class SendRates:
    """Messages per second without and with open consoles, in pairs; and the requests of the consoles."""

    pairs: list[tuple[float, float]]
    requests_per_s: float

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return statistics.median(beside / alone for alone, beside in self.pairs)


def measure_sends(
    server: Server, recordings: Sequence[Sequence[Poll]], program: Path, rounds: int, seconds: float
) -> SendRates:
    """Sends without and with open consoles, in turn; each pair begins with the other one."""
    load = Loadgen(program, server.broker_port, server.pid)
    pairs, requests = [], 0

    def alone() -> float:
        return load.run("send", "-t", LOAD_TOPIC, "-C", "-c", 8, "-w", 32, "-d", seconds).messages_per_s

    def beside() -> float:
        nonlocal requests
        with Consoles(server.console_url, recordings, RECORD_S) as consoles:
            time.sleep(RECORD_S)  # until all of them have begun
            before = consoles.requests
            rate = alone()
            requests += consoles.requests - before
        return rate

    alone()  # warms up
    for number in range(rounds):
        if number % 2:
            second, first = beside(), alone()
        else:
            first, second = alone(), beside()
        pairs.append((first, second))
    return SendRates(pairs, requests / (rounds * seconds))


# -- all of it ---------------------------------------------------------------------------------------


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--runs", type=int, default=5, help="of each page")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of sends without and with consoles")
    parser.add_argument("--seconds", type=float, default=5.0, help="of one load")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kourou-console-") as folder:
        text = measure(Path(folder), options)
    print(text)
    if options.write:
        path = RESULTS / f"console-{date.today()}.md"
        path.write_text(text, encoding="utf-8")
        print(f"written: {path}")


def measure(folder: Path, options: argparse.Namespace) -> str:
    """All measurements; returns the report."""
    store = folder / "store"
    store.mkdir()
    keys = "".join(f"{key}={value}\n" for key, value in STORE_KEYS.items())
    (store / "broker-a.properties").write_text(keys)
    with standalone(store, console=False) as server:
        asyncio.run(fill(server.namesrv, options.topics, options.groups))
    with standalone(store, console=False) as server:
        time.sleep(_SETTLE_S)
        plain_mb = server.rss_mb
    program = build(folder)
    with standalone(store, console=True) as server:
        started_mb = server.rss_mb
        with chromium() as browser:
            url = server.console_url
            first = {path: open_page(browser, url, path) for path in PAGES}
            openings = {path: [open_page(browser, url, path) for _ in range(options.runs)] for path in PAGES}
            recordings = {path: record(browser, url, path) for path in dict.fromkeys(OPEN_PAGES)}
        opened_mb = server.rss_mb
        rates = measure_sends(
            server, [recordings[path] for path in OPEN_PAGES], program, options.rounds, options.seconds
        )
    return report(options, first, openings, (plain_mb, started_mb, opened_mb), rates)


def report(
    options: argparse.Namespace,
    first: Mapping[str, Opening],
    openings: Mapping[str, Sequence[Opening]],
    memory_mb: tuple[float, float, float],
    rates: SendRates,
) -> str:
    """The result as Markdown."""
    plain_mb, started_mb, opened_mb = memory_mb
    rows = [
        f"| `{path}` | {first[path].content_ms:,.0f} | "
        f"{statistics.median(each.paint_ms for each in found):,.0f} | "
        f"{statistics.median(each.content_ms for each in found):,.0f} |"
        for path, found in openings.items()
    ]
    pairs = ", ".join(f"{alone:,.0f} → {beside:,.0f}" for alone, beside in rates.pairs)
    return "\n".join(
        [
            f"# Console, {date.today()}, {os.cpu_count()} cores",
            "",
            f"`python -m benchmarks console`: {options.topics:,} topics, {options.groups:,} groups with a "
            f"retry topic each, one broker, console in the same process. Aims: {AIMS}.",
            "",
            f"Milliseconds until a page appears in a new window, median of {options.runs}; *first* is the "
            "first opening after the start of the server.",
            "",
            "| page | first, content | paint | content |",
            "|---|---|---|---|",
            *rows,
            "",
            f"Memory (RSS): {plain_mb:.0f} MB without a console, {started_mb:.0f} MB with one just started, "
            f"{opened_mb:.0f} MB after all pages were opened: **{opened_mb - plain_mb:+.0f} MB**.",
            "",
            f"Sends per second without → with {len(OPEN_PAGES)} open consoles ({rates.requests_per_s:.1f} "
            f"requests/s), 8×32 sends in flight, 1 KiB: {pairs}. Median of the ratios: "
            f"**{rates.ratio:.1%}**.",
            "",
        ]
    )


if __name__ == "__main__":
    main()
