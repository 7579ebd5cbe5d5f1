"""Signed sends to a broker with access control, beside unsigned ones to a broker without it.

    python -m benchmarks access [--pairs 200]                        one process, no sockets
    python -m benchmarks access --sockets [--rounds 5] [--seconds 2] brokers of their own, with and without
                                                                     the kernel
    python -m benchmarks access --apache 4.9.7 5.5.0                 the same of Apache's brokers

All at 8×32 with bodies of 1 KiB, by an account that may send to one topic. Two brokers alternate, one open
and one with accounts; compared is what ran next to each other. Without sockets a pair is one commit cycle of
each, and counted is the processor time of the thread that does all of this; with sockets that of the process.
With sockets a third load is signed as well, at the open broker, which ignores it: signing keeps the generator
busy, and that slows down a broker on the other half of the same core.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks._broker_loadgen import Loadgen, build
from benchmarks._broker_peers import OURS, PYTHON_ALONE, WITHOUT_KERNEL
from kourou.protocol.frame import encode_frame
from kourou.protocol.header_json import encode_json_head
from kourou.protocol.signature import SigningKeys

if TYPE_CHECKING:
    from tests.integration.kernel.kernel_kit import FedBroker
    from tests.interop.kit.process import ServerProcess

CONNECTIONS, WINDOW, BODY_BYTES = 8, 32, 1024
TOPIC = "Sends"
_WARM_UP_PAIRS = 20
_FIRST_SEND_S = 120
# Large enough that few files are made meanwhile.
_FILES = {
    "mapped_file_size_commit_log": 256 * 1024 * 1024,
    "max_hash_slot_num": 500_000,
    "max_index_num": 2_000_000,
}


# -- without sockets ----------------------------------------------------------------------------------


def _frames(connection: int, keys: SigningKeys | None) -> bytes:
    """What one connection has in flight, with the fields of a Java client."""
    found = []
    for number in range(WINDOW):
        uniq_key = f"7F000001{connection:04X}{number:020X}"
        fields = {
            **{"a": "producers", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(number % 4), "f": "0"},
            **{"g": str(1_700_000_000_000 + number), "h": "0", "j": "0", "k": "false", "m": "false"},
            "i": f"KEYS\x01k{number}\x02UNIQ_KEY\x01{uniq_key}\x02WAIT\x01true\x02TAGS\x01TagA\x02",
            "n": "broker-a",
        }
        body = bytes([97 + number % 26]) * BODY_BYTES
        if keys is not None:
            keys.sign(fields, body)
        found.append(encode_frame(0, encode_json_head(310, 0, 501, number, 0, None, fields), body))
    return b"".join(found)


class _Fed:
    """A broker in this process, and what its connections send again and again."""

    def __init__(self, broker: FedBroker, keys: SigningKeys | None) -> None:
        self._broker = broker
        self._peers = [broker.connect() for _ in range(CONNECTIONS)]
        self._reads = [_frames(number, keys) for number in range(CONNECTIONS)]

    def cycle_us(self) -> float:
        """Processor time of a message, over one commit cycle."""
        begin = time.thread_time()
        for (connection, _), data in zip(self._peers, self._reads, strict=True):
            connection.data_received(data)
        self._broker.services.cycles.close()
        took = time.thread_time() - begin
        for _, transport in self._peers:
            assert b"".join(transport.written).count(b'"code":0') == WINDOW
            transport.written.clear()
        return took * 1e6 / (CONNECTIONS * WINDOW)


async def _without_sockets(pairs: int, has_kernel: bool, folder: Path) -> tuple[list[float], list[float]]:
    """Microseconds of unsigned and of signed messages, cycle by cycle."""
    from tests.integration.kernel.kernel_kit import fed_broker
    from tests.interop.kit.access_accounts import WORKER, plain_acl_yml
    from tests.interop.kit.ports import free_port

    home = folder / "home"
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text(plain_acl_yml())
    (home / "conf" / "plain_acl.yml").chmod(0o600)
    account = SigningKeys(WORKER.access_key, WORKER.secret_key)
    guarded: dict[str, Any] = {"acl_enable": True, "rocketmq_home": str(home)}
    async with AsyncExitStack() as stack:
        fed = []
        for name, keys, settings in (("open", None, {}), ("guarded", account, guarded)):
            broker = await stack.enter_async_context(
                fed_broker(
                    folder / name,
                    host="127.0.0.1",
                    port=free_port(),
                    kernel=has_kernel,
                    **settings,
                    **_FILES,
                )
            )
            fed.append(_Fed(broker, keys))
        found: tuple[list[float], list[float]] = [], []
        for pair in range(_WARM_UP_PAIRS + pairs):
            # The one that comes second finds other things in the caches: they take turns.
            for index in (0, 1) if pair % 2 else (1, 0):
                took = fed[index].cycle_us()
                if pair >= _WARM_UP_PAIRS:
                    found[index].append(took)
            await asyncio.sleep(0)
        return found


def report_without_sockets(pairs: int) -> str:
    """A table: with and without the kernel."""
    lines = [_HEAD]
    for name, has_kernel in ((OURS, True), (PYTHON_ALONE, False)):
        with tempfile.TemporaryDirectory(dir=_memory()) as folder:
            lines.append(_row(name, *asyncio.run(_without_sockets(pairs, has_kernel, Path(folder)))))
    return "\n".join(lines)


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


_HEAD = (
    "| broker | unsigned µs | signed, ignored µs | signed µs | difference to unsigned, of neighbours | ratio "
    "| load average |\n"
    "|---|---|---|---|---|---|---|"
)


def _row(name: str, unsigned: Sequence[float], signed: Sequence[float], ignored: Sequence[float] = ()) -> str:
    """Least and median of each; the middle half of the differences of what ran next to each other."""
    differences = [own - other for own, other in zip(signed, unsigned, strict=True)]
    ratios = [own / other for own, other in zip(signed, unsigned, strict=True)]
    low, middle, high = statistics.quantiles(differences, n=4) if len(differences) > 1 else differences * 3
    return (
        f"| {name} | {_times(unsigned)} | {_times(ignored)} | {_times(signed)} "
        f"| {middle:+.2f} ({low:+.2f} to {high:+.2f}) | {statistics.median(ratios):.2f} "
        f"| {os.getloadavg()[0]:.1f} |"
    )


def _times(values: Sequence[float]) -> str:
    return f"{min(values):.2f}, median {statistics.median(values):.2f}" if values else "–"


# -- with sockets -------------------------------------------------------------------------------------


class _Server:
    """A broker in a process of its own, and the load for it."""

    def __init__(self, server: ServerProcess, program: Path, keys: SigningKeys | None) -> None:
        self._load = Loadgen(program, server.port, server.pid)
        self._words: list[object] = ["-t", TOPIC]
        if keys is not None:
            self._words += ["-A", f"{keys.access_key}:{keys.secret_key}"]

    def wait_first_send(self) -> None:
        """Return when a message was accepted."""
        deadline = time.monotonic() + _FIRST_SEND_S
        while not self._load.try_send_one(*self._words):
            if time.monotonic() > deadline:
                raise TimeoutError("a broker takes no messages")
            time.sleep(0.1)

    def measure(self, seconds: float) -> float:
        """Processor time of a message."""
        options = ["-c", CONNECTIONS, "-w", WINDOW, "-d", seconds, "-b", BODY_BYTES]
        measured = self._load.run("send", *self._words, *options)
        if measured.troubles:
            raise RuntimeError("; ".join(measured.troubles))
        return measured.cpu_us


Launch = Callable[[Path, str], "tuple[ServerProcess, ServerProcess, str]"]
"""An open broker, one with accounts, and the rules of these."""


def _ours(settings: dict[str, str]) -> Launch:
    def launch(folder: Path, namesrv: str) -> tuple[ServerProcess, ServerProcess, str]:
        from tests.interop.kit.access_servers import OURS as ACCOUNTS_OF_OURS
        from tests.interop.kit.access_servers import PLAIN, launch_with_accounts
        from tests.interop.kit.kourou_broker import launch_kourou_broker

        guarded = launch_with_accounts(ACCOUNTS_OF_OURS, PLAIN, folder, [namesrv], **settings)
        return launch_kourou_broker(folder, [namesrv], settings), guarded, PLAIN

    return launch


def _apache(version: str) -> Launch:
    def launch(folder: Path, namesrv: str) -> tuple[ServerProcess, ServerProcess, str]:
        from tests.interop.kit import apache
        from tests.interop.kit.access_servers import AUTH, PLAIN, launch_with_accounts

        rules = PLAIN if version.startswith("4") else AUTH
        guarded = launch_with_accounts(version, rules, folder, [namesrv])
        return apache.start_broker(version, folder, [namesrv], wait=False), guarded, rules

    return launch


def measure_server(launch: Launch, program: Path, rounds: int, seconds: float) -> list[list[float]]:
    """Microseconds of messages, round by round: unsigned, signed, and signed at the open broker."""
    from tests.interop.kit.access_accounts import WORKER
    from tests.interop.kit.access_servers import create_accounts
    from tests.interop.kit.kourou_namesrv import launch_kourou_namesrv

    account = SigningKeys(WORKER.access_key, WORKER.secret_key)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        namesrv = stack.enter_context(launch_kourou_namesrv(folder)).wait_ready().address
        unguarded, guarded, rules = launch(folder, namesrv)
        for server in (unguarded, guarded):
            stack.callback(server.kill)
            server.wait_ready()
        create_accounts(guarded.address, rules)
        peers = [
            _Server(unguarded, program, None),
            _Server(guarded, program, account),
            _Server(unguarded, program, account),
        ]
        found: list[list[float]] = [[], [], []]
        for peer in peers:
            peer.wait_first_send()
            peer.measure(seconds)  # warm
        for _ in range(rounds):
            for peer, values in zip(peers, found, strict=True):
                values.append(peer.measure(seconds))
        return found


def report_with_sockets(pairs: Sequence[tuple[str, Launch]], rounds: int, seconds: float) -> None:
    """Print a table, with a line for each broker as it is measured."""
    print(_HEAD)
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        for name, launch in pairs:
            print(_row(name, *measure_server(launch, program, rounds, seconds)), flush=True)


def forms() -> str:
    """What hashing alone costs with each form of SHA-1 that this processor has, at the size of a send."""
    from kourou.store.kernel import choose_kernel

    kernel, text, lines = choose_kernel().kernel, bytes(1200), []
    for form, name in enumerate(("portable", "eight lanes", "instructions")):
        if kernel is None or kernel.signatures(b"key", [], form) is None:
            continue
        times = []
        for _ in range(200):
            begin = time.thread_time()
            kernel.signatures(b"key", [text] * 8, form)
            times.append((time.thread_time() - begin) * 1e6 / 8)
        lines.append(f"{name} {min(times):.2f} µs (median {statistics.median(times):.2f})")
    return "HMAC-SHA1 of 1,200 bytes, each of eight: " + ", ".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--sockets", action="store_true")
    parser.add_argument("--apache", nargs="*", default=[], metavar="VERSION")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    brokers: list[tuple[str, Launch]] = []
    if options.sockets:
        brokers += [(OURS, _ours({})), (PYTHON_ALONE, _ours(dict(WITHOUT_KERNEL)))]
    brokers += [(f"Apache {version}", _apache(version)) for version in options.apache]
    if brokers:
        report_with_sockets(brokers, options.rounds, options.seconds)
    else:
        print(report_without_sockets(options.pairs))
        print(forms())


if __name__ == "__main__":
    main()
