"""python -m webshop.buyers --orders 2000 --buyers 50 --seed 7 [--pace ORDERS_PER_S]

`GET /health` answers how far they are. When all orders are settled one line of JSON says how they ended; the
exit code is 1 if the shop accepted what it should have refused.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
import time
from typing import Any

import uvicorn
from fastapi import FastAPI

from webshop.buyers.buyer import Buyers
from webshop.kit.calls import Calls
from webshop.settings import Settings


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{number} is below 0")
    return number


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m webshop.buyers", description="Simulated buyers.")
    parser.add_argument("--orders", type=_count, default=0, help="how many; 0 (default): without end")
    parser.add_argument("--buyers", type=_count, default=50, help="at the same time (default: 50)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed repeats the same orders")
    parser.add_argument("--pace", type=float, default=0, help="at most so many orders a second; 0: no limit")
    return parser.parse_args()


async def _run(options: argparse.Namespace, settings: Settings) -> int:
    calls = Calls(settings)
    buyers = Buyers(calls, seed=options.seed, pay_within_s=settings.pay_within_s)
    server = _health_server(buyers, settings)
    started = time.monotonic()
    buying = asyncio.create_task(
        buyers.run(orders=options.orders, buyers=options.buyers, rate=options.pace), name="buyers"
    )
    serving = asyncio.create_task(server.serve(), name="health")
    await asyncio.wait([buying, serving], return_when=asyncio.FIRST_COMPLETED)
    is_over = buying.done()
    buying.cancel()  # after a signal
    server.should_exit = True
    await serving
    if is_over:
        await buying
        seconds = round(time.monotonic() - started, 1)
        print(json.dumps({**buyers.counts, "seconds": seconds, "surprises": buyers.surprises}), flush=True)
    await calls.close()
    return 1 if buyers.surprises else 0


def _health_server(buyers: Buyers, settings: Settings) -> uvicorn.Server:
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        return {"service": "buyers", "counts": buyers.counts, "surprises": buyers.surprises}

    address = settings.address("buyers")
    return uvicorn.Server(
        uvicorn.Config(app, host=address.host, port=address.port, lifespan="off", log_level="warning")
    )


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    sys.exit(asyncio.run(_run(_options(), Settings.load())))
