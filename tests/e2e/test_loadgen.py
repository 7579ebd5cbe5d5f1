"""The load generator of the benchmarks against a real broker: what it counts is what is stored."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks._broker_loadgen import Loadgen, LoadgenError, build

from tests.interop.kit.kourou_broker import launch_kourou_broker
from tests.needed import need

pytestmark = [pytest.mark.slow, pytest.mark.e2e]

MESSAGES = 640
WHERE = ("-q", 4)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("a C compiler", shutil.which("cc") or shutil.which("gcc") or shutil.which("clang"))
    return build(tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def load(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loadgen]:
    folder = tmp_path_factory.mktemp("broker")
    with launch_kourou_broker(folder, []) as broker:
        broker.wait_ready()
        yield Loadgen(program, broker.port, broker.pid)


def pulled(load: Loadgen, topic: str, *words: object) -> int:
    """How many messages a reader of all that the topic holds gets."""
    once = load.run("pull", "-t", topic, *WHERE, "-1", "-W", 0, "-d", 30, *words, timeout_s=60)
    return int(once.raw["messages"])


def test_batches_are_counted_by_message(load: Loadgen) -> None:
    sent = load.run("send", "-t", "Batches", *WHERE, "-C", "-c", 2, "-w", 2, "-K", 32, "-N", MESSAGES)
    assert (sent.raw["messages"], sent.raw["codes"]) == (MESSAGES, {"0": MESSAGES // 32})
    assert pulled(load, "Batches") == MESSAGES


@pytest.mark.parametrize("readers", [(1, 1, 32), (3, 2, 32), (4, 8, 1024), (1, 3, 7)])
def test_readers_that_share_a_topic_get_each_message_once(
    load: Loadgen, readers: tuple[int, int, int]
) -> None:
    conns, window, most = readers
    topic = f"Once-{conns}-{window}-{most}"
    load.run("send", "-t", topic, *WHERE, "-C", "-c", 1, "-w", 16, "-N", MESSAGES)
    assert pulled(load, topic, "-c", conns, "-w", window, "-n", most) == MESSAGES


@pytest.mark.parametrize(("most", "answers"), [(32, 20), (1024, 4)])
def test_a_pull_of_more_than_32_messages_is_negotiated(load: Loadgen, most: int, answers: int) -> None:
    topic = f"Large-{most}"
    load.run("send", "-t", topic, *WHERE, "-C", "-c", 1, "-w", 16, "-N", MESSAGES)
    once = load.run("pull", "-t", topic, *WHERE, "-1", "-W", 0, "-d", 30, "-n", most, timeout_s=60)
    assert (once.raw["messages"], once.raw["codes"]) == (MESSAGES, {"0": answers})


def test_one_way_sends_are_all_stored(load: Loadgen) -> None:
    sent = load.run("send", "-t", "OneWay", *WHERE, "-C", "-c", 2, "-w", 16, "-o", "-d", 0.2, "-W", 0)
    assert sent.troubles == []
    assert sent.raw["issued"] == sent.raw["stored"] > 0


def test_waiting_consumers_of_several_groups_get_what_is_sent(load: Loadgen) -> None:
    words = ("-t", "Waiting", "-q", 30, "-C", "-c", 30, "-G", 3, "-r", 300, "-d", 1, "-W", 0.2)
    found = load.run("e2e", *words)
    assert found.troubles == []
    assert found.raw["messages"] > 200


def test_produce_and_consume_without_a_rate(load: Loadgen) -> None:
    found = load.run("e2e", "-t", "Mixed", *WHERE, "-C", "-S", 2, "-c", 2, "-w", 4, "-d", 0.5, "-W", 0.1)
    assert found.troubles == []
    assert found.raw["latency_us"]["max"] > 0


def test_connected_producers_are_registered(load: Loadgen) -> None:
    found = load.run("send", "-t", "Producers", *WHERE, "-C", "-c", 100, "-R", "-d", 0.5, "-W", 0)
    assert found.troubles == []
    assert found.raw["messages"] >= 100


def test_intervals_of_a_running_load_add_up(load: Loadgen, tmp_path: Path) -> None:
    words = ("-t", "Intervals", *WHERE, "-C", "-c", 1, "-r", 500, "-d", 1.1, "-W", 0, "-i", 0.25)
    running = load.start("send", *words, log_path=tmp_path / "log")
    measured = running.wait(30)
    intervals = running.intervals()
    assert [interval.number for interval in intervals] == list(range(1, len(intervals) + 1))
    assert 0 < len(intervals) <= 5  # fewer than four on a machine that stood still meanwhile
    assert 0 < sum(interval.messages for interval in intervals) <= measured.raw["messages"]
    assert all(interval.worst_ack_ms > 0 for interval in intervals if interval.messages)


def test_a_broker_that_is_not_there_is_an_error(program: Path) -> None:
    missing = Loadgen(program, 1, 1)
    with pytest.raises(LoadgenError, match="connect"):
        missing.run("send", "-N", 1)
    assert not missing.try_send_one()
