"""How long sends wait when the master changes: `python -m benchmarks failover_time`.

One set of three brokers in sync mode, an etcd of three members, the workload of tests/failover. The master is
killed with SIGKILL again and again, each time when all members are in sync, and started again after the
fail-over; then it hands over as often as asked. A producer of its own sends one message after the other: the
time is that from the kill, or from the request to hand over, to the first send that another master has
accepted. At the end the history is checked: nothing acknowledged is lost, never two masters that acknowledge.
Result: printed, and failover-time-DATE-MACHINE.md in benchmarks/results.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import logging
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks._broker_report import cpu_model, machine, machine_name
from kourou import AsyncProducer, Message
from kourou.protocol.message_id import parse_offset_msg_id

if TYPE_CHECKING:
    from tests.failover.set_kit import BrokerNode, BrokerSet

RESULTS = Path(__file__).parent / "results"
TOPIC = "Probe"
WAIT_S = 60.0


@dataclass
class Probe:
    """Sends one after the other; the time and the broker of the last one that was accepted."""

    producer: AsyncProducer
    address: str | None = None
    at_s: float = 0.0
    failures: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            try:
                result = await self.producer.send(Message(TOPIC, b"probe"))
            except Exception as error:
                self.failures.append(str(error))
                continue
            self.at_s = time.monotonic()
            self.address = parse_offset_msg_id(result.offset_msg_id).address
            await asyncio.sleep(0.002)

    async def wait_elsewhere(self, master: BrokerNode) -> float:
        """When a broker other than this one has accepted a send."""
        async with asyncio.timeout(WAIT_S):
            while self.address == master.address:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        return self.at_s


@contextlib.asynccontextmanager
async def probing(brokers: BrokerSet) -> AsyncIterator[Probe]:
    """A probe that works inside of the block."""
    async with AsyncProducer("probe", namesrv=brokers.namesrv_address, send_timeout_ms=30_000) as producer:
        probe = Probe(producer)
        task = asyncio.create_task(probe.run())
        try:
            yield probe
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def measure(
    folder: Path, *, kills: int, handovers: int, lease_s: int, seed: int
) -> tuple[list[float], list[float], list[str], str]:
    """Times after kills and after handovers, in seconds; sends that failed; what the checker says."""
    from tests.failover.network import open_network
    from tests.failover.reigns import noted_reigns
    from tests.failover.set_kit import BrokerSet
    from tests.failover.workload import Workload, WorkloadOptions

    killed, handed_over = [], []
    keys = {"transactionTimeOut": 1000, "transactionCheckInterval": 500, "transactionCheckMax": 10_000}
    async with BrokerSet(
        folder / "set", open_network(), etcd_members=3, lease_s=lease_s, keys=keys
    ) as brokers:
        options = WorkloadOptions(seed=seed, rate=5.0, send_timeout_ms=30_000)
        async with (
            Workload(brokers.namesrv_address, folder / "history.jsonl", options) as work,
            probing(brokers) as probe,
        ):
            async with noted_reigns(brokers.etcd, brokers.keys, work.history):
                for number in range(kills):
                    master = await ready(brokers, probe)
                    began_s = time.monotonic()
                    master.kill()
                    killed.append(await probe.wait_elsewhere(master) - began_s)
                    master.start()
                    if number % 20 == 19:
                        print(f"{number + 1} kills: {spread(killed)}", flush=True)
                for _ in range(handovers):
                    master = await ready(brokers, probe)
                    target = next(each for each in brokers.members if each is not master)
                    began_s = time.monotonic()
                    if not await brokers.hand_over(target):
                        raise RuntimeError(f"{master} does not hand over")
                    handed_over.append(await probe.wait_elsewhere(master) - began_s)
                await ready(brokers, probe)
            report = await work.finish()
    if report.findings:
        raise RuntimeError(report.text())
    return killed, handed_over, probe.failures, report.text()


async def ready(brokers: BrokerSet, probe: Probe) -> BrokerNode:
    """The master, once all members are in sync and it has accepted a send."""
    master = await brokers.wait_in_sync()
    async with asyncio.timeout(WAIT_S):
        while probe.address != master.address:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return master


def spread(times: Sequence[float]) -> str:
    """Median and worst."""
    if not times:
        return "none"
    return f"median {statistics.median(times):.2f} s, worst {max(times):.2f} s"


def main(words: list[str] | None = None) -> int:
    """Measure and report; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--handovers", type=int, default=50)
    parser.add_argument("--lease", type=int, default=2, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="where the result goes")
    options = parser.parse_args(words)
    options.results.mkdir(parents=True, exist_ok=True)
    logging.getLogger("kourou").addHandler(logging.NullHandler())  # what clients say of faults
    with tempfile.TemporaryDirectory(prefix="kourou-failover-", ignore_cleanup_errors=True) as folder:
        killed, handed_over, failures, checked = asyncio.run(
            measure(
                Path(folder),
                kills=options.kills,
                handovers=options.handovers,
                lease_s=options.lease,
                seed=options.seed,
            )
        )
    command = (
        f"python -m benchmarks failover_time --kills {options.kills} --handovers {options.handovers} "
        f"--lease {options.lease} --seed {options.seed}"
    )
    text = "\n".join(
        [
            "# From one master to the next",
            "",
            f"`{command}`",
            "",
            f"{machine()}. Three brokers in sync mode, lease {options.lease} s, three members of etcd.",
            "",
            "| | times | to the first send that the next master accepts |",
            "|---|---|---|",
            f"| kill -9 of the master | {len(killed)} | {spread(killed)} |",
            f"| handover | {len(handed_over)} | {spread(handed_over)} |",
            "",
            f"{len(failures)} sends of the probe failed. The workload beside it: no finding.",
            "",
            "    " + checked.replace("\n", "\n    "),
            "",
        ]
    )
    print(text)
    place = machine_name(cpu_model(), os.cpu_count() or 1)
    (options.results / f"failover-time-{datetime.date.today()}-{place}.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
