"""POP beside Apache's: rate and processor time of popped and acknowledged messages, memory of what is in
flight, and how fast messages come again whose invisible time is over.

    python -m benchmarks pop [--peers apache-5.5.0] [--rounds 3] [--seconds 3] [--only cost,flight,revive]
                             [--in-flight 1000000] [--revived 1000000]

Peers of Apache's are of RocketMQ 5: RocketMQ 4 has no POP. All brokers run at once, with the store settings
of the other comparisons; those that are not measured are idle. A message counts when its acknowledgement is
answered. Each round of a row has a consumer group of its own, which begins with the oldest message.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from benchmarks._broker_loadgen import LoadgenError, Measured, build
from benchmarks._broker_peers import Launcher, RunningPeer, peer_names
from kourou.admin import Admin
from kourou.errors import ResponseError
from kourou.protocol.codes import RequestCode
from kourou.protocol.headers.offsets import GetMaxOffsetRequestHeader, GetMaxOffsetResponseHeader
from kourou.protocol.pop.retry_topics import pop_retry_topic

BODY_BYTES: Final = 1024
SMALL_BODY_BYTES: Final = 64
QUEUES: Final = 8
TOPIC: Final = "Popped"
ROWS: Final = (
    ("pop and ack of 32, 1×1", ("-c", 1, "-w", 1)),
    ("pop and ack of 32, 4×8", ("-c", 4, "-w", 8)),
    ("pop and ack of 32 by one request, 1×1", ("-c", 1, "-w", 1, "-J")),
    ("pop and ack of 32 by one request, 4×8", ("-c", 4, "-w", 8, "-J")),
    ("pop and ack of 1, 4×8", ("-c", 4, "-w", 8, "-n", 1)),
)
PARTS: Final = ("cost", "flight", "revive")
REVIVED: Final = "Revived"
INVISIBLE_S: Final = 40
_LONG_MS: Final = 3_600_000
_POP_S: Final = 1.0
_SETTLE_S: Final = 2.0
_LONGEST_REVIVE_S: Final = 240
_SENDS: Final = ("-t", "Beside", "-q", 1, "-C", "-c", 1, "-b", 64, "-r", 100, "-d", 600, "-W", 0, "-i", 1)
"""Few enough to cost nothing beside the rest."""
_POLL_S: Final = 0.2


def fill(peer: RunningPeer, topic: str, count: int, body_bytes: int) -> None:
    """Store so many messages."""
    words = ["-t", topic, "-q", QUEUES, "-C", "-c", 4, "-w", 64, "-b", body_bytes, "-N", count, "-d", 300]
    peer.load.run("send", *words)


def pop(peer: RunningPeer, group: str, topic: str, *words: object, seconds: float = 3.0) -> Measured:
    """Pop and acknowledge for some time."""
    return peer.load.run("pop", "-t", topic, "-q", QUEUES, "-g", group, "-d", seconds, *words)


# -- cost ---------------------------------------------------------------------------------------------


def measure_cost(peers: Sequence[RunningPeer], rounds: int, seconds: float, filled: int) -> list[str]:
    """A table of rates and processor times."""
    for peer in peers:
        fill(peer, TOPIC, filled, BODY_BYTES)
    names = [peer.name for peer in peers]
    columns = [f"{name}, messages/s (µs)" for name in names] + [f"rate : {name}" for name in names[1:]]
    lines = [
        _row(["", *columns, *(f"µs : {name}" for name in names[1:])]),
        _row(["---"] * (3 * len(names) - 1)),
    ]
    for number, (row, words) in enumerate(ROWS):
        found: list[list[Measured]] = [[] for _ in peers]
        for round_number in range(rounds):
            order = list(enumerate(peers))
            for index, peer in order if round_number % 2 else reversed(order):
                group = f"cost-{number}-{round_number}"
                found[index].append(pop(peer, group, TOPIC, *words, seconds=seconds))
        lines.append(_row([row, *_cells(found)]))
        print(lines[-1], flush=True)
    return lines


def _cells(found: Sequence[Sequence[Measured]]) -> list[str]:
    rates = [statistics.median(each.messages_per_s for each in measured) for measured in found]
    costs = [statistics.median(each.cpu_us for each in measured) for measured in found]
    cells = [f"{rate:,.0f} ({cost:.1f})" for rate, cost in zip(rates, costs, strict=True)]
    cells += [f"{rates[0] / rate:.2f}" for rate in rates[1:]]
    return cells + [f"{costs[0] / cost:.2f}" for cost in costs[1:]]


# -- in flight ----------------------------------------------------------------------------------------


def measure_flight(peers: Sequence[RunningPeer], count: int) -> list[str]:
    """Memory of messages that are popped and not acknowledged: 32 of a pop, and one."""
    lines = [
        _row(["in flight", *(f"{peer.name}, MB more" for peer in peers)]),
        _row(["---"] * (len(peers) + 1)),
    ]
    for pop_max in (32, 1):
        topic, cells = f"Flight{pop_max}", []
        for peer in peers:
            fill(peer, topic, count, SMALL_BODY_BYTES)
            before = peer.anonymous_mb
            reached = _pop_all(peer, f"flight-{pop_max}", topic, count, pop_max)
            time.sleep(_SETTLE_S)
            cells.append(f"{peer.anonymous_mb - before:,.0f} ({reached:,} messages)")
        lines.append(_row([f"pops of {pop_max}", *cells]))
        print(lines[-1], flush=True)
    return lines


def _pop_all(
    peer: RunningPeer, group: str, topic: str, count: int, pop_max: int, invisible_ms: int = _LONG_MS
) -> int:
    """Pop messages without an ack until there are no more."""
    reached = 0
    while reached < count:
        words = ["-c", 4, "-w", 8, "-n", pop_max, "-X", "-v", invisible_ms, "-W", 0]
        try:
            found = int(pop(peer, group, topic, *words, seconds=_POP_S).raw["messages"])
        except LoadgenError:  # nothing was left
            break
        reached += found
    return reached


# -- revive -------------------------------------------------------------------------------------------


def measure_revive(peers: Sequence[RunningPeer], count: int, folder: Path) -> list[str]:
    """How long after the end of their invisible time messages are in the retry topic, all of them, and how
    long sends to another topic wait meanwhile."""
    slowest = "slowest send meanwhile, ms"
    lines = _head(["broker", "messages", "popped within s", "last one late by s", "µs of a message", slowest])
    for peer in peers:
        fill(peer, REVIVED, count, SMALL_BODY_BYTES)
        began = time.monotonic()
        popped = _pop_all(peer, REVIVED, REVIVED, count, 32, INVISIBLE_S * 1000)
        due, cpu_s = time.monotonic() + INVISIBLE_S, peer.cpu_s
        log_path = folder / f"sends-{peer.name.replace(' ', '-')}.log"
        sends = peer.load.start("send", *_SENDS, log_path=log_path)
        revived = asyncio.run(_wait_revived(peer, popped, due + _LONGEST_REVIVE_S))
        late_s = time.monotonic() - due
        worst_ms = max((interval.worst_ack_ms for interval in sends.stop()), default=0.0)
        missing = "" if revived >= popped else f", {popped - revived:,} of them not revived"
        cost_us = (peer.cpu_s - cpu_s) / max(1, revived) * 1e6
        took_s = due - INVISIBLE_S - began
        lines.append(
            _row(
                [
                    peer.name,
                    f"{popped:,}{missing}",
                    f"{took_s:.1f}",
                    f"{late_s:.1f}",
                    f"{cost_us:.1f}",
                    f"{worst_ms:.0f}",
                ]
            )
        )
        print(lines[-1], flush=True)
    return lines


async def _wait_revived(peer: RunningPeer, count: int, deadline: float) -> int:
    """How many messages the retry topic holds, once it holds so many or the time is over."""
    header = GetMaxOffsetRequestHeader(topic=pop_retry_topic(REVIVED, REVIVED, is_v2=False), queue_id=0)
    reached = 0
    async with Admin(namesrv=peer.namesrv) as admin:
        while reached < count and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_S)
            with suppress(ResponseError):  # there is no such topic before the first message
                answer = await admin.call(peer.address, RequestCode.GET_MAX_OFFSET, header)
                reached = answer.header(GetMaxOffsetResponseHeader).queue_offset
    return reached


def _head(names: Sequence[str]) -> list[str]:
    return [_row(names), _row(["---"] * len(names))]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--peers", default="apache-5.5.0", help="separated by commas; none: ours alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--filled", type=int, default=400_000, help="messages that the rows of cost read")
    parser.add_argument("--in-flight", type=int, default=1_000_000)
    parser.add_argument("--revived", type=int, default=1_000_000)
    options = parser.parse_args()
    parts = options.only.split(",")
    if not set(parts) <= set(PARTS):
        parser.error(f"--only: there are {', '.join(PARTS)}")
    names = peer_names([word for word in options.peers.split(",") if word and word != "none"])
    with tempfile.TemporaryDirectory() as folder:
        launcher = Launcher(Path(folder), build(Path(folder)))
        for part in parts:
            print(f"\n{part}, load average {os.getloadavg()[0]:.1f}\n")
            with launcher.running(names, "async") as peers:
                if part == "cost":
                    lines = measure_cost(peers, options.rounds, options.seconds, options.filled)
                elif part == "flight":
                    lines = measure_flight(peers, options.in_flight)
                else:
                    lines = measure_revive(peers, options.revived, Path(folder))
            print("\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
