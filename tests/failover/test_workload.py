"""The workload at one broker that dies: the history has every kind of outcome, and the checker's verdict is
right about a broker that keeps its promises and about one that loses its store."""

from __future__ import annotations

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.config.namesrv import NamesrvConfig
from kourou.namesrv.server import NameServer
from tests.crash.killed_broker import KilledBroker
from tests.failover.findings import Fault
from tests.failover.history import read_history
from tests.failover.producers import SENDERS
from tests.failover.workload import Workload, WorkloadOptions

pytestmark = [pytest.mark.crash, pytest.mark.slow]

_TRANSACTIONS = {
    "transactionTimeOut": 500,
    "transactionCheckInterval": 200,
    "transactionCheckMax": 10_000,
}


@pytest.fixture
async def namesrv() -> AsyncIterator[str]:
    async with NameServer(NamesrvConfig(listen_port=0, bind_address="127.0.0.1")) as server:
        yield server.address


async def test_a_broker_that_is_killed_and_stopped_keeps_its_promises(tmp_path: Path, namesrv: str) -> None:
    broker = KilledBroker(tmp_path, namesrvAddr=namesrv, **_TRANSACTIONS)
    broker.start()
    try:
        options = WorkloadOptions(seed=1, rate=40, send_timeout_ms=1_000, attempt_timeout_ms=400)
        async with Workload(namesrv, tmp_path / "history.jsonl", options) as work:
            await asyncio.sleep(1)
            work.history.event("fault", "kill -9")
            broker.kill()
            await asyncio.sleep(1.5)  # longer than a send: some fail without having been stored
            await asyncio.to_thread(broker.start)
            await asyncio.sleep(1)
            work.history.event("fault", "stopped for longer than a send")
            broker.process.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(1.5)
            broker.process.process.send_signal(signal.SIGCONT)
            await asyncio.sleep(1)
            report = await work.finish()
    finally:
        broker.kill()
    assert not report.findings, report.text()
    for name, count in report.counts.items():
        assert count, f"{name}: {report.text()}"
    operations = list(read_history(tmp_path / "history.jsonl"))
    # The broker was away, and each kind of producer has had an acknowledgement before and after that.
    events = [each.begin_ns for each in operations if each.kind == "event"]
    acknowledged = [
        each
        for each in operations
        if each.kind in ("send", "transaction", "publish") and each.is_acknowledged
    ]
    for kind in (sender.kind for sender in SENDERS):
        times = [each.begin_ns for each in acknowledged if each.process.startswith(f"{kind}-0")]
        assert min(times) < events[0] and max(times) > events[-1], kind
    assert any(each.kind == "check" for each in operations)
    assert {each.group for each in operations if each.kind == "drain"} == {
        "chaos-orderly",
        "chaos-concurrent",
    }


def _remove_messages(store: Path) -> None:
    """All but the tables."""
    for each in store.iterdir():
        if each.is_file():
            each.unlink()
        elif each.name != "config":
            shutil.rmtree(each)


async def test_a_broker_that_loses_its_store_is_found_out(tmp_path: Path, namesrv: str) -> None:
    broker = KilledBroker(tmp_path, namesrvAddr=namesrv, **_TRANSACTIONS)
    broker.start()
    try:
        options = WorkloadOptions(seed=1, rate=40, send_timeout_ms=1_000, attempt_timeout_ms=400, settle_s=2)
        async with Workload(namesrv, tmp_path / "history.jsonl", options) as work:
            await asyncio.sleep(1)
            broker.kill()
            _remove_messages(broker.store)
            await asyncio.to_thread(broker.start)
            await asyncio.sleep(2)
            report = await work.finish()
    finally:
        broker.kill()
    assert report.faults[Fault.LOST] > 10, report.text()
    assert report.faults[Fault.TWO_VALUES] > 10, report.text()
