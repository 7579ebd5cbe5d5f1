"""`python -m webshop`: the whole shop, until Ctrl-C."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import signal
import sys
from contextlib import suppress
from pathlib import Path

from webshop.running.postgres import PostgresError
from webshop.running.shop import Shop, ShopOptions, StartError, why_no_spark
from webshop.running.supervisor import SupervisorError, say

_BUYERS = 5
_RATE = 2.0


def main(words: list[str] | None = None) -> int:
    """Run the shop; the exit status."""
    options = parse(words)
    try:
        asyncio.run(run(options))
    except (StartError, PostgresError, SupervisorError, OSError) as error:
        print(f"the shop cannot be started: {error}", file=sys.stderr)
        return 1
    return 0


def parse(words: list[str] | None) -> ShopOptions:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m webshop",
        description="A shop that survives the death of its services, of its broker and of its database.",
    )
    add = parser.add_argument
    add(
        "--folder", type=Path, default=Path("shop-run"), help="everything of this shop (default: %(default)s)"
    )
    add("--port", type=int, help="port of the web pages (default: a free one)")
    add("--database", metavar="URL", help="an empty PostgreSQL database (default: a server in the folder)")
    add("--way", choices=("both", "transaction", "outbox"), default="both", help="how messages are sent")
    add("--pay-within", type=float, default=900, metavar="S", help="until an unpaid order is cancelled (900)")
    add("--buyers", type=int, default=_BUYERS, help="simulated buyers; 0: none (default: %(default)s)")
    add("--orders", type=int, default=0, help="how many orders they place; 0: without end (default)")
    add("--rate", type=float, default=_RATE, help="orders a second of all of them (default: %(default)s)")
    add("--seed", type=int, help="what the buyers do follows from it (default: another one each time)")
    add("--no-spark", action="store_true", help="without Spark's figures")
    given = parser.parse_args(words)
    return ShopOptions(
        folder=given.folder,
        port=given.port,
        database=given.database,
        way=given.way,
        pay_within_s=given.pay_within,
        orders=given.orders,
        buyers=given.buyers,
        rate=given.rate,
        seed=random.randrange(2**31) if given.seed is None else given.seed,
        has_spark=not given.no_spark,
    )


async def run(options: ShopOptions) -> None:
    """Start the shop, show where it is, end it on a signal; a second signal ends it at once."""
    shop, task = Shop(options), asyncio.current_task()
    assert task is not None
    signals = itertools.count()

    def interrupt() -> None:
        if next(signals):
            shop.supervisor.kill_all()
        else:
            task.cancel()
            say("\nending the shop; press Ctrl-C again to kill it")

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt)
    say(f"starting the shop in {shop.folder}")
    with suppress(asyncio.CancelledError):
        async with shop:
            print(screen(shop), flush=True)
            await asyncio.Event().wait()
    say(f"the shop has ended; its data are in {shop.folder}")


def screen(shop: Shop) -> str:
    """Where everything is."""
    pages, options = shop.url("gateway"), shop.options
    rows = [
        ("shop", f"{pages}/", "buy something"),
        ("operator", f"{pages}/operator", "orders, invariants, faults to inject"),
        ("two ways", f"{pages}/compare", "transaction messages beside the outbox"),
        ("figures", f"{pages}/figures", _spark_text(shop)),
        ("console", f"{shop.url('console')}/", "the broker: topics, messages, groups"),
        ("broker", shop.settings.namesrv, "its name server, for kourou -n and mqadmin -n"),
        ("settings", f"{shop.settings_file}", "for SHOP_SETTINGS: python -m webshop.checking and others"),
        ("logs", f"{shop.folder / 'logs'}", "one file for each process"),
    ]
    width = max(len(place) for _, place, _ in rows)
    lines = [
        "",
        "The shop is open.",
        "",
        *(f"  {what:<9}{place:<{width}}  {text}" for what, place, text in rows),
    ]
    if options.buyers:
        lines += ["", f"{options.buyers} simulated buyers place orders, too."]
    return "\n".join([*lines, "", "Ctrl-C ends everything. The next start goes on with the same data.", ""])


def _spark_text(shop: Shop) -> str:
    if "spark" in shop.supervisor.processes:
        return "by Spark, a minute or two after the start"
    why = why_no_spark() if shop.options.has_spark else "it was started with --no-spark"
    return f"without Spark: {why}"


if __name__ == "__main__":
    sys.exit(main())
