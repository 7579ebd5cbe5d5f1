"""Pid files: which servers of this user run on this machine, and whether they still do.

One JSON file a server, `<folder>/<host name>/<component>-<port>.pid`, with `starting-<pid>` in place of the
port until it serves:
{"pid": 4711, "component": "namesrv", "address": "0.0.0.0:9876", "started": "…"}. `started` is the start time
of the process according to the operating system: a process id that was reused by another program does not
match, so no foreign process is stopped.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

_log = logging.getLogger(__name__)

STARTING = ""
"""The address of a server that does not serve yet."""
_PS_TIMEOUT_SECONDS = 5


@dataclass(frozen=True)
class RunningServer:
    """The content of a pid file."""

    pid: int
    component: str
    address: str
    started: str

    @property
    def is_running(self) -> bool:
        """Whether the very process that wrote the file still runs."""
        return process_started(self.pid) == self.started


@contextmanager
def pid_file(folder: Path, component: str, address: str) -> Iterator[Path | None]:
    """Note that this process serves `address`, for as long as the context lasts; STARTING: it does not yet.

    Where the note cannot be written, the server runs all the same, and only `mqshutdown` misses it.
    """
    pid = os.getpid()
    server = RunningServer(pid, component, address, process_started(pid) or "")
    port = address.rpartition(":")[2] or f"starting-{pid}"
    path = _free_path(_host_folder(folder), component, port, pid)
    try:
        _write(path, server)
    except OSError as error:
        _log.warning("pid file %s: cannot be written: %s; mqshutdown will not find this server", path, error)
        yield None
        return
    try:
        yield path
    finally:
        if _read(path) == server:
            path.unlink(missing_ok=True)


def running_servers(folder: Path, component: str) -> list[RunningServer]:
    """Every server of that kind that runs here now. Files of servers that do not are removed."""
    found = []
    for path in sorted(_host_folder(folder).glob(f"{component}-*.pid")):
        server = _read(path)
        if server is not None and server.is_running:
            found.append(server)
        else:
            # Another call may have tidied up at the same moment.
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    serving = {server.pid for server in found if server.address != STARTING}
    return [server for server in found if server.address != STARTING or server.pid not in serving]


def process_started(pid: int) -> str | None:
    """When a process began, in words that only compare; None where it does not run any more."""
    if Path("/proc/self/stat").exists():
        return _started_by_proc(pid)
    return _started_by_ps(pid)


def _free_path(folder: Path, component: str, port: str, pid: int) -> Path:
    """The file of a port; with the pid in its name where a live server has that already.

    Two servers may have one port at two addresses of the machine.
    """
    path = folder / f"{component}-{port}.pid"
    other = _read(path)
    return folder / f"{component}-{port}-{pid}.pid" if other is not None and other.is_running else path


def _host_folder(folder: Path) -> Path:
    # A home folder may be shared between machines, process ids are not.
    return folder / (socket.gethostname() or "localhost")


def _write(path: Path, server: RunningServer) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{server.pid}")
    temporary.write_text(json.dumps(asdict(server)) + "\n")
    temporary.replace(path)


def _read(path: Path) -> RunningServer | None:
    try:
        fields = json.loads(path.read_text())
        return RunningServer(
            int(fields["pid"]), str(fields["component"]), str(fields["address"]), str(fields["started"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _started_by_proc(pid: int) -> str | None:
    """Boot id and start time of Linux; a process that ended and waits for its parent counts as gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    # The second field is the program's name in brackets, which may itself hold blanks and brackets.
    fields = stat.rpartition(")")[2].split()
    state, start_ticks = fields[0], fields[19]
    return None if state in "ZX" else f"{boot}/{start_ticks}"


def _started_by_ps(pid: int) -> str | None:
    ps = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    try:
        done = subprocess.run(ps, capture_output=True, text=True, timeout=_PS_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    state, _, started = done.stdout.strip().partition(" ")
    return started.strip() if started and not state.startswith("Z") else None
