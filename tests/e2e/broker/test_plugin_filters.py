"""Consumers that get what an installed filter lets through, from a real broker with real processes."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from kourou.broker.filters import plugin_host
from kourou.protocol.bodies import CheckClientRequestBody, SubscriptionData, encode_body
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pull import PullMessageResponseHeader
from tests.e2e.broker.broker_kit import SUBSCRIPTION, SUSPEND, Peer, messages, pull_header, running

pytestmark = pytest.mark.e2e

JSON = "json $.n > 5"
PACKAGE = '''
import os, pathlib, time

class Moods:
    """Passes bodies that begin with its parameter; some bodies make it fail."""

    def __init__(self, parameters):
        if parameters == "bad":
            raise ValueError("bad is no prefix")
        self.prefix = parameters.encode()

    def matches(self, records):
        verdicts = []
        for record in records:
            body = bytes(record.body)
            if body == b"raise":
                raise RuntimeError("this body")
            if body == b"sleep":
                pathlib.Path(__file__).parents[1].joinpath("asleep").touch()
                time.sleep(30)
            if body == b"exit":
                os._exit(3)
            if body == b"memory":
                bytearray(4 << 30)
            print("judged", body)
            verdicts.append(body.startswith(self.prefix))
        return verdicts
'''
HANGING = """
import asyncio, pathlib, re

STARTED = pathlib.Path(__file__).with_name("started")

class Hanging:
    def __init__(self, parameters):
        pass

    def matches(self, records):
        STARTED.touch()
        re.match("(a+)+$", "a" * 60 + "b")  # for years, in C

async def main():
    from kourou.broker.filters.filter_process import FilterProcess

    process = FilterProcess("hanging", "hanging:Hanging", 0)
    call = asyncio.ensure_future(process.call("", [bytes(100)], 60))
    while not STARTED.exists():
        await asyncio.sleep(0.02)
    print(process.pid, flush=True)
    await call

if __name__ == "__main__":
    asyncio.run(main())
"""
PAGE = Path(__file__).parents[3] / "docs" / "filters.md"


def install(root: Path, monkeypatch: pytest.MonkeyPatch, name: str, program: str, entry_points: str) -> None:
    """A package with filters, as pip installs it."""
    folder = root / "site"
    info = folder / f"{name}-1.dist-info"
    info.mkdir(parents=True)
    (folder / f"{name}.py").write_text(program)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(f"[kourou.filters]\n{entry_points}")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entry_points = "moods = moods_package:Moods\ngone = no_such_module:Filter\n"
    install(tmp_path, monkeypatch, "moods_package", PACKAGE, entry_points)


def bodies(answer: RemotingCommand) -> list[bytes]:
    return [message.body for message in messages(answer)]


async def send_all(peer: Peer, *contents: bytes) -> None:
    for body in contents:
        await peer.send(body=body)


async def pull_by(peer: Peer, expression: str, queue_offset: int = 0, **fields: object) -> RemotingCommand:
    """A pull with time for a filter to start, on a machine that does much else."""
    header = pull_header(
        "TopicTest", queue_offset, expression_type="PLUGIN", subscription=expression, **fields
    )
    return await peer.call(RequestCode.PULL_MESSAGE, header, timeout_ms=20_000)


def pids(peer: Peer) -> list[int]:
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [pid for pid in map(int, children) if b"kourou.filters.worker" in _command_line(pid)]


def _is_running(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and bool(_command_line(pid))


def _command_line(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


# -- what passes ---------------------------------------------------------------------------------


async def test_messages_are_selected_by_what_is_in_their_json(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_all(peer, *(b'{"n":%d}' % number for number in range(10)), b"no JSON")
        answer = await pull_by(peer, JSON)
        assert bodies(answer) == [b'{"n":%d}' % number for number in range(6, 10)]
        assert answer.header(PullMessageResponseHeader).next_begin_offset == 11
        # Clients that know no type PLUGIN write it as SQL92.
        answer = await peer.pull(expression_type="SQL92", subscription="PLUGIN json $.n = 3")
        assert bodies(answer) == [b'{"n":3}']


async def test_a_pull_goes_through_many_batches(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await asyncio.gather(*(peer.send(body=b'{"n":%d}' % number) for number in range(700)))
        answer = await pull_by(peer, "json $.n >= 698", max_msg_nums=2)
        assert sorted(bodies(answer)) == [b'{"n":698}', b'{"n":699}']
        answer = await pull_by(peer, "json $.n > 5000")
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert answer.header(PullMessageResponseHeader).next_begin_offset == 700


async def test_a_pull_that_waits_gets_a_message_that_passes(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        await send_all(peer, b'{"n":1}')
        waiting = asyncio.ensure_future(pull_by(peer, JSON, 1, sys_flag=SUBSCRIPTION | SUSPEND))
        await asyncio.sleep(0.1)
        await send_all(peer, b'{"n":7}')
        assert bodies(await waiting) == [b'{"n":7}']


async def test_installed_filters_are_found_by_their_entry_point(tmp_path: Path, installed: None) -> None:
    async with running(tmp_path) as peer:
        await send_all(peer, b"apple", b"pear", b"ash")
        assert bodies(await pull_by(peer, "moods a")) == [b"apple", b"ash"]
        assert len(pids(peer)) == 1
    assert pids(peer) == []


async def test_the_filter_of_the_documentation_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    (entry_point,) = re.findall(r'^prefix = "(.*)"$', PAGE.read_text(), re.M)
    install(tmp_path, monkeypatch, "my_filters", program, f"prefix = {entry_point}\n")
    async with running(tmp_path) as peer:
        await send_all(peer, b"order-1", b"bill-1", b"order-2")
        assert bodies(await pull_by(peer, "prefix order-")) == [b"order-1", b"order-2"]
        assert "a prefix is needed, such as order-" in ((await pull_by(peer, "prefix")).remark or "")


# -- what is refused -----------------------------------------------------------------------------


async def check(peer: Peer, expression: str) -> RemotingCommand:
    """What a client asks before it starts."""
    subscription = SubscriptionData("TopicTest", expression, expression_type="PLUGIN")
    body = encode_body(CheckClientRequestBody("c1", "consumers", subscription_data=subscription))
    return await peer.call(RequestCode.CHECK_CLIENT_CONFIG, body=body, timeout_ms=20_000)


async def test_what_cannot_be_is_refused_in_words(tmp_path: Path, installed: None) -> None:
    async with running(tmp_path, filter_plugins="moods, gone") as peer:
        await send_all(peer, b"apple")
        refused = {
            "json $.n > 5": "no filter 'json' is installed at this broker; there are: gone, moods",
            "moods bad": "the filter moods does not accept its parameters: bad is no prefix",
        }
        for expression, words in refused.items():
            pulled = await pull_by(peer, expression)
            for answer in (pulled, await check(peer, expression)):
                assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
                assert answer.remark is not None and answer.remark.endswith(words)
        assert (await check(peer, "moods a")).code == 0
        answer = await check(peer, "gone x")
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "no_such_module:Filter cannot be loaded: ModuleNotFoundError" in (answer.remark or "")


# -- filters that fail ---------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [b"raise", b"sleep", b"exit", b"memory"])
async def test_a_message_that_a_filter_fails_on_is_delivered(
    tmp_path: Path, installed: None, bad: bytes
) -> None:
    async with running(tmp_path, filter_plugin_timeout_millis=1_000) as peer:
        await send_all(peer, b"apple", b"pear", bad, b"ash", b"plum")
        assert bodies(await pull_by(peer, "moods a")) == [b"apple", bad, b"ash"]
        counts = peer.controller.services.plugins.counts()["moods"]
        assert (counts.passed, counts.rejected, counts.failed) == (2, 2, 1)
        assert (counts.incidents > 0) == (bad in (b"sleep", b"exit"))
        await send_all(peer, b"almond")
        assert bodies(await pull_by(peer, "moods a", queue_offset=5)) == [b"almond"]


async def test_a_consumer_that_goes_away_leaves_the_process_to_the_others(
    tmp_path: Path, installed: None
) -> None:
    async with running(tmp_path) as peer:
        await send_all(peer, b"apple")
        plugins = peer.controller.services.plugins
        wanted = plugins.find("moods a")
        await plugins.check(wanted)
        (pid,) = pids(peer)
        gone = asyncio.ensure_future(plugins.check(wanted))
        await asyncio.sleep(0)
        gone.cancel()
        assert bodies(await pull_by(peer, "moods a")) == [b"apple"]
        assert gone.cancelled()
        assert pids(peer) == [pid]


async def test_a_stop_does_not_wait_for_a_filter_that_hangs(tmp_path: Path, installed: None) -> None:
    async with running(tmp_path, filter_plugin_timeout_millis=300_000) as peer:
        await send_all(peer, b"sleep")
        waiting = asyncio.ensure_future(pull_by(peer, "moods a"))
        async with asyncio.timeout(20):
            while not (tmp_path / "asleep").exists():  # noqa: ASYNC110, ASYNC240
                await asyncio.sleep(0.05)
        async with asyncio.timeout(20):  # less than the filter sleeps
            await peer.controller.services.plugins.stop()
        assert (await waiting).code == ResponseCode.SYSTEM_BUSY
    assert pids(peer) == []


async def test_a_slow_filter_holds_up_nothing_else(tmp_path: Path, installed: None) -> None:
    async with running(tmp_path, filter_plugin_timeout_millis=2_000) as peer:
        await send_all(peer, b"sleep")
        slow = asyncio.ensure_future(pull_by(peer, "moods a"))
        for _ in range(20):
            await send_all(peer, b"x")
            assert bodies(await peer.pull(queue_offset=1))
        assert not slow.done()
        assert bodies(await slow)[0] == b"sleep"


async def test_a_filter_that_fails_on_everything_is_fenced(tmp_path: Path, installed: None) -> None:
    async with running(tmp_path, filter_plugin_fence_millis=500) as peer:
        await send_all(peer, *[b"raise"] * 25, b"apple")
        answer = await pull_by(peer, "moods a")
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert (
            answer.remark is not None and "it failed on 20 messages in a row: RuntimeError" in answer.remark
        )
        assert peer.controller.services.plugins.fenced().keys() == {"moods"}
        again = await pull_by(peer, "moods a", queue_offset=25)
        assert again.code == ResponseCode.SYSTEM_BUSY, "other pulls by it, too"
        # Other filters are not concerned.
        assert (await pull_by(peer, JSON)).code == ResponseCode.PULL_RETRY_IMMEDIATELY
        async with asyncio.timeout(20):
            while again.code == ResponseCode.SYSTEM_BUSY:
                await asyncio.sleep(0.05)
                again = await pull_by(peer, "moods a", queue_offset=25)
        assert bodies(again) == [b"apple"]


async def test_a_filter_that_is_slow_again_and_again_is_fenced(tmp_path: Path, installed: None) -> None:
    async with running(tmp_path, filter_plugin_timeout_millis=300) as peer:
        await send_all(peer, b"sleep", b"sleep", b"sleep", b"apple")
        # Each pull has a message that it is slow on: this is delivered, three times.
        for offset in range(3):
            assert bodies(await pull_by(peer, "moods a", offset))[-1] == b"apple"
        answer = await pull_by(peer, "moods a", 3)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "it took longer than 300 ms (filterPluginTimeoutMillis)" in (answer.remark or "")


async def test_a_filter_that_hangs_on_all_messages_of_a_batch_is_fenced(
    tmp_path: Path, installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_host, "_MAX_INCIDENTS_OF_A_BATCH", 4)
    async with running(tmp_path, filter_plugin_timeout_millis=100) as peer:
        await send_all(peer, *[b"sleep"] * 16)
        answer = await pull_by(peer, "moods a")
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert "it took longer than 100 ms" in (answer.remark or "")
        assert peer.controller.services.plugins.counts()["moods"].incidents == 4


async def test_a_filter_that_hangs_ends_with_a_broker_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(HANGING)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    broker = await asyncio.create_subprocess_exec(
        sys.executable, tmp_path / "hanging.py", stdout=asyncio.subprocess.PIPE, env=environment
    )
    assert broker.stdout is not None
    pid = int(await broker.stdout.readline())
    assert _command_line(pid)
    broker.kill()
    await broker.wait()
    async with asyncio.timeout(10):
        while _is_running(pid):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
