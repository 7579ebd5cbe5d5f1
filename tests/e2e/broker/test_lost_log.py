"""A broker whose log is moved away, removed or cut short while it runs: it takes no more messages, says why,
serves what it can read, and stops without an error."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kourou.broker.storage import flush_service
from kourou.broker.storage.disk_threads import _THREADS
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.store.disk.files import Files
from tests.e2e.broker.broker_kit import Peer, messages, running

pytestmark = pytest.mark.e2e


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush_service, "LOOK_AT_LOG_S", 0.01)


def move_store(root: Path) -> None:
    (root / "store").rename(root / "elsewhere")


def replace_store(root: Path) -> None:
    shutil.copytree(root / "store", root / "other")
    move_store(root)
    # At once: a broker that looks in between finds no folder at all.
    (root / "other").rename(root / "store")


def remove_log(root: Path) -> None:
    shutil.rmtree(root / "store" / "commitlog")


def cut_log(root: Path) -> None:
    """Behind the first messages."""
    os.truncate(root / "store" / "commitlog" / "0".zfill(20), 64 * 1024)


async def until_fenced(peer: Peer) -> None:
    async with asyncio.timeout(30):
        while not peer.controller.services.store.appender.is_fenced:  # noqa: ASYNC110 (nothing tells us)
            await asyncio.sleep(0.005)


async def until_threads_are_free(peer: Peer) -> None:
    """What was being written when the folder went is written by then."""
    all_free = threading.Barrier(_THREADS)
    await asyncio.gather(*(peer.controller.services.disk.run(all_free.wait) for _ in range(_THREADS)))


@pytest.mark.parametrize(
    ("damage", "flush", "words"),
    [
        (move_store, "SYNC_FLUSH", "was moved or removed while the broker was running"),
        (replace_store, "ASYNC_FLUSH", "was replaced by another folder"),
        (remove_log, "SYNC_FLUSH", "was removed while it was in use"),
        (cut_log, "ASYNC_FLUSH", "was cut short while it was in use"),
    ],
)
async def test_a_broker_without_its_log_refuses_sends_serves_pulls_and_stops(
    tmp_path: Path,
    damage: Callable[[Path], None],
    flush: str,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    rarely_ms = 600_000
    async with running(
        tmp_path,
        files=Files(),
        flush_disk_type=flush,
        flush_interval_consume_queue=rarely_ms,
        flush_consumer_offset_interval=rarely_ms,
    ) as peer:
        for number in range(3):
            assert (await peer.send(body=b"%d" % number)).code == ResponseCode.SUCCESS
        damage(tmp_path)
        await until_fenced(peer)
        await until_threads_are_free(peer)
        refused = await peer.send()
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert words in (refused.remark or "")
        assert words in (await peer.controller.why_not_ready() or "")
        reported = await peer.call(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert words in json.loads(reported.body)["table"]["storeFenced"]
        pulled = await peer.pull()
        assert [message.body for message in messages(pulled)] == [b"0", b"1", b"2"], pulled
        left = set((tmp_path / "store").rglob("*"))
    elsewhere = tmp_path / "elsewhere"
    if elsewhere.exists():
        assert set((tmp_path / "store").rglob("*")) == left, (
            "nothing is written in the place of a moved store"
        )
    assert ((elsewhere if elsewhere.exists() else tmp_path / "store") / "abort").exists()
    assert not [record for record in caplog.records if record.exc_info]
    assert len([record for record in caplog.records if record.levelno >= logging.CRITICAL]) == 1


async def test_what_lay_in_the_part_that_was_cut_off_is_answered_with_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, files=Files()) as peer:
        await peer.send(body=bytes(60_000))
        await peer.send(body=bytes(60_000))
        cut_log(tmp_path)
        answer = await peer.pull(queue_offset=1)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "cut short while it was in use" in (answer.remark or "")
        assert len(messages(await peer.pull(max_msg_nums=1))) == 1
    assert not [record for record in caplog.records if record.exc_info]
