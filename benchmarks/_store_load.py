"""What the measurements of the store share: a store, messages for it, rounds, tables.

Time is that of the processor, user and system, unless a table says clock: the machine has other things to do.
Rounds of what is compared alternate, so that a slow moment hits all of it.
"""

from __future__ import annotations

import argparse
import gc
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

from kourou.protocol.message_id import encode_host
from kourou.protocol.tags import tags_code
from kourou.store.disk.files import Files
from kourou.store.log.put_status import PutStatus
from kourou.store.message_store import MessageStore
from kourou.store.queue.consume_queue import ConsumeQueue
from kourou.store.settings import MessageStoreConfig

_PER_ROUND = 25_600
_PIECE_BYTES = 4 * 1024 * 1024

BORN_HOST = encode_host("127.0.0.1", 54321)


class Ready(NamedTuple):
    """A message, all that a broker has made of a request before it calls the store."""

    queue: ConsumeQueue
    body: bytes
    properties: bytes
    tags_code: int
    keys: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Spent:
    """What some work took."""

    cpu_s: float
    clock_s: float


def spent(work: Callable[[], object]) -> Spent:
    """Run it and look at both clocks."""
    clock, cpu = time.perf_counter(), time.process_time()
    work()
    return Spent(time.process_time() - cpu, time.perf_counter() - clock)


def best_and_median(rounds: Sequence[Spent], count: int) -> tuple[float, float]:
    """Microseconds of CPU for one of `count`."""
    each = [one.cpu_s / count * 1e6 for one in rounds]
    return min(each), median(each)


@contextmanager
def open_store(config: MessageStoreConfig) -> Iterator[MessageStore]:
    """A store at work: what the collector has to look at is kept small, as a broker does after its start."""
    store = MessageStore.open(config, Files(), lambda: time.time_ns() // 1_000_000)
    gc.freeze()
    try:
        yield store
    finally:
        store.abandon()


@contextmanager
def work_folder() -> Iterator[Path]:
    """A folder that is removed at the end; TMPDIR says where."""
    folder = Path(tempfile.mkdtemp(prefix="kourou-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def ready_messages(
    queues: Sequence[ConsumeQueue], count: int, body_bytes: int, first: int = 0
) -> list[Ready]:
    """Messages over the queues in turn, with the properties of a Java client and two keys."""
    code = tags_code("TagA")
    messages = []
    for number in range(first, first + count):
        unique_id, key = f"7F00000150805FFD2B2748C0{number:08X}", f"order-{number}"
        properties = (
            f"KEYS\x01{key}\x02UNIQ_KEY\x01{unique_id}\x02WAIT\x01true\x02TAGS\x01TagA\x02"
            "CLUSTER\x01DefaultCluster\x02MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02"
        )
        body = number.to_bytes(8, "big") * (body_bytes // 8)
        messages.append(
            Ready(queues[number % len(queues)], body, properties.encode(), code, (unique_id, key))
        )
    return messages


def append(store: MessageStore, messages: Sequence[Ready], per_cycle: int) -> None:
    """The work of a broker's commit cycles: put, write, publish, respond."""
    put = store.appender.put
    for first in range(0, len(messages), per_cycle):
        now_ms = store.begin_cycle()
        for queue, body, properties, code, keys in messages[first : first + per_cycle]:
            put(
                queue,
                body,
                properties,
                code,
                keys,
                now_ms,
                BORN_HOST,
                0,
                0,
                0,
                0,
                _answered,
                True,
            )
        batch = store.write_cycle()
        assert batch is not None
        store.publish(batch)
        batch.answer(PutStatus.PUT_OK)


def _answered(status: PutStatus, phy_offset: int, queue_offset: int) -> None:
    pass


def write_log(root: Path, log_bytes: int) -> tuple[int, int]:
    """Fill a log up to `log_bytes` with messages of 1 KiB over 32 queues, all in its first file, and give it
    up without a word: the log flushed every 32 MiB, queues and index written and not synced. How many
    messages it holds, and how many bytes."""
    count = 0
    with open_store(MessageStoreConfig(root=root)) as store:
        queues = [store.queue(f"Topic{topic}", number) for topic in range(4) for number in range(8)]
        while True:
            start = store.log.max_phy_offset
            append(store, ready_messages(queues, _PER_ROUND, 1024, first=count), 256)
            count += _PER_ROUND
            store.flush()
            store.flush_derived(thorough=False)
            end = store.log.max_phy_offset
            if end + end - start > log_bytes:
                return count, end


def bare_scan(path: Path, log_bytes: int) -> Spent:
    """Read the log in pieces and take a CRC of them: the least that looking at all of it can cost."""

    def work() -> None:
        with open(path, "rb", buffering=0) as file:
            for _ in range(0, log_bytes, _PIECE_BYTES):
                zlib.crc32(file.read(_PIECE_BYTES))

    return spent(work)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; all columns but the first are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def options(doc: str | None) -> argparse.ArgumentParser:
    """The options that all of these have."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the sizes of the result file; minutes")
    return parser
