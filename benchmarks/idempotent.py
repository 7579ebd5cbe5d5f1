"""Sends of idempotent producers beside plain ones, to one broker; and what 10,000 of them take.

    python -m benchmarks idempotent [--rounds 5] [--seconds 4]
    python -m benchmarks idempotent --table [--producers 10000] [--queues 16]

Three kinds alternate within a round, on the same broker: plain sends; sends with as many bytes as those of
idempotent producers, under names that mean nothing; and idempotent ones, each connection a producer. Ratios
are of the processor time of the broker for each message, and of messages a second: of the least time and the
highest rate of all rounds. With `--table`: memory of the table, the time of its snapshot, and of a start from
it.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from benchmarks._broker_loadgen import Measured, build
from benchmarks._broker_peers import OURS, PYTHON_ALONE, Launcher, RunningPeer
from kourou.protocol.codes import RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.producers import OpenProducerRequestHeader, OpenProducerResponseHeader
from kourou.protocol.producer_sequence import ProducerOpening, identity_of, parse_sequence
from kourou.store.producers.producer_snapshot import ProducerSnapshot, restore_producers
from kourou.store.producers.producer_table import ProducerTable
from kourou.transport.client import RemotingClient

LOADS = ((1, 1, 1), (8, 32, 1), (16, 64, 1), (8, 8, 32))
"""Connections, requests in flight on each, messages in a request."""
_PLAIN, _INERT, _IDEMPOTENT = KINDS = ("plain", "same bytes", "idempotent")


async def _open(address: str, count: int) -> list[str]:
    """The identities of so many new producers."""
    client, identities = RemotingClient(), []
    try:
        for _ in range(count):
            header = OpenProducerRequestHeader(producer_group="loadgen")
            command = RemotingCommand.request(RequestCode.OPEN_KOUROU_PRODUCER, header)
            answer = await client.call(address, command, 5_000)
            assert answer.code == 0, answer.remark
            opened = answer.header(OpenProducerResponseHeader)
            identities.append(identity_of(opened.kourou_producer_id, opened.kourou_epoch))
    finally:
        await client.stop()
    return identities


def measure(peer: RunningPeer, kind: str, load: tuple[int, int, int], seconds: float) -> Measured:
    """One load of one kind."""
    connections, window, batch = load
    options = ["-t", "Once", "-C", "-c", connections, "-w", window, "-d", seconds, "-b", 1024]
    if batch > 1:
        options += ["-K", batch]
    if kind != _PLAIN:
        options += ["-I", ",".join(asyncio.run(_open(peer.address, connections)))]
    if kind == _INERT:
        options += ["-U"]
    return peer.load.run("send", *options)


def report(results: dict[tuple[str, tuple[int, int, int], str], list[Measured]]) -> str:
    """A table: the best of all rounds; and of plain sends, what the other two reach."""
    lines = [
        "| broker | load | plain/s | same bytes | idempotent | plain µs | same bytes | idempotent |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, load in dict.fromkeys((name, load) for name, load, _ in results):
        of_kinds = [results[name, load, kind] for kind in KINDS]
        rates = [max(each.messages_per_s for each in found) for found in of_kinds]
        times = [min(each.cpu_us for each in found) for found in of_kinds]
        connections, window, batch = load
        words = f"{connections}×{window}" + (f", batches of {batch}" if batch > 1 else "")
        troubles = {trouble for found in of_kinds for each in found for trouble in each.troubles}
        cells = [f"{rates[0]:,.0f}", *(f"{rate:,.0f} ({rate / rates[0]:.2f})" for rate in rates[1:])]
        cells += [f"{times[0]:.2f}", *(f"{time_us:.2f} ({times[0] / time_us:.2f})" for time_us in times[1:])]
        lines.append(f"| {name} | {words} | {' | '.join(cells)} |" + "; ".join(sorted(troubles)))
    return "\n".join(lines)


def report_table(producers: int, queues: int) -> str:
    """Memory and times of a table of that size, every window full."""
    gc.collect()
    before = _resident_bytes()
    table = ProducerTable()
    for number in range(producers):
        producer_id = f"{number:016x}"
        table.note_opened(ProducerOpening(producer_id, 0, False), 1)
        for queue_id in range(queues):
            for sequence in (0, 700, 1_400):
                sent = parse_sequence(f"{producer_id}:0:{sequence}")
                table.note_stored(sent, "orders", queue_id, number * 1_000 + sequence, 1)
    taken = _resident_bytes() - before
    begin = time.perf_counter()
    snapshot = ProducerSnapshot(table, 0)
    copied = time.perf_counter()
    raw = snapshot.encode()
    encoded = time.perf_counter()
    restore_producers(ProducerTable(), raw)
    restored = time.perf_counter()
    return (
        f"{producers:,} producers in {queues} queues: {taken / 1e6:.1f} MB; a snapshot stops the broker for "
        f"{(copied - begin) * 1e3:.0f} ms, is encoded in a thread in {(encoded - copied) * 1e3:.0f} ms, has "
        f"{len(raw) / 1e6:.1f} MB, and is restored in {(restored - encoded) * 1e3:.0f} ms"
    )


def _resident_bytes() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--producers", type=int, default=10_000)
    parser.add_argument("--queues", type=int, default=16)
    options = parser.parse_args()
    if options.table:
        print(report_table(options.producers, options.queues))
        return
    results: dict[tuple[str, tuple[int, int, int], str], list[Measured]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        launcher = Launcher(Path(folder), build(Path(folder)))
        for name in (OURS, PYTHON_ALONE):
            with launcher.running([name], "async") as (peer,):
                for _ in range(options.rounds):
                    for load in LOADS:
                        for kind in KINDS:
                            results[name, load, kind].append(measure(peer, kind, load, options.seconds))
    print(report(results))


if __name__ == "__main__":
    main()
