"""A disk that fails: EIO, no space, short writes, in every call of a store's work, once and for ever.

Whatever fails, a message is acknowledged only when it is stored as the mode promises, the log's own
failures fence the store, a full disk does not, and what was acknowledged is found at the next start.
"""

from __future__ import annotations

import errno
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from kourou.errors import StorageError
from kourou.store.log.put_status import PutRefusedError, PutStatus
from kourou.store.settings import FlushDiskType
from kourou.testing.faults import CHANGES, LOOKS
from kourou.testing.faulty_files import FaultyFiles
from kourou.testing.survival import drop_all, keep_all
from tests.crash.ledger import read_queue
from tests.crash.rounds import NIGHTLY, REPLAY, first_seed, replayable, summaries, time_left
from tests.crash.workload import TOPICS, Workload

SYNC, ASYNC = FlushDiskType.SYNC_FLUSH, FlushDiskType.ASYNC_FLUSH
KINDS = sorted((CHANGES | LOOKS) - {"lock"})  # a lock that fails is a store that does not open
SHORT = 0
"""Stands for a write that stores only a part and says so, which is no error."""


@dataclass(frozen=True, slots=True)
class Case:
    """One fault in a store's work."""

    kind: str
    nth: int
    error: int
    for_ever: bool
    flush: FlushDiskType

    def __str__(self) -> str:
        name = "short" if self.error == SHORT else errno.errorcode[self.error]
        return f"{self.kind}#{self.nth} {name}{' for ever' * self.for_ever} {self.flush.value}"

    def set(self, files: FaultyFiles) -> None:
        """Let it happen from now on."""
        if self.error == SHORT:
            files.short_write(self.nth, for_ever=self.for_ever)
        else:
            files.fail(self.kind, self.nth, error=self.error, for_ever=self.for_ever, written_bytes=100)


class FailingWork(Workload):
    """The same work every time, on a disk that may fail. `is_open`: whether there is a store."""

    is_open = False

    def live(self) -> None:
        """Everything a store does, once at least."""
        self._try(self.start)
        steps: list[Callable[[], None]] = [self.send] * 4
        steps += [self.send_batch, self.flush, self.flush_some_derived, self.save_offsets, self.prepare_next]
        steps += [self.send] * 6 + [self.flush_derived] + [self.send] * 6 + [self.expire]
        steps += [self.flush, self.delete_topic, self.send, self.flush_derived, self.restart]
        steps += [self.send, self.send_batch, self.flush, self.flush_derived]
        for step in steps:
            if self.is_open:
                self._try(step)

    def start(self) -> None:
        self.open()
        self.is_open = True

    def restart(self) -> None:
        self.is_open = False
        super().restart()
        self.is_open = True

    def _try(self, step: Callable[[], None]) -> None:
        """Errors of the disk are the caller's to handle, in all but a put that was taken."""
        try:
            step()
        except (StorageError, OSError) as error:
            for sent in self.ledger.messages:
                if sent.raw is None and isinstance(error, PutRefusedError):
                    sent.is_refused = True
            if isinstance(error, PutRefusedError):
                self.store.write_and_publish()


def run_case(root: Path, case: Case, seed: int) -> None:
    (root / "store").mkdir(parents=True)
    files = FaultyFiles()
    work = FailingWork(root / "store", files, 5, case.flush)
    case.set(files)
    work.live()
    if work.is_open:
        check_open_store(work, case)
    files.heal()
    chance = random.Random(seed)
    ending = chance.choice(("stop", "kill", "power loss"))
    if work.is_open and ending == "stop":
        stop(work)
    elif work.is_open and ending == "kill":
        work.store.abandon()
    else:
        files.crash(chance.choice((drop_all, keep_all, chance.randrange(1 << 32))))
    work.start()
    work.settle()
    work.run(3)
    files.crash(drop_all)
    work.start()
    work.settle()
    files.crash(keep_all)
    shutil.rmtree(root)


def stop(work: FailingWork) -> None:
    """A stop that says it is clean leaves a store that is."""
    try:
        work.store.close()
    except OSError:  # a sync of queues that failed before is not tried again
        return
    if not (work.root / "abort").exists():
        work.check()


def check_open_store(work: FailingWork, case: Case) -> None:
    """Reads go on; so do writes once the fault is over, unless the store is fenced for a reason."""
    files, store = work.files, work.store
    assert isinstance(files, FaultyFiles)
    if case.kind in CHANGES:
        read_all(work)
    files.heal()
    read_all(work)
    if store.appender.is_fenced:
        assert case.error == errno.EIO or case.kind in ("sync", "sync_folder"), store.appender.refusal
        with pytest.raises(PutRefusedError, match="takes no more messages"):
            store.put_message("orders", 0, b"")
    else:
        before = len(work.ledger.messages)
        work.send()
        assert not any(sent.is_refused for sent in work.ledger.messages[before:])
        work.flush()
        assert work.ledger.messages[-1].must_survive


def read_all(work: FailingWork) -> None:
    for topic in TOPICS:
        for queue_id in work.store.queues.queue_ids(topic):
            read_queue(work.store, topic, queue_id)


def count_calls(files: FaultyFiles, part_of_path: str = "") -> Counter[str]:
    """Counts the calls of each kind from now on."""
    counts: Counter[str] = Counter()
    due_fault = files._machine.due_fault

    def counting(kind: str, path: Path) -> object:
        counts[kind] += part_of_path in str(path)
        return due_fault(kind, path)

    files._machine.due_fault = counting  # type: ignore[method-assign, assignment]
    return counts


def all_cases(root: Path, flush: FlushDiskType) -> list[Case]:
    """Each call of each kind that comes when nothing fails, in each way to fail."""
    (root / "store").mkdir(parents=True)
    files = FaultyFiles()
    counts = count_calls(files)
    FailingWork(root / "store", files, 5, flush).live()
    files.crash(keep_all)
    cases = []
    for kind in KINDS:
        errors = [errno.EIO] + [errno.ENOSPC] * (kind in CHANGES) + [SHORT] * (kind == "pwrite")
        for nth in range(1, counts[kind] + 1):
            for error in errors:
                cases += [Case(kind, nth, error, for_ever, flush) for for_ever in (False, True)]
    return cases


def run_cases(folder: Path, flush: FlushDiskType, *, seconds: float) -> None:
    """Cases in random order for as long as `time_left` allows: in a nightly run usually all of them."""
    cases = all_cases(folder / "count", flush)
    seed = int(REPLAY) if REPLAY else first_seed()
    chance = random.Random(seed)
    chance.shuffle(cases)
    began = time.monotonic()
    done = 0
    for case in cases:
        if done and not time_left(began, seconds):
            break
        with replayable(seed, case=case, number=done):
            run_case(folder / "case", case, chance.randrange(1 << 32))
        done += 1
    summaries.append(
        f"disk errors, {flush.value}: {done} of {len(cases)} cases "
        f"in {time.monotonic() - began:.1f} s, seed {seed}"
    )


@pytest.mark.skipif(NIGHTLY, reason="the next test has all cases")
@pytest.mark.parametrize("flush", [SYNC, ASYNC], ids=["sync", "async"])
def test_no_error_of_the_disk_loses_what_was_acknowledged(folder: Path, flush: FlushDiskType) -> None:
    run_cases(folder, flush, seconds=1)


@pytest.mark.nightly
@pytest.mark.parametrize("flush", [SYNC, ASYNC], ids=["sync", "async"])
def test_no_error_of_the_disk_in_any_call_loses_what_was_acknowledged(
    folder: Path, flush: FlushDiskType
) -> None:
    run_cases(folder, flush, seconds=0)


# -- what has to happen, one by one --------------------------------------------------------------


def test_a_failed_sync_fences_and_is_never_tried_again(folder: Path) -> None:
    files = FaultyFiles()
    work = Workload(folder / "store", files, 1, SYNC)
    work.open()
    work.send()
    visible = {topic: work.store.queues.queue_ids(topic) for topic in TOPICS}
    files.fail("sync", part_of_path="commitlog")
    before = len(work.ledger.messages)
    work.send()
    assert all(sent.is_refused for sent in work.ledger.messages[before:])
    calls = count_calls(files, "commitlog")
    with pytest.raises(PutRefusedError, match="takes no more messages: .*synced: Input/output error"):
        work.store.put_message("orders", 0, b"")
    work.store.flush()
    for topic, queue_ids in visible.items():
        for queue_id in queue_ids:
            read_queue(work.store, topic, queue_id)
    work.store.close()
    assert calls["sync"] == calls["pwrite"] == 0
    assert (folder / "store" / "abort").exists()
    work.open()
    work.settle()
    work.send()
    assert work.ledger.messages[-1].must_survive


def test_a_full_disk_refuses_and_goes_on_by_itself(folder: Path) -> None:
    files = FaultyFiles()
    work = Workload(folder / "store", files, 1, SYNC)
    work.open()
    work.send()
    files.fail({"pwrite", "preallocate", "create", "set_length"}, error=errno.ENOSPC, for_ever=True)
    before = len(work.ledger.messages)
    for _ in range(30):
        work.send()
    refused = work.ledger.messages[before:]
    assert refused and all(sent.is_refused for sent in refused)
    assert work.store.appender.refusal is None
    files.heal()
    work.send()
    assert work.ledger.messages[-1].must_survive
    work.store.close()
    work.check()


def test_a_short_write_is_continued(folder: Path) -> None:
    files = FaultyFiles()
    work = Workload(folder / "store", files, 1, SYNC)
    files.short_write(for_ever=True)
    work.open()
    for _ in range(10):
        work.send()
    assert all(sent.must_survive for sent in work.ledger.messages)
    files.crash(drop_all)
    work.open()
    work.settle()


def test_half_a_record_of_a_write_that_failed_is_no_message(folder: Path) -> None:
    """Without a body no CRC says so: it came back with zeros for properties."""
    properties = "UNIQ_KEY\x01ID00000001\x02KEYS\x01common\x02"
    for written_bytes in range(97 + len(properties)):  # 97: the record without them
        files = FaultyFiles()
        work = Workload(folder / str(written_bytes), files, 1, ASYNC)
        store = work.open()
        store.put_message("orders", 0, b"before")
        files.fail("pwrite", written_bytes=written_bytes, part_of_path="commitlog")
        files.fail("pwrite", 2, for_ever=True, part_of_path="commitlog")  # nor can it be undone
        assert store.put_message("orders", 0, b"", properties).status is not PutStatus.PUT_OK
        files.heal()
        store.abandon()
        store = work.open()
        assert store.max_offset_in_queue("orders", 0) == 1, written_bytes
        store.close()
