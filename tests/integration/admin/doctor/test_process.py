"""doctor in a process of its own: it reports the same, and it always ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.admin.doctor import process as doctor_process
from kourou.admin.doctor.doctor import diagnose
from kourou.admin.doctor.process import diagnose_apart
from kourou.admin.session import Admin
from kourou.client.core.credentials import Credentials
from kourou.errors import KourouError, NoNameServerError
from kourou.testing.cluster import Cluster, cluster
from kourou.transport.settings import ClientTlsConfig
from tests.integration.admin.group_kit import until


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path / "cluster") as started:
        yield started


def children(pid: int | str = "self") -> set[int]:
    """The processes that this one, or another, has started and not yet collected."""
    found = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
            found |= set(map(int, (task / "children").read_text().split()))
    return found


async def child(others: set[int]) -> Path:
    """Wait until another process was started, and has become doctor; its folder below /proc."""

    async def started() -> Path | None:
        new = children() - others
        return _doctor(new.pop()) if new else None

    return await until(started)


def _doctor(pid: int) -> Path | None:
    proc = Path("/proc", str(pid))
    return proc if b"kourou.admin.doctor.process" in (proc / "cmdline").read_bytes() else None


async def test_it_reports_what_doctor_finds(running: Cluster) -> None:
    async with Admin(namesrv=running.namesrv_addr) as admin:
        apart = await diagnose_apart(admin, watch_s=0)
        here = await diagnose(admin, watch_s=0)
    assert (apart.brokers, apart.topics, apart.slaves) == (here.brokers, here.topics, here.slaves)
    assert {(one.check, one.where, one.severity) for one in apart.findings} == {
        (one.check, one.where, one.severity) for one in here.findings
    }


async def test_secrets_are_in_neither_its_command_line_nor_its_environment(running: Cluster) -> None:
    others = children()
    tls = ClientTlsConfig(key_password="w0rd-of-tls", trust_cert_path=Path("/certs"))
    credentials = Credentials("key", "w0rd-of-acl")
    async with Admin(namesrv=running.namesrv_addr, credentials=credentials, tls=tls) as admin:
        examination = asyncio.create_task(diagnose_apart(admin, watch_s=0))
        proc = await child(others)
        shown = (proc / "cmdline").read_bytes() + (proc / "environ").read_bytes()
        report = await examination
    assert b"w0rd" not in shown
    assert report.brokers == 1


@pytest.mark.parametrize("how", ["cancelled", "too late"])
async def test_no_process_is_left(running: Cluster, how: str) -> None:
    others = children()
    async with Admin(namesrv=running.namesrv_addr) as admin:
        limit_s = 60 if how == "cancelled" else 0.2
        examination = asyncio.create_task(diagnose_apart(admin, watch_s=60, limit_s=limit_s))
        if how == "cancelled":
            await child(others)
            examination.cancel()
        with pytest.raises((asyncio.CancelledError, KourouError)) as raised:
            await examination
    assert how == "cancelled" or "not finished within 0.2 s" in str(raised.value)
    assert children() <= others


async def test_a_process_that_dies_is_reported(running: Cluster) -> None:
    others = children()
    async with Admin(namesrv=running.namesrv_addr) as admin:
        examination = asyncio.create_task(diagnose_apart(admin, watch_s=60))
        os.kill(int((await child(others)).name), signal.SIGKILL)
        with pytest.raises(KourouError, match="its process ended with code -9: no output"):
            await examination


async def test_a_process_that_cannot_start_is_reported(
    running: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_process, "_COMMAND", ("-c", "raise SystemExit('no such program')"))
    async with Admin(namesrv=running.namesrv_addr) as admin:
        with pytest.raises(KourouError, match="ended with code 1: no such program"):
            await diagnose_apart(admin)


async def test_a_cluster_that_is_away_needs_no_process() -> None:
    others = children()
    async with Admin(namesrv="127.0.0.1:1") as admin:
        with pytest.raises(NoNameServerError):
            await diagnose_apart(admin)
    assert children() <= others


async def test_it_ends_with_its_parent(running: Cluster) -> None:
    """A console that is killed leaves no examination behind."""
    options = f"namesrv={running.namesrv_addr!r}"
    program = (
        "import asyncio\n"
        "from kourou.admin.session import Admin\n"
        "from kourou.admin.doctor.process import diagnose_apart\n"
        "async def main():\n"
        f"    async with Admin({options}) as admin:\n"
        "        await diagnose_apart(admin, watch_s=60)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program)

    async def grandchild() -> Path | None:
        found = children(parent.pid)
        return _doctor(found.pop()) if found else None

    proc = await until(grandchild)
    parent.kill()
    await parent.wait()

    async def ended() -> bool | None:
        return None if _is_running(proc) else True

    assert await until(ended)


def _is_running(proc: Path) -> bool:
    try:
        state = (proc / "stat").read_text().rpartition(") ")[2][0]
    except OSError:
        return False
    return state != "Z"  # an orphan, whose new parent has not collected it yet
