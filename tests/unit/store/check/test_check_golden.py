"""The check on stores that Apache wrote: the clean ones are sound, the killed one says what comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kourou.store.check.check import CheckOptions, check_store
from kourou.store.disk.files import Files
from tests.golden.stores import INDEX_SLOTS, extract_store, manifest
from tests.unit.store.broken_stores import check, contents


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_store_after_a_clean_stop_has_no_fault(version: str, tmp_path: Path) -> None:
    report = check(extract_store(version, tmp_path))
    assert report.ok and not report.violations and not report.recovery and not report.notes
    assert report.is_clean and not report.in_use


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0", "4.9.7-crash"])
def test_everything_in_the_manifest_was_looked_at(version: str, tmp_path: Path) -> None:
    report = check(extract_store(version, tmp_path))
    known = manifest(version)
    counts = report.counts
    assert counts.records == known["counts"]["messages"]
    assert counts.log_files == len(known["commitLog"]["files"])
    assert counts.queues == len(known["consumeQueues"])
    assert counts.units == sum(queue["entries"] for queue in known["consumeQueues"])
    assert counts.index_files == len(known["index"])
    assert counts.index_entries == sum(file["indexCount"] - 1 for file in known["index"])
    assert report.bytes == sum(message["storeSize"] for message in known["messages"])
    assert report.log_min_phy_offset == known["commitLog"]["minOffset"]
    assert report.log_end_phy_offset == known["commitLog"]["maxOffset"]


def test_a_killed_store_says_what_recovery_will_do_and_has_no_damage(tmp_path: Path) -> None:
    root = extract_store("4.9.7-crash", tmp_path)
    report = check(root)
    assert report.ok and not report.is_clean
    assert [found.text(root) for found in report.recovery] == [
        "abort: recovery will run at the next start: the last owner of this store was killed",
        "commitlog/00000000000001572864: recovery will remove this file: it lies behind the end of the log",
        "consumequeue: recovery will dispatch 60 records from 1143049 on, which are in no queue",
        "index/20261115032436017: recovery will index 180 keys of records from 1143049 on",
    ]


def test_the_part_of_the_index_that_apache_lost_in_a_crash_is_a_note(tmp_path: Path) -> None:
    root = extract_store("4.9.7-crash", tmp_path)
    assert [found.text(root) for found in check(root).notes] == [
        "index/20261115032436017: 1,827 keys of records from 737407 to 1040396 are in no index file; this "
        "one follows 20261115030244307: Apache gives up the newest index file after a kill"
    ]


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0", "4.9.7-crash"])
def test_nothing_is_changed_on_disk(version: str, tmp_path: Path) -> None:
    root = extract_store(version, tmp_path)
    before = contents(root)
    check_store(Files(), root)
    assert contents(root) == before


def test_slots_given_are_the_slots_found(tmp_path: Path) -> None:
    root = extract_store("4.9.7", tmp_path)
    assert check_store(Files(), root, options=CheckOptions(index_slots=INDEX_SLOTS)).ok


def test_progress_ends_with_all_of_the_log(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    root = extract_store("4.9.7", tmp_path)
    check_store(Files(), root, options=CheckOptions(progress=lambda *done: calls.append(done)))
    done, total = calls[-1]
    assert done == total > 1_000_000
    assert [before for before, _ in calls] == sorted(before for before, _ in calls)


def test_a_commit_log_in_several_folders_is_one(tmp_path: Path) -> None:
    root = extract_store("4.9.7", tmp_path)
    folders = (tmp_path / "a", tmp_path / "b")
    for number, path in enumerate(sorted((root / "commitlog").iterdir())):
        folders[number % 2].mkdir(exist_ok=True)
        path.rename(folders[number % 2] / path.name)
    report = check_store(Files(), root, options=CheckOptions(commit_log_folders=folders))
    assert report.ok and report.counts.records == manifest("4.9.7")["counts"]["messages"]


def test_files_that_retention_removed_are_not_missed(tmp_path: Path) -> None:
    root = extract_store("4.9.7", tmp_path)
    for name in ("00000000000000000000", "00000000000000262144"):
        (root / "commitlog" / name).unlink()
    report = check(root)
    assert report.ok and not report.notes
    assert report.log_min_phy_offset == 524_288
    # Units of what is gone still count: they are in the files.
    assert report.counts.units == sum(queue["entries"] for queue in manifest("4.9.7")["consumeQueues"])
