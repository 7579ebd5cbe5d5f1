"""The pictures of the console in docs/images: `make screenshots`.

    python -m tests.e2e.console.screenshots [--seconds 90] [FOLDER]

Taken from the cluster of the browser tests, after so many seconds of traffic for the charts.
"""

from __future__ import annotations

import argparse
import io
import itertools
import math
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from kourou import Message, Producer
from kourou.testing import LocalCluster
from tests.e2e.console.kit.browser import Visitor, chromium
from tests.e2e.console.kit.console_process import run_console
from tests.e2e.console.kit.story import BILLING, COURIERS, ORDERS, Shop, fill_shop

FOLDER: Final = Path("docs") / "images"
MAX_BYTES: Final = 120_000
_COLORS: Final = 128
_SIZE: Final = {"width": 1280, "height": 800}
_RATE: Final = 150  # messages per second, on average
_TICK_S: Final = 0.1


def pictures(shop: Shop) -> dict[str, str]:
    """File name to path."""
    return {
        "overview": "/",
        "overview-dark": "/",
        "topic": f"/topics/{ORDERS}",
        "group": f"/groups/{BILLING}",
        "message": f"/messages/{ORDERS}/{shop.order_ids[0]}",
        "dead-letters": f"/dead-letters?group={COURIERS}",
        "trace": f"/trace?id={shop.order_ids[0]}",
        "doctor": "/doctor",
    }


@contextmanager
def traffic(namesrv: str) -> Iterator[None]:
    """Send in waves to the orders until the end of the context."""
    is_over = threading.Event()

    def send() -> None:
        with Producer("web", namesrv=namesrv) as producer:
            for tick in itertools.count():
                wave = 1 + 0.6 * math.sin(tick / 60) + 0.2 * math.sin(tick / 7)
                for _ in range(round(_RATE * _TICK_S * wave)):
                    producer.send_nowait(Message(ORDERS, b'{"order": 1}', tags="created"))
                if is_over.wait(_TICK_S):
                    return

    thread = threading.Thread(target=send, name="traffic")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def save(png: bytes, path: Path) -> int:
    """Write a picture with a reduced palette; returns its size in bytes."""
    from PIL import Image

    image = Image.open(io.BytesIO(png)).convert("RGB")
    image.quantize(_COLORS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(
        path, optimize=True
    )
    return path.stat().st_size


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER)
    parser.add_argument("--seconds", type=float, default=90.0, help="of traffic before the first picture")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kourou-screenshots-")))
        cluster = stack.enter_context(LocalCluster(brokers=2, slaves=1))
        shop = stack.enter_context(fill_shop(cluster.namesrv))
        console = stack.enter_context(run_console(shop.namesrv, home))
        stack.enter_context(traffic(shop.namesrv))
        time.sleep(options.seconds)
        # Playwright occupies the event loop of its thread, and clients have to be stopped on this one.
        with ThreadPoolExecutor(1, "browser") as thread:
            thread.submit(take, shop, console.url, options.folder).result()


def take(shop: Shop, url: str, folder: Path) -> None:
    """Take the pictures."""
    with chromium() as browser:
        for name, path in pictures(shop).items():
            scheme = "dark" if name.endswith("-dark") else "light"
            visitor = Visitor(browser, url, viewport=_SIZE, color_scheme=scheme)
            visitor.open(path)
            visitor.page.wait_for_load_state("networkidle")
            size = save(visitor.page.screenshot(), folder / f"{name}.png")
            print(f"{name}.png: {size:,} bytes{'' if size <= MAX_BYTES else ', too large'}")
            visitor.check()
            visitor.close()


if __name__ == "__main__":
    main()
