"""Soak of the shop (examples/shop): orders without end while its processes die, for long.

    python -m benchmarks soak_shop                an hour
    python -m benchmarks soak_shop --minutes 5 --seed 7

Services, relay, broker and database are killed and stopped at random, and once at each kill point. Fails if
an invariant is violated, at any time, or an order is left between states at the end. Result: printed, and
soak-shop-DATE-MACHINE.md in benchmarks/results. Needs PostgreSQL (`make shop` sets it up).
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import os
import random
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "shop"))

from benchmarks._broker_report import cpu_model, machine, machine_name  # noqa: E402
from webshop.running.shop import ShopOptions  # noqa: E402
from webshop.running.survival import Survival, survive  # noqa: E402

RESULTS = Path(__file__).parent / "results"
BUYERS = 50
RATE = 10.0
PAUSE_S = 5.0
PAY_WITHIN_S = 60.0


def soak(minutes: float, seed: int, folder: Path) -> Survival:
    """Run a shop with faults."""
    options = ShopOptions(
        folder=folder,
        orders=0,
        buyers=BUYERS,
        rate=RATE,
        seed=seed,
        pay_within_s=PAY_WITHIN_S,
        is_durable=False,
    )
    return asyncio.run(survive(options, pause_s=PAUSE_S, minutes=minutes, rest_within_s=3 * PAY_WITHIN_S))


def main(words: list[str] | None = None) -> int:
    """Run and report; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (60)")
    parser.add_argument("--seed", type=int, default=random.randrange(2**31), help="of orders and faults")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="where the result goes")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="kourou-shop-") as name:
        Path(name).chmod(0o755)  # PostgreSQL may run as another user
        survival = soak(options.minutes, options.seed, Path(name) / "shop")
    verdict = "Every order was paid, or cancelled with everything undone; no invariant was ever violated."
    wrong = [finding.text for finding in survival.findings]
    wrong += [f"{topic}: {count} messages were not handled" for topic, count in survival.failed.items()]
    if wrong:
        verdict = "\n".join(["WRONG:", "", *(f"- {text}" for text in wrong)])
    text = "\n".join(
        [
            "# Soak of the shop",
            "",
            f"`python -m benchmarks soak_shop --minutes {options.minutes:g} --seed {options.seed}`",
            "",
            f"{machine()}.",
            "",
            *(f"{line}\n" for line in str(survival).splitlines()),
            verdict,
            "",
        ]
    )
    print(text)
    options.results.mkdir(parents=True, exist_ok=True)
    name = machine_name(cpu_model(), os.cpu_count() or 1)
    (options.results / f"soak-shop-{datetime.date.today()}-{name}.md").write_text(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
