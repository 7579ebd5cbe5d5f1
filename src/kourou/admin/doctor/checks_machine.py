"""Checks of this machine, for brokers on it: file system, I/O scheduler and limits of the store.

Linux only: they read /proc and /sys, whose paths are arguments of the functions.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kourou.admin.brokers import broker_configs
from kourou.admin.doctor.cluster_snapshot import BrokerView, ClusterSnapshot
from kourou.admin.doctor.findings import Finding, Severity, merged

PROC: Final = Path("/proc")
SYS: Final = Path("/sys")
_CHECK: Final = "machine"
_FEW_OPEN_FILES: Final = 4_096
_MIN_OPEN_FILES: Final = 65_535
_LISTENING: Final = "0A"
_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_CONTAINER: Final = frozenset({"overlay", "aufs"})
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "glusterfs", "virtiofs"})
_COPYING: Final = frozenset({"btrfs", "zfs"})
_SLOW_SCHEDULERS: Final = frozenset({"bfq", "cfq"})
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """The file system that contains a folder."""

    device: str
    path: str
    kind: str


async def check_machine(snapshot: ClusterSnapshot) -> list[Finding]:
    """Brokers at an address of this machine whose store is here."""
    findings: list[Finding] = []
    for broker in snapshot.brokers:
        host, _, port = broker.place.address.rpartition(":")
        if broker.problem or not await asyncio.to_thread(is_local, host):
            continue
        if not PROC.is_dir():
            snapshot.skip(
                _CHECK, broker.where, "file systems and limits are read from /proc, which needs Linux"
            )
            continue
        folder = await _store_folder(snapshot, broker)
        if folder is not None:
            findings += await asyncio.to_thread(folder_findings, broker, folder)
        pid = await asyncio.to_thread(listening_pid, int(port))
        if pid is None:
            snapshot.skip(_CHECK, broker.where, f"the process that listens on port {port} is not visible")
        else:
            findings += limit_findings(broker, pid)
    return merged(findings)


async def _store_folder(snapshot: ClusterSnapshot, broker: BrokerView) -> Path | None:
    (config,) = await broker_configs(snapshot.admin, [broker.place.address])
    text = config.config.get("storePathRootDir", "")
    folder = Path(text)
    if not text or not await asyncio.to_thread(folder.is_dir):
        snapshot.skip(_CHECK, broker.where, f"its store, {text or 'unknown'}, is not on this machine")
        return None
    return folder


def is_local(host: str) -> bool:
    """Whether an address or host name belongs to this machine."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind(place)
    except OSError:
        return False
    return True


# -- file system and scheduler -----------------------------------------------------------------------


def folder_findings(broker: BrokerView, folder: Path, *, proc: Path = PROC, sys: Path = SYS) -> list[Finding]:
    """Problems of a store's file system and disk."""
    mount = mount_of(folder, proc)
    if mount is None:
        return []
    scheduler = scheduler_of(folder, sys)
    slow = [_slow_scheduler(broker, mount, scheduler)] if scheduler in _SLOW_SCHEDULERS else []
    return [*_file_system(broker, mount), *slow]


def _slow_scheduler(broker: BrokerView, mount: Mount, scheduler: str | None) -> Finding:
    return Finding(
        severity=Severity.HINT,
        check=_CHECK,
        where=broker.where,
        what=f"the I/O scheduler of {mount.device} is {scheduler}",
        meaning="it divides the disk fairly between programs: flushes of the CommitLog wait for others",
        cure="write mq-deadline (none for NVMe) to /sys/block/DEVICE/queue/scheduler, and into the boot "
        "settings",
    )


def _file_system(broker: BrokerView, mount: Mount) -> Iterator[Finding]:
    severity, meaning, cure = Severity.WARNING, "", "put the store on a local disk with ext4 or xfs"
    if mount.kind in _MEMORY:
        severity = Severity.PROBLEM
        meaning = "it is in memory: all messages are lost when the machine restarts"
    elif mount.kind in _CONTAINER:
        meaning = "it is the layer of a container: slow, and deleted with the container"
        cure = "mount a volume at the store directory"
    elif mount.kind in _REMOTE or mount.kind.startswith("fuse"):
        meaning = "every flush crosses the network or another program, and locks may not work"
    elif mount.kind in _COPYING:
        severity = Severity.HINT
        meaning = "it copies on write, which slows down appends and flushes"
        cure = "use ext4 or xfs, or disable copy-on-write for the store directory (chattr +C on btrfs)"
    if meaning:
        yield Finding(
            severity=severity,
            check=_CHECK,
            where=broker.where,
            what=f"the store is on {mount.kind} ({mount.path})",
            meaning=meaning,
            cure=cure,
        )


def mount_of(folder: Path, proc: Path = PROC) -> Mount | None:
    """The mount that contains a folder; None if unknown."""
    try:
        lines = (proc / "mounts").read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return None
    real = folder.resolve()
    found: Mount | None = None
    for line in lines:
        words = [_OCTAL.sub(lambda code: chr(int(code[1], 8)), word) for word in line.split(" ")]
        # Of several mounts at the same path the last one is visible.
        if (
            len(words) > 2
            and real.is_relative_to(words[1])
            and (found is None or len(words[1]) >= len(found.path))
        ):
            found = Mount(*words[:3])
    return found


def scheduler_of(folder: Path, sys: Path = SYS) -> str | None:
    """The I/O scheduler of a folder's disk; None if there is none or it is unknown."""
    number = os.stat(folder).st_dev
    device = sys / "dev" / "block" / f"{os.major(number)}:{os.minor(number)}"
    # The queue of a partition is in the parent folder.
    for place in (device, device / ".."):
        try:
            text = (place / "queue" / "scheduler").read_text("utf-8")
        except OSError:
            continue
        chosen = re.search(r"\[(\S+)\]", text)
        return chosen[1] if chosen else text.strip() or None
    return None


# -- limits ------------------------------------------------------------------------------------------


def listening_pid(port: int, proc: Path = PROC) -> int | None:
    """The process that listens on a port; None if it is not visible to us."""
    inodes = {f"socket:[{inode}]" for inode in _listening_inodes(port, proc)}
    if not inodes:
        return None
    for process in proc.iterdir():
        if not process.name.isdecimal():
            continue
        try:
            if any(os.readlink(link) in inodes for link in (process / "fd").iterdir()):
                return int(process.name)
        except OSError:
            continue
    return None


def _listening_inodes(port: int, proc: Path) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / name).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for words in map(str.split, lines):
            if len(words) > 9 and words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                yield words[9]


def limit_findings(broker: BrokerView, pid: int, proc: Path = PROC) -> Iterator[Finding]:
    """Problems with the limits of a broker's process."""
    try:
        text = (proc / str(pid) / "limits").read_text("ascii")
    except OSError:
        return
    found = re.search(r"^Max open files\s+(\S+)", text, re.MULTILINE)
    if found is None or found[1] == "unlimited" or int(found[1]) >= _MIN_OPEN_FILES:
        return
    yield Finding(
        severity=Severity.WARNING if int(found[1]) < _FEW_OPEN_FILES else Severity.HINT,
        check=_CHECK,
        where=broker.where,
        what=f"process {pid} is limited to {found[1]} open files",
        meaning="each connection and queue file uses one; at the limit the broker refuses clients or stops",
        cure=f"raise it to {_MIN_OPEN_FILES} or more: LimitNOFILE in its systemd unit, or ulimit -n",
    )
