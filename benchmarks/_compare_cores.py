"""A row of `compare` about several cores: two brokers of ours against one of Apache's, as many queues in all.

One process of ours is one core, one of Apache's is all of them: with two brokers behind one name server, ours
has two cores as well. Two load generators, one for each broker of ours; at Apache's both go to the same one.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks._broker_loadgen import Loadgen, Measured
from benchmarks._broker_peers import (
    FIRST_SEND_TIMEOUT_S,
    POLL_S,
    PYTHON_ALONE,
    WITHOUT_KERNEL,
    Launcher,
    PeerError,
    is_ours,
    python_of,
)
from benchmarks._compare_alone import SENT_PER_S, START_S
from benchmarks._compare_rows import QUEUES, Outcome, Reading, Scale
from kourou.standalone.options import Replica

BROKERS = 2
# `kourou standalone` gives its brokers every tenth port.
PORT_STEP = 10


@dataclass(frozen=True)
class CoresRow:
    """Sends to all that one machine of two cores can run."""

    name: str = "send, async flush, 2 brokers of ours beside 1 of Apache's, 2×(4×32)"
    is_quick: bool = False

    def rounds(self, scale: Scale) -> int:
        """One less than others: each starts its brokers."""
        return max(1, scale.rounds - 1)

    def cost_s(self, scale: Scale) -> float:
        """A start, warming up, the measured time."""
        return START_S + scale.fill / SENT_PER_S + scale.warm_up_s + scale.seconds

    def run_alone(self, name: str, launcher: Launcher, scale: Scale) -> Outcome:
        """Start, warm up, both loads at once."""
        with _servers(name, launcher) as loads:
            count = scale.fill // len(loads)
            _at_once(loads, "-C", "-N", count, timeout_s=60 + 20 * scale.fill / SENT_PER_S)
            times = ("-d", scale.seconds, "-W", scale.warm_up_s)
            return together(self.name, _at_once(loads, *times, timeout_s=60 + scale.seconds))


def together(name: str, found: list[Measured]) -> Outcome:
    """What several loads did at once; each of them has seen the cost of all servers."""
    rate = sum(each.messages_per_s for each in found)
    cores = statistics.mean(float(each.raw["server_cores"]) for each in found)
    # The other loads are not what disturbs: they belong to the measurement.
    clients = sum(float(each.raw["client_cores"]) for each in found)
    others = [max(0.0, each.other_cores - clients + float(each.raw["client_cores"])) for each in found]
    return Outcome(
        (
            Reading(name, "rate", rate),
            Reading(f"{name}: server CPU a message", "cpu", cores * 1e6 / max(1.0, rate)),
        ),
        tuple(others),
        tuple(trouble for each in found for trouble in each.troubles),
        {"loads": [each.raw for each in found]},
    )


def _at_once(loads: list[Loadgen], *times: object, timeout_s: float) -> list[Measured]:
    def run(index: int) -> Measured:
        where = ("-t", f"Cores-{index}", "-q", QUEUES // len(loads), "-c", 4, "-w", 32)
        return loads[index].run("send", *where, *times, timeout_s=timeout_s)

    with ThreadPoolExecutor(len(loads)) as pool:
        return list(pool.map(run, range(len(loads))))


@contextmanager
def _servers(name: str, launcher: Launcher) -> Iterator[list[Loadgen]]:
    """Loads for each half of the machine."""
    if is_ours(name):
        settings = WITHOUT_KERNEL if name == PYTHON_ALONE else {}
        with _standalone(launcher, python_of(name), settings) as loads:
            yield loads
        return
    with launcher.place(name) as place:
        yield [place.start().load] * BROKERS


@contextmanager
def _standalone(launcher: Launcher, python: str, settings: dict[str, str]) -> Iterator[list[Loadgen]]:
    from tests.interop.kit.ports import free_broker_port, free_port
    from tests.interop.kit.process import ServerProcess

    with tempfile.TemporaryDirectory(dir=launcher.folder) as text:
        first = free_broker_port()
        ports = {"--namesrv-port": free_port(), "--broker-port": first, "--brokers": BROKERS}
        words = [str(word) for pair in ports.items() for word in pair]
        command = [python, "-m", "kourou.cli.main", "standalone", "--store", f"{text}/store", *words]
        for broker in range(BROKERS):
            _write_settings(Path(text) / "store" / f"{Replica(broker).label}.properties", settings)
        log_path = Path(text) / "console.log"
        with ServerProcess("standalone", command, port=first, log_path=log_path) as server:
            server.wait_ready()
            pids = (server.pid, *_children(server.pid))
            loads = [Loadgen(launcher.program, first + PORT_STEP * index, *pids) for index in range(BROKERS)]
            for load in loads:
                _wait_first_send(load, log_path)
            yield loads


def _write_settings(path: Path, settings: dict[str, str]) -> None:
    """A file of keys."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


def _wait_first_send(load: Loadgen, log_path: Path) -> None:
    deadline = time.monotonic() + FIRST_SEND_TIMEOUT_S
    while not load.try_send_one():
        if time.monotonic() > deadline:
            raise PeerError(f"kourou standalone does not take messages:\n{log_path.read_text()[-2000:]}")
        time.sleep(POLL_S)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
