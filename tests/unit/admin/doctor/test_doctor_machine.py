"""What the doctor reads of a machine: folders of a Linux that has the trouble."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from kourou.admin.doctor.checks_machine import (
    folder_findings,
    is_local,
    limit_findings,
    listening_pid,
    mount_of,
    scheduler_of,
)
from kourou.admin.doctor.checks_servers import (
    broker_clock_ms,
    check_clocks,
    clock_skew_ms,
    damage_findings,
    disk_findings,
    fence_findings,
    kernel_findings,
)
from kourou.admin.doctor.cluster_snapshot import BrokerView, ClusterSnapshot
from kourou.admin.doctor.findings import Severity, merged
from kourou.admin.session import Admin, BrokerAddress

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max open files            {}                 524288               files
"""


def broker(**runtime: str) -> BrokerView:
    return BrokerView(BrokerAddress("c", "broker-a", 0, "127.0.0.1:10911"), runtime, 0, 0)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    folder = tmp_path / "proc"
    folder.mkdir()
    return folder


def mounted(proc: Path, store: Path, kind: str) -> None:
    lines = ["/dev/root / ext4 rw 0 0", f"/dev/data {str(store).replace(' ', chr(92) + '040')} {kind} rw 0 0"]
    (proc / "mounts").write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("kind", "severity"),
    [
        ("ext4", None),
        ("xfs", None),
        ("tmpfs", "problem"),
        ("overlay", "warning"),
        ("nfs4", "warning"),
        ("fuse.sshfs", "warning"),
        ("btrfs", "hint"),
    ],
)
def test_file_systems(tmp_path: Path, proc: Path, kind: str, severity: str | None) -> None:
    store = tmp_path / "my store"
    store.mkdir()
    mounted(proc, store, kind)
    mount = mount_of(store, proc)
    assert mount is not None and (mount.device, mount.kind) == ("/dev/data", kind)
    found = folder_findings(broker(), store, proc=proc, sys=tmp_path)
    assert [finding.severity for finding in found] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("text", "scheduler", "findings"),
    [("none [mq-deadline] bfq", "mq-deadline", 0), ("none mq-deadline [bfq]", "bfq", 1), ("none", "none", 0)],
)
@pytest.mark.parametrize("is_partition", [True, False])
def test_schedulers(
    tmp_path: Path, proc: Path, text: str, scheduler: str, findings: int, is_partition: bool
) -> None:
    sys = tmp_path / "sys"
    disk = sys / "devices" / "disk"
    (disk / "queue").mkdir(parents=True)
    (disk / "part").mkdir()
    (disk / "queue" / "scheduler").write_text(text + "\n")
    number = os.stat(tmp_path).st_dev
    link = sys / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}"
    link.parent.mkdir(parents=True)
    link.symlink_to(disk / "part" if is_partition else disk)
    mounted(proc, tmp_path, "ext4")
    assert scheduler_of(tmp_path, sys) == scheduler
    assert len(folder_findings(broker(), tmp_path, proc=proc, sys=sys)) == findings


def test_a_machine_that_reports_nothing_has_no_findings(tmp_path: Path) -> None:
    assert folder_findings(broker(), tmp_path, proc=tmp_path, sys=tmp_path) == []
    assert list(limit_findings(broker(), 1, tmp_path)) == []
    assert listening_pid(10911, tmp_path) is None


@pytest.mark.parametrize(
    ("limit", "severities"), [("1024", ["warning"]), ("20000", ["hint"]), ("65535", []), ("unlimited", [])]
)
def test_limits_of_open_files(proc: Path, limit: str, severities: list[str]) -> None:
    (proc / "7").mkdir()
    (proc / "7" / "limits").write_text(LIMITS.format(limit))
    assert [finding.severity for finding in limit_findings(broker(), 7, proc)] == severities


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("localhost", True), ("192.0.2.1", False), ("x.invalid", False)],
)
def test_which_addresses_are_this_machines(host: str, expected: bool) -> None:
    assert is_local(host) is expected


# -- numbers of brokers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "limit", "severity"),
    [
        ("0.5", "75", None),
        ("0.76", "75", "warning"),
        ("0.76", "", "warning"),
        ("0.76", "85", None),
        ("0.93", "95", "problem"),
        ("-1", "75", None),
        ("full", "75", None),
    ],
)
def test_disks(ratio: str, limit: str, severity: str | None) -> None:
    found = list(disk_findings(broker(commitLogDiskRatio=ratio), limit))
    assert [finding.severity for finding in found] == ([severity] if severity else [])


def test_a_disk_that_is_shared_is_one_finding() -> None:
    runtime = {"commitLogDiskRatio": "0.931", "consumeQueueDiskRatio": "0.93"}
    places = [BrokerAddress("c", name, 0, f"127.0.0.1:{port}") for name, port in (("a", 1), ("b", 2))]
    brokers = [BrokerView(place, runtime, 0, 0) for place in places]
    (found,) = merged(finding for one in brokers for finding in disk_findings(one, "75"))
    assert found.where == "broker a (127.0.0.1:1), broker b (127.0.0.1:2)"
    assert found.what == "the disk of CommitLog and ConsumeQueues is 93% full"
    other = BrokerView(places[1], {"commitLogDiskRatio": "0.95"}, 0, 0)
    assert len(merged([*disk_findings(brokers[0], "75"), *disk_findings(other, "75")])) == 2


def test_a_fenced_store_is_a_problem_with_its_reason() -> None:
    (found,) = fence_findings(broker(storeFenced="the store takes no more messages: /store was moved"))
    assert (found.severity, found.what) == (
        Severity.PROBLEM,
        "the store takes no more messages: /store was moved",
    )
    assert not list(fence_findings(broker()))


def test_damage_known_from_before_the_start_is_not_called_nothing_lost() -> None:
    (found,) = damage_findings(broker(damagedLogStretches="1", damagedLogBytes="4096", lostMessages="0"))
    assert found.what == (
        "known damage in its CommitLog: 1 range, 4096 bytes; messages found lost since its start: 0"
    )
    assert "including those found lost before its start" in found.meaning
    assert "quarantine/damages.json" in found.cure
    assert "replica" not in found.meaning + found.cure
    (found,) = damage_findings(broker(damagedLogStretches="2", damagedLogBytes="9", lostMessages="3"))
    assert "2 ranges, 9 bytes; messages found lost since its start: 3" in found.what


async def test_a_brokers_clock_that_is_days_ahead_is_named_in_days() -> None:
    runtime = {"bootTimestamp": str(2 * 86_400_000), "runtime": "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"}
    view = BrokerView(broker().place, runtime, requested_ms=0, answered_ms=900)
    (found,) = await check_clocks(ClusterSnapshot(Mock(spec=Admin), 0, brokers=[view]))
    assert found.what == "its clock is at least 1d 23h 59m 59s ahead of this machine's"


def test_what_a_brokers_clock_shows() -> None:
    runtime = {"bootTimestamp": "1000000", "runtime": "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"}
    assert broker_clock_ms(runtime) == 1_000_000 + ((26 * 60 + 3) * 60 + 4) * 1000
    assert broker_clock_ms({"bootTimestamp": "1", "runtime": "long"}) is None
    assert broker_clock_ms({}) is None


@pytest.mark.parametrize(
    ("reported", "skew"),
    [(10_000, 0), (10_500, 0), (9_001, 0), (13_000, 2_500), (5_000, -4_000)],
)
def test_only_what_cannot_be_rounding_or_travel_is_skew(reported: int, skew: int) -> None:
    assert clock_skew_ms(reported, 10_000, 10_500) == skew


def test_a_broker_without_the_compiled_kernel_is_a_hint() -> None:
    (finding,) = kernel_findings(
        broker(compiledKernel="not in use: it was not built", compiledKernelCure="install a C compiler")
    )
    assert finding.severity is Severity.HINT
    assert finding.what == "it runs without the compiled kernel: it was not built"
    assert finding.cure == "install a C compiler"
    # Apache's brokers do not have the key.
    assert not list(kernel_findings(broker())) and not list(kernel_findings(broker(compiledKernel="in use")))
