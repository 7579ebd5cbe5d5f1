"""Peers at the HA port that are no slaves of this master: refused with one log line, nothing changed."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.protocol.ha import LogTail, encode_report
from kourou.transport.addresses import parse_address
from tests.e2e.broker.broker_kit import Peer, messages
from tests.e2e.broker.replication_kit import (
    HandSlave,
    equal,
    following,
    ha_address,
    links,
    log_bytes,
    log_end,
    master,
    namesrv,
    server,
    slave,
    until,
    warnings_of_port,
)

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        pytest.param(encode_report(-5), "these bytes are neither a hello nor a report", id="negative"),
        pytest.param(
            encode_report(1 << 40),
            f"its log ends at {1 << 40}, this one is from 0 to",
            id="beyond the end",
        ),
        pytest.param(b"GET / HTTP/1.1\r\n", "its log ends at", id="http"),
        pytest.param(b"\xffnonsense", "these bytes are neither a hello nor a report", id="not a hello"),
        pytest.param(random.Random(1).randbytes(3_000), "", id="random"),
    ],
)
async def test_what_is_not_a_slave_is_disconnected_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, raw: bytes, reason: str
) -> None:
    async with master(tmp_path) as of_master:
        await of_master.send()
        before = log_bytes(of_master)
        for _ in range(3):
            async with HandSlave.connected(of_master) as hand:
                await hand.write(raw)
                assert await hand.is_closed()
        assert not server(of_master).links
        (line,) = warnings_of_port(caplog)
        assert " is disconnected: " in line and reason in line
        assert log_bytes(of_master) == before
        assert len(messages(await of_master.pull())) == 1


async def test_an_offset_before_the_first_file_is_refused(tmp_path: Path) -> None:
    async with master(tmp_path) as of_master:
        for _ in range(30):
            await of_master.send(body=b"x" * 50_000)
        of_master.controller.services.store.log.delete_first()
        async with HandSlave.connected(of_master) as hand:
            await hand.report(500)
            assert await hand.is_closed()


async def test_a_report_beyond_the_log_ends_the_link(tmp_path: Path) -> None:
    async with master(tmp_path) as of_master, HandSlave.connected(of_master) as hand:
        await hand.report(0)
        await following(of_master, 1)
        await hand.report(1)
        assert await hand.is_closed()


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"cluster": "Other"}, "a slave of broker broker-a in cluster Other; this is broker broker-a in"),
        ({"broker_name": "broker-x"}, "a slave of broker broker-x in cluster DefaultCluster; this is broker"),
        (
            {"max_phy_offset": 9_999},
            "the slave's log ends at 9999, the master's at 0; they are the same up to 0",
        ),
    ],
)
async def test_a_slave_of_another_broker_gets_the_reason(
    tmp_path: Path, fields: dict[str, object], refusal: str
) -> None:
    async with master(tmp_path) as of_master, HandSlave.connected(of_master) as hand:
        answer = await hand.greet(**fields)
        assert answer.refusal.startswith(refusal)
        assert await hand.is_closed()


async def test_of_two_slaves_with_one_id_the_first_stays(tmp_path: Path) -> None:
    async with (
        master(tmp_path) as of_master,
        HandSlave.connected(of_master) as first,
        HandSlave.connected(of_master) as second,
        HandSlave.connected(of_master) as again,
    ):
        assert (await first.greet(address="one:1")).refusal == ""
        answer = await second.greet(address="two:1")
        assert answer.refusal == (
            "brokerId 1 is already connected from one:1; give each slave an id of its own"
        )
        assert (await again.greet(address="one:1")).refusal == "", "a slave may connect anew"
        assert await first.is_closed()
        assert len(links(of_master)) == 1


@contextlib.asynccontextmanager
async def silent_connections(peer: Peer, count: int) -> AsyncIterator[None]:
    """A stranger who holds so many connections to the port for slaves, and opens each anew that is closed."""

    async def hold() -> None:
        while True:
            with contextlib.suppress(ConnectionError):
                reader, writer = await asyncio.open_connection(*parse_address(ha_address(peer)))
                try:
                    await reader.read()
                finally:
                    writer.close()

    held = [asyncio.create_task(hold()) for _ in range(count)]
    try:
        await until(lambda: len(server(peer).links) >= min(count, 64), "the places are taken")
        yield
    finally:
        for each in held:
            each.cancel()
        await asyncio.gather(*held, return_exceptions=True)


@pytest.mark.parametrize("count", [64, 200])
async def test_silent_connections_keep_no_slave_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    async with namesrv() as address, master(tmp_path, address) as of_master:
        async with slave(tmp_path, address) as first:
            await following(of_master, 1)
            (before,) = links(of_master)
            async with silent_connections(of_master, count), slave(tmp_path, address, broker_id=2) as second:
                await following(of_master, 2)
                await of_master.send()
                await equal(of_master, first)
                await equal(of_master, second)
                assert before in links(of_master), "one that is a slave keeps its place"
                assert len(server(of_master).links) <= 64 + 2
        await until(lambda: not server(of_master).links, "all are gone")
        about_strangers = [line for line in warnings_of_port(caplog) if "closed for newer ones" in line]
        assert len(about_strangers) == 1 and "127.0.0.1" in about_strangers[0]


async def test_more_slaves_than_the_limit_are_refused_with_the_reason(tmp_path: Path) -> None:
    async with master(tmp_path) as of_master, contextlib.AsyncExitStack() as stack:
        for _ in range(64):
            hand = await stack.enter_async_context(HandSlave.connected(of_master))
            await hand.report(0)
        await following(of_master, 64)
        one_more, of_apache = [
            await stack.enter_async_context(HandSlave.connected(of_master)) for _ in range(2)
        ]
        assert (await one_more.greet()).refusal == "64 slaves are connected, which is the limit"
        await of_apache.report(0)
        assert await of_apache.is_closed()
        await following(of_master, 64)


async def test_one_that_reports_and_never_reads_costs_nothing(tmp_path: Path) -> None:
    async with master(tmp_path) as of_master, HandSlave.connected(of_master) as hand:
        await hand.report(0)
        await following(of_master, 1)
        for _ in range(200):
            assert (await of_master.send(body=b"x" * 60_000)).code == 0
        (link,) = links(of_master)
        assert link.next_phy_offset < log_end(of_master), "its socket is full"
        assert sum(map(len, link._unsent)) <= 32_768 + 12, "one transfer waits at most"
        await hand.report(link.ack_phy_offset)
        got = 0
        while got < log_end(of_master):
            got += len((await hand.transfer()).data)
        assert got == log_end(of_master)


async def test_a_slave_whose_connection_breaks_while_it_is_sent_to_fails_no_sender(tmp_path: Path) -> None:
    async with (
        master(tmp_path) as of_master,
        HandSlave.connected(of_master) as first,
        HandSlave.connected(of_master) as second,
    ):
        await first.report(0)
        await second.report(0)
        await following(of_master, 2)
        broken = links(of_master)[0]
        broken.pump = lambda: broken.close("Broken pipe")
        assert (await of_master.send()).code == 0
        assert len(links(of_master)) == 1


async def test_a_silent_slave_is_disconnected_and_a_quiet_master_is_heard(tmp_path: Path) -> None:
    async with master(tmp_path) as of_master, HandSlave.connected(of_master) as hand:
        await hand.report(0)
        await following(of_master, 1)
        now = asyncio.get_running_loop().time()
        server(of_master).tick(now + 6)
        transfer = await hand.transfer()
        assert (transfer.phy_offset, len(transfer.data)) == (0, 0), "a heartbeat"
        server(of_master).tick(now + 21)
        assert await hand.is_closed()


# -- logs that have parted -----------------------------------------------------------------------------------


async def test_a_slave_whose_master_lost_its_end_and_grew_again_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By offsets alone it would look as if nothing had happened."""
    async with namesrv() as address:
        async with master(tmp_path, address) as of_master:
            await of_master.send(body=b"kept")
            await of_master.controller.services.disk.run(of_master.controller.services.store.flush)
        shutil.copytree(tmp_path / "master", tmp_path / "older")
        async with master(tmp_path, address) as of_master, slave(tmp_path, address) as of_slave:
            await of_master.send(body=b"lost")
            await equal(of_master, of_slave)
            parted = log_end(of_slave)
        shutil.rmtree(tmp_path / "master")
        (tmp_path / "older").rename(tmp_path / "master")
        async with master(tmp_path, address) as of_master:
            for _ in range(3):
                await of_master.send(body=b"other")
            async with slave(tmp_path, address) as of_slave:
                before = log_bytes(of_slave)
                await until(lambda: "follows its master no more" in caplog.text, "it is reported")
                assert (
                    f"the slave's log ends at {parted}, the master's at {log_end(of_master)}" in caplog.text
                )
                assert log_bytes(of_slave) == before
                bodies = [message.body for message in messages(await of_slave.pull())]
                assert bodies == [b"kept", b"lost"], "it serves what it has"
                why_not = await of_slave.controller.why_not_ready() or ""
                assert why_not.startswith(
                    f"it no longer follows its master: the slave's log ends at {parted}"
                )
                assert "docs/replication.md" in why_not and "\n" not in why_not


async def test_a_hello_with_other_bytes_is_refused(tmp_path: Path) -> None:
    async with master(tmp_path) as of_master, HandSlave.connected(of_master) as hand:
        await of_master.send()
        end = log_end(of_master)
        answer = await hand.greet(max_phy_offset=end, tail=LogTail.of(0, bytes(end)))
        assert answer.is_diverged and f"they differ between 0 and {end}" in answer.refusal
