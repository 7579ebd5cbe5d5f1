"""cut_log: a store that was cut is one that never had the tail, and the tail is in a file."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kourou.errors import StoreFormatError, StoreLockedError
from kourou.protocol.layout import ORPHANED_TAIL
from kourou.store.disk.files import Files
from kourou.store.replica.log_cut import LogCutError, cut_log
from kourou.store.replica.orphaned_tail import ORPHANED_FOLDER, OrphanedTail
from tests.unit.store.message_stores import StoreKit, bodies, body_for, faulty, put, record_bytes
from tests.unit.store.replica.cut_kit import (
    FILE_BYTES,
    SET_NAME,
    Script,
    cut,
    derived,
    epoch_starts,
    follow,
    new_kit,
    set_epochs,
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10_000),
    kept=st.integers(0, 60),
    behind=st.integers(1, 60),
    is_clean=st.booleans(),
    has_producers=st.booleans(),
    is_slave=st.booleans(),
)
def test_a_store_that_was_cut_is_one_that_never_had_the_tail(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    kept: int,
    behind: int,
    is_clean: bool,
    has_producers: bool,
    is_slave: bool,
) -> None:
    script = Script(seed, has_producers=has_producers)
    folder = tmp_path_factory.mktemp("cut")
    with new_kit(folder / "cut") as kit, new_kit(folder / "plain") as plain:
        other = plain.open()
        ends = script.run(plain, other, range(kept))
        end = ends[-1] if ends else 0
        other.close()
        store = kit.open()
        script.run(kit, store, range(kept + behind))
        whole_end = store.log.max_phy_offset
        store.close() if is_clean else store.abandon()

        saved = cut(kit, end)
        assert saved is not None
        assert (saved.start_phy_offset, saved.end_phy_offset) == (end, whole_end)

        store, other = kit.open(), plain.open()
        assert store.report.clean_exit
        assert derived(store) == derived(other)
        kit.clock.now_ms = plain.clock.now_ms
        script.run(plain, other, range(kept, kept + 20))
        if is_slave:
            follow(store, other)
        else:
            script.run(kit, store, range(kept, kept + 20))
        # What the two have derived, and what they record of it.
        assert derived(kit.reopen(store)) == derived(plain.reopen(other))


# -- where -----------------------------------------------------------------------------------------


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with new_kit(tmp_path / "store") as made:
        yield made


def test_a_log_that_ends_there_already_keeps_nothing(kit: StoreKit) -> None:
    store = kit.open()
    end = Script().run(kit, store, range(10))[-1]
    store.close()
    set_epochs(kit.root, 0, end)
    assert cut(kit, end) is None
    assert not (kit.root / ORPHANED_FOLDER).exists()
    # The last one has no records, and the new master may have another with its number.
    assert epoch_starts(kit.root) == [0]


def test_a_log_is_not_cut_where_no_record_begins(kit: StoreKit) -> None:
    store = kit.open()
    ends = Script().run(kit, store, range(30))
    before = derived(kit.reopen(store))
    kit.close()
    for phy_offset, reason in (
        (ends[4] + 1, f"cannot be cut at {ends[4] + 1}, where no record begins: "),
        (ends[-1] + 1, f"the CommitLog ends at {ends[-1]} and cannot be cut at {ends[-1] + 1}"),
    ):
        with pytest.raises(LogCutError, match=re.escape(reason)):
            cut(kit, phy_offset)
    assert derived(kit.open()) == before and not (kit.root / ORPHANED_FOLDER).exists()


def test_a_log_that_has_nothing_in_common_is_not_cut(kit: StoreKit) -> None:
    store = kit.open()
    Script().run(kit, store, range(60))
    store.log.delete_first()
    start = store.log.min_phy_offset
    store.queues.correct_min(start)
    store.close()
    with pytest.raises(LogCutError, match=f"begins at {start}, so that it cannot be cut at 0: .* Move the"):
        cut(kit, 0)
    assert cut(kit, start) is not None
    store = kit.open()
    # Nothing is left: the log of the master may begin anywhere.
    assert (store.log.log_files, store.log.max_phy_offset, len(store.queues)) == ([], 0, 0)
    assert store.replica_log().is_empty


def test_a_store_in_use_is_not_cut(kit: StoreKit) -> None:
    store = kit.open()
    end, _ = Script().run(kit, store, range(2))
    with pytest.raises(StoreLockedError):
        cut_log(Files(), kit.config(), end, set_name=SET_NAME, now_ms=kit.clock)


# -- what goes with it -----------------------------------------------------------------------------


def test_epochs_without_records_go(kit: StoreKit) -> None:
    store = kit.open()
    ends = Script().run(kit, store, range(30))
    store.close()
    set_epochs(kit.root, 0, ends[3], ends[9], ends[20])
    saved = cut(kit, ends[9])
    assert saved is not None and saved.epoch == 4
    assert epoch_starts(kit.root) == [0, ends[3]]


def test_a_damaged_unit_in_front_of_the_cut_is_made_anew(kit: StoreKit) -> None:
    store = kit.open()
    starts = [put(store, b"%d" % number).phy_offset for number in range(9)]
    store.close()
    # The last one that stays points behind the end of the log.
    faulty(kit).flip_bit(kit.root / "consumequeue" / "orders" / "0" / f"{0:020d}", 4 * 20 + 3, bit=0)
    assert cut(kit, starts[5]) is not None
    store = kit.open()
    assert bodies(store) == [b"%d" % number for number in range(5)]
    assert bodies(kit.reopen(store)) == [b"%d" % number for number in range(5)]


def test_damage_behind_the_cut_is_forgotten(kit: StoreKit) -> None:
    store = kit.open()
    starts = [put(store, body_for(200)).phy_offset for _ in range(40)]
    # The last message is damaged as well: its place in the queue is remembered.
    kit.kill(store).close()
    for at in (starts[2], starts[30], starts[39]):
        path = kit.root / "commitlog" / f"{at - at % FILE_BYTES:020d}"
        faulty(kit).flip_bit(path, at % FILE_BYTES + 150)
    (kit.root / "consumequeue.snapshot").unlink()
    kit.is_checked = False
    store = kit.open()
    assert [damage.phy_offset for damage in store.damages.damages] == [starts[2], starts[30], starts[39]]
    assert store.damages.next_offsets == {("orders", 0): 40}
    store.close()
    assert cut(kit, starts[20]) is not None
    store = kit.open()
    assert [damage.phy_offset for damage in store.damages.damages] == [starts[2]]
    assert (store.damages.next_offsets, store.max_offset_in_queue("orders", 0)) == ({}, 20)


def test_the_line_in_the_log_names_what_is_kept_and_how_it_is_read(
    kit: StoreKit, caplog: pytest.LogCaptureFixture
) -> None:
    store = kit.open()
    ends = Script().run(kit, store, range(20))
    store.close()
    set_epochs(kit.root, 0)
    saved = cut(kit, ends[9])
    assert saved is not None
    (line,) = [line for line in caplog.messages if "is cut" in line]
    assert line == (
        f"the CommitLog of {kit.root} is cut at {ends[9]}: the {ends[19] - ends[9]} bytes from there to "
        f"{ends[19]}, written up to epoch 1 of broker-a, are not in the log of the new master. They are kept "
        f"in {saved.path}; `kourou store inspect {saved.path}` lists the messages"
    )


# -- the tail --------------------------------------------------------------------------------------


def test_a_tail_is_never_written_over(kit: StoreKit) -> None:
    script = Script()
    store = kit.open()
    ends = script.run(kit, store, range(20))
    store.close()
    first = cut(kit, ends[9])
    assert first is not None
    kept = first.path.read_bytes()
    store = kit.open()
    # The same offsets and the same epoch, and another message.
    for number in range(10, 20):
        kit.clock.now_ms += 1
        size = ends[number] - store.log.max_phy_offset
        if size >= record_bytes(0):
            put(store, body_for(size))
    assert store.log.max_phy_offset == ends[19]
    store.close()
    second = cut(kit, ends[9])
    assert second is not None and second.path.name == f"{first.path.stem}-2.tail"
    assert first.path.read_bytes() == kept and second.path.read_bytes() != kept


def test_a_damaged_tail_does_not_count_as_kept(kit: StoreKit) -> None:
    store = kit.open()
    ends = Script().run(kit, store, range(20))
    raw = store.log.read(ends[9], ends[10] - ends[9])
    store.close()
    shutil.copytree(kit.root, kit.root.with_name("before"))
    first = cut(kit, ends[9])
    assert first is not None
    faulty(kit).flip_bit(first.path, first.head_bytes + 50)
    with OrphanedTail.open(Files(), first.path) as tail:
        assert tail.problem() == "the checksum of its records is wrong"
    orphaned = first.path.read_bytes()
    shutil.rmtree(kit.root)
    shutil.copytree(kit.root.with_name("before"), kit.root)
    first.path.parent.mkdir()
    first.path.write_bytes(orphaned)
    second = cut(kit, ends[9])
    assert second is not None and second.path != first.path
    assert raw is not None and raw in second.path.read_bytes()


def test_messages_of_a_tail_over_several_files(kit: StoreKit) -> None:
    script = Script(has_producers=False)
    store = kit.open()
    ends = script.run(kit, store, range(60))
    expected = [store.look_message(at) for at in [ends[9], *ends[10:-1]] if store.look_message(at)]
    store.close()
    saved = cut(kit, ends[9])
    assert saved is not None
    with OrphanedTail.open(Files(), saved.path) as tail:
        found = list(tail.messages())
        assert tail.problem() is None and tail.saved == saved
    assert len(found) == 50
    assert {message.phy_offset for message in expected if message} <= {each.phy_offset for each in found}
    assert [message.body.split()[0] for message in found] == [b"%d" % number for number in range(10, 60)]


def test_a_flipped_bit_in_the_head_is_found(kit: StoreKit) -> None:
    store = kit.open()
    ends = Script().run(kit, store, range(3))
    store.close()
    saved = cut(kit, ends[1])
    assert saved is not None and saved.head_bytes == ORPHANED_TAIL.size + len(SET_NAME)
    for position in range(saved.head_bytes):
        faulty(kit).flip_bit(saved.path, position, bit=position % 8)
        with pytest.raises(StoreFormatError, match="not a saved tail|head is damaged"):
            OrphanedTail.open(Files(), saved.path)
        faulty(kit).flip_bit(saved.path, position, bit=position % 8)
    OrphanedTail.open(Files(), saved.path).close()
