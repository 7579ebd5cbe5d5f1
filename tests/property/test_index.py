"""The index against the naive one: same bytes, same answers, and over crashes nothing lost or doubled."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kourou.store.disk.files import Files
from kourou.store.index.index_hash import KeyHasher
from kourou.store.index.index_service import IndexService
from kourou.testing.faulty_files import FaultyFiles, SimulatedCrash
from tests.unit.store.naive_index import NaiveIndex, naive_hash

NOW_MS = 1_794_711_764_287
FOR_EVER_MS = 2**60
KEYS = ["Aa", "BB", "a", "b", "c", "d", "e", "键", "𝄞", "order-1", "order-2"]

Record = tuple[str, Sequence[str], int, int]

texts = st.text(st.characters(exclude_categories=[]), max_size=20)
# Few slots make long chains, many lie in several sectors of the disk.
layouts = st.tuples(st.one_of(st.integers(1, 30), st.sampled_from([300, 1500])), st.integers(2, 40))
# Keys, distance to the record before in the log, and in milliseconds.
steps = st.tuples(
    st.lists(st.sampled_from(KEYS), max_size=5),
    st.integers(1, 500),
    st.one_of(st.integers(0, 3), st.integers(0, 5000)),
)


def records_of(taken: Sequence[tuple[list[str], int, int]], phy_offset: int, now_ms: int) -> list[Record]:
    made: list[Record] = []
    for keys, size, passed_ms in taken:
        now_ms += passed_ms
        made.append(("tAa" if size % 2 else "tBB", keys, phy_offset, now_ms))
        phy_offset += size
    return made


@given(st.lists(st.tuples(texts, st.lists(texts, max_size=4)), max_size=30))
def test_hashes_of_a_batch_are_those_of_java(records: list[tuple[str, list[str]]]) -> None:
    topics, keys = [topic for topic, _ in records], [keys for _, keys in records]
    counts = np.array([len(words) for words in keys], np.intp)
    expected = [naive_hash(topic, key) for topic, words in records for key in words]
    assert KeyHasher().hashes(topics, keys, counts).tolist() == expected


@given(layouts, st.lists(st.lists(steps, max_size=12), max_size=6), st.data())
def test_any_batches_give_the_bytes_and_answers_of_single_entries(
    layout: tuple[int, int], batches: list[list[tuple[list[str], int, int]]], data: st.DataObject
) -> None:
    expected = NaiveIndex(*layout)
    with tempfile.TemporaryDirectory() as folder:
        index = IndexService(Files(), Path(folder), *layout, lambda: NOW_MS)
        last: Record = ("", (), 0, NOW_MS)
        for batch in batches:
            for record in records_of(batch, last[2] + 1, last[3]):
                index.collect(*record)
                expected.put_record(*record)
                last = record
            index.build()
        index.flush()
        assert [path.read_bytes() for path in index.paths] == expected.contents()
        for _ in range(5):
            times = st.integers(NOW_MS - 2000, last[3] + 2000)
            asked = (
                data.draw(st.sampled_from(["tAa", "tBB"])),
                data.draw(st.sampled_from(KEYS)),
                data.draw(st.integers(0, 70)),
                data.draw(times),
                data.draw(times),
            )
            assert index.query(*asked) == expected.query(*asked)
        index.close()


class IndexLife(RuleBasedStateMachine):
    """A log that grows, loses its tail or its head, and an index that has to follow, over crashes.

    The log is a list here and never lies; what the index has is derived from it as recovery would.
    """

    @initialize(layout=layouts, seed=st.integers(0, 2**32))
    def start(self, layout: tuple[int, int], seed: int) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.layout = layout
        self.seed = seed
        self.files = FaultyFiles()
        self.log: list[Record] = []
        self.log_end = 0
        self.now_ms = NOW_MS
        self.durable = 0  # records from there on may be missing after a crash
        self.collected = 0  # records of the log given to the index
        self.min_phy_offset = 0
        self.open(clean_exit=True)

    def open(self, *, clean_exit: bool) -> None:
        self.index = IndexService(self.files, self.root / "index", *self.layout, lambda: NOW_MS)
        self.index.load(clean_exit, 0)

    @rule(taken=st.lists(steps, max_size=10))
    def append(self, taken: list[tuple[list[str], int, int]]) -> None:
        new = records_of(taken, self.log_end, self.now_ms)
        self.log += new
        self.log_end += sum(size for _, size, _ in taken)
        self.now_ms = new[-1][3] if new else self.now_ms
        self.dispatch()

    def dispatch(self) -> None:
        for record in self.log[self.collected :]:
            if record[1] and record[2] >= self.min_phy_offset:
                self.index.collect(*record)
        self.collected = len(self.log)

    @rule()
    def build(self) -> None:
        self.index.build()

    @rule()
    def flush(self) -> None:
        self.index.flush()
        self.durable = len(self.log)

    @rule()
    def stop_and_start(self) -> None:
        self.flush()
        self.index.close()
        self.open(clean_exit=True)
        assert self.index.is_complete

    @rule(seed=st.integers(0, 2**32), earlier=st.integers(0, 5))
    def lose_power(self, seed: int, earlier: int) -> None:
        self.files.crash(seed)
        self.recover(earlier)

    @rule(seed=st.integers(0, 2**32), nth=st.integers(1, 12), earlier=st.integers(0, 5))
    def lose_power_while_flushing(self, seed: int, nth: int, earlier: int) -> None:
        self.files.crash_at(nth)
        with contextlib.suppress(SimulatedCrash):
            self.flush()
        self.files.crash(seed)
        self.recover(earlier)

    @rule(seed=st.integers(0, 2**32), nth=st.integers(1, 12), lost=st.integers(1, 8))
    def lose_power_while_truncating(self, seed: int, nth: int, lost: int) -> None:
        cut = max(self.log[-lost:][0][2] if self.log else 0, self.min_phy_offset)
        self.files.crash_at(nth)
        with contextlib.suppress(SimulatedCrash):
            self.index.truncate(cut)
        self.files.crash(seed)
        self.shorten(cut)
        self.recover(0)

    @rule(earlier=st.integers(0, 5))
    def be_killed(self, earlier: int) -> None:
        self.index.close()
        self.recover(earlier)

    def recover(self, earlier: int) -> None:
        """Dispatch again from what was durable, or somewhat before; then cut to the log's end."""
        self.open(clean_exit=False)
        assert self.index.is_complete
        durable = [record for record in self.log[: self.durable] if record[1]]
        if durable and durable[-1][2] >= self.min_phy_offset:
            assert self.index.end_phy_offset >= durable[-1][2]
        self.collected = max(0, self.durable - earlier)
        self.dispatch()
        self.index.truncate(self.log_end)

    @rule(lost=st.integers(1, 8))
    def lose_the_tail_of_the_log(self, lost: int) -> None:
        if self.log:
            self.shorten(self.log[-lost:][0][2])
            self.index.truncate(self.log_end)

    def shorten(self, end: int) -> None:
        end = max(end, self.min_phy_offset)
        self.log = [record for record in self.log if record[2] < end]
        self.log_end = min(self.log_end, end)
        self.collected = min(self.collected, len(self.log))
        self.durable = min(self.durable, len(self.log))

    @precondition(lambda self: self.log)
    @rule(position=st.integers(0, 50))
    def expire(self, position: int) -> None:
        self.index.build()
        self.min_phy_offset = max(self.min_phy_offset, self.log[min(position, len(self.log) - 1)][2])
        self.index.delete_expired(self.min_phy_offset)

    @invariant()
    def every_record_is_found_once_for_each_key(self) -> None:
        expected = NaiveIndex(self.layout[0], 10_000)
        for record in self.log:
            expected.put_record(*record)
        for topic in ("tAa", "tBB"):
            for key in KEYS:
                found = self.index.query(topic, key, 64, 0, FOR_EVER_MS)
                wanted = expected.query(topic, key, 64, 0, FOR_EVER_MS)
                live = [phy_offset for phy_offset in wanted if phy_offset >= self.min_phy_offset]
                assert found[: len(live)] == live
                # Of expired records some may still be there.
                assert set(found) <= set(wanted)

    @invariant()
    def the_end_is_that_of_the_last_record_with_keys(self) -> None:
        with_keys = [record[2] for record in self.log if record[1]]
        if with_keys and with_keys[-1] >= self.min_phy_offset:
            assert self.index.end_phy_offset == with_keys[-1]
        assert self.index.end_phy_offset <= self.log_end

    def teardown(self) -> None:
        self.index.close()
        shutil.rmtree(self.root)


TestIndexLife = IndexLife.TestCase
TestIndexLife.settings = settings(max_examples=40, stateful_step_count=25)
