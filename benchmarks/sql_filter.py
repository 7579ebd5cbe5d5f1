"""The cost of SQL92 filters: compiling, matching a message, reading a queue.

Run as `python -m benchmarks.sql_filter [--full]`. The first table covers the language alone: "row" evaluates
given values, "bytes" finds them in the stored property string of a message first. The target is 2
microseconds for a comparison of two properties. The second reads a queue of messages of 1 KiB to its end in
pulls of 32, as a broker does, with filters that accept one message in a hundred and one in two, and by tag,
where all are accepted; microseconds are per message examined.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks._store_load import (
    Spent,
    append,
    best_and_median,
    markdown_table,
    open_store,
    options,
    ready_messages,
    spent,
    work_folder,
)
from kourou.broker.pull.filtered_read import RecordMatcher
from kourou.protocol.filter import FilterProgram
from kourou.protocol.tags import tags_code
from kourou.store.message_store import MessageStore
from kourou.store.settings import MessageStoreConfig

BODY_BYTES = 1024
PER_PULL = 32
WINDOWS = {"map": 1 << 40, "pread": 0}
FILTERS = {"1 %": "n = 7", "50 %": "n < 50"}
EXPRESSIONS = (
    "region = 'eu'",
    "a > 5",
    "a > b",
    "a = b",
    "price > 2.5",
    "a BETWEEN 1 AND 9",
    "region IN ('us', 'eu', 'cn')",
    "region IS NOT NULL AND a > 5 AND price < 3.0",
    " OR ".join(f"a = {number}" for number in range(100, 200)),
)
PROPERTIES = {"a": "7", "b": "5", "region": "eu", "price": "2.75"}
STORED = (
    "KEYS\x01order-10\x02UNIQ_KEY\x017F00000150805FFD2B2748C057C10016\x02WAIT\x01true\x02TAGS\x01TagA\x02"
    + "".join(f"{name}\x01{value}\x02" for name, value in PROPERTIES.items())
).encode()


def language_rows(count: int, rounds: int) -> list[list[str]]:
    """A row for each expression."""
    rows = []
    for expression in EXPRESSIONS:
        program = FilterProgram(expression)
        row = [PROPERTIES.get(name) for name in program.names]
        compiling = _rounds(rounds, max(1, count // 500), lambda text=expression: FilterProgram(text))
        by_row = _rounds(rounds, count, lambda program=program, row=row: program.matches_row(row))
        by_bytes = _rounds(
            rounds, count, lambda program=program: program.matches_bytes(STORED, 0, len(STORED))
        )
        shown = expression if len(expression) < 60 else f"{expression[:20]} … ({program.terms} terms)"
        rows.append([f"`{shown}`", *compiling, *by_row, *by_bytes])
    return rows


def _rounds(rounds: int, count: int, action: Callable[[], object]) -> list[str]:
    def work() -> None:
        for _ in range(count):
            action()

    return [f"{value:.2f}" for value in best_and_median([spent(work) for _ in range(rounds)], count)]


def read_all(store: MessageStore, matcher: RecordMatcher | None) -> int:
    """Pull the queue from its start to its end; how many messages came."""
    queue = store.queues.find("topic", 0)
    assert queue is not None
    tags = None if matcher is not None else frozenset({tags_code("TagA")}).__contains__
    at = found = 0
    while at < queue.max_queue_offset:
        if matcher is not None:
            matcher.rest()
        result = store.reader.get_message(queue, at, PER_PULL, matcher=matcher, tags_filter=tags)
        at, found = result.next_begin_offset, found + result.message_count
    return found


def read_rows(folder: Path, count: int, rounds: int) -> list[list[str]]:
    """A row for each filter and way of reading."""
    with open_store(MessageStoreConfig(root=folder / "store")) as store:
        plain = ready_messages([store.queue("topic", 0)], count, BODY_BYTES)
        append(
            store,
            [
                each._replace(properties=each.properties + b"n\x01%d\x02" % (number % 100))
                for number, each in enumerate(plain)
            ],
            256,
        )
        store.flush()
        store.flush_derived(thorough=True)
    rows = []
    for way, window in WINDOWS.items():
        config = MessageStoreConfig(root=folder / "store", read_window_bytes=window)
        with open_store(config) as store:
            for name, expression in {**FILTERS, "by tag, all": None}.items():
                rows.append([f"{name}, {way}", *_read_cells(store, expression, count, rounds)])
    return rows


def _read_cells(store: MessageStore, expression: str | None, count: int, rounds: int) -> list[str]:
    matcher = None
    if expression is not None:
        matcher = RecordMatcher(store.log, FilterProgram(expression))
    found = read_all(store, matcher)
    took: list[Spent] = [spent(lambda: read_all(store, matcher)) for _ in range(rounds)]
    best, middle = best_and_median(took, count)
    return [f"{found:,}", f"{count / min(one.clock_s for one in took):,.0f}", f"{best:.2f}", f"{middle:.2f}"]


LANGUAGE_HEAD = ("µs", "compile, best", "median", "row, best", "median", "bytes, best", "median")
READ_HEAD = (
    "filter, way",
    "found",
    "looked at/s, clock, best",
    "µs a message looked at, best",
    "median",
)


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__).parse_args()
    count, rounds = (102_400, 9) if chosen.full else (20_480, 5)
    print(f"{rounds} rounds; CPU microseconds\n")
    print(markdown_table(LANGUAGE_HEAD, language_rows(count // 4, rounds)))
    with work_folder() as folder:
        rows = read_rows(folder, count, rounds)
    print(f"\n{rounds} rounds over {count:,} messages of {BODY_BYTES:,} bytes\n")
    print(markdown_table(READ_HEAD, rows))


if __name__ == "__main__":
    main()
