"""Overflow policies at a real broker, with the kernel and without: under load, and after a restart."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from kourou.broker.overflow.backlog_meter import BacklogMeter
from kourou.broker.overflow.overflow_service import OverflowService
from kourou.broker.overflow.part import OverflowPart
from kourou.errors import StorageError
from kourou.protocol.bodies import GroupFloors, SubscriptionData, TopicConfig
from kourou.protocol.bodies.overflow import OverflowState, TopicOverflow
from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.headers.pull import PullMessageResponseHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.over_limit import WAIT_FIELD, Limited, OverLimit
from kourou.store.kernel import choose_kernel
from tests.e2e.broker.broker_kit import Peer, messages, running
from tests.e2e.broker.pop_delivery_kit import popping
from tests.e2e.broker.replication_kit import pair
from tests.e2e.broker.test_metrics import scrape

pytestmark = pytest.mark.e2e

KERNELS = pytest.mark.parametrize(
    "kernel",
    [
        False,
        pytest.param(
            True, marks=pytest.mark.skipif(choose_kernel().kernel is None, reason="no compiled kernel")
        ),
    ],
    ids=["python", "kernel"],
)
MANY = 40  # sends in flight


@contextlib.asynccontextmanager
async def limited(
    root: Path, kernel: bool = False, queues: int = 2, **attributes: str
) -> AsyncIterator[Peer]:
    """A broker with topic T, and these attributes of it."""
    async with running(root, compiled_kernel_enable=kernel) as peer:
        set_attributes(peer, queues, **attributes)
        yield peer


def set_attributes(peer: Peer, queues: int = 2, **attributes: str) -> None:
    changes = {f"+overflow.{key}": value for key, value in attributes.items() if key != "kind"}
    if "kind" in attributes:
        changes["+message.type"] = attributes["kind"]
    peer.controller.services.topics.update(TopicConfig("T", queues, queues, attributes=changes))


def commit(peer: Peer, queue_offset: int, queue_id: int = 0, group: str = "consumers") -> None:
    peer.controller.services.offsets.commit(group, "T", queue_id, queue_offset, "here")


async def send_many(
    peer: Peer, count: int, queues: int = 2, first: int = 0, queue_of: Callable[[int], int] | None = None
) -> list[int]:
    """Send messages with their numbers as bodies, many at a time; the numbers of those that were stored."""
    numbers, stored = iter(range(first, first + count)), []

    async def one_after_the_other() -> None:
        for number in numbers:
            queue_id = number % queues if queue_of is None else queue_of(number)
            answer = await peer.send("T", b"%d" % number, queue_id=queue_id)
            if answer.code == 0:
                stored.append(number)
            else:
                assert answer.code == ResponseCode.SYSTEM_BUSY, answer

    await asyncio.gather(*(one_after_the_other() for _ in range(MANY)))
    return sorted(stored)


def backlog(peer: Peer, group: str = "consumers", queues: int = 2) -> int:
    offsets, found = peer.controller.services.offsets, peer.controller.services.store.queues
    ends = [found.get("T", queue_id).max_queue_offset for queue_id in range(queues)]
    return sum(end - offsets.query(group, "T", queue_id) for queue_id, end in enumerate(ends))


async def state(peer: Peer) -> TopicOverflow:
    answer = await peer.call(RequestCode.GET_KOUROU_OVERFLOW)
    return OverflowState.decode(answer.body).topics[0]


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # noqa: ASYNC110 (nothing tells us)
            await asyncio.sleep(0.005)


async def consume(peer: Peer, queue_id: int, topic: str = "T", group: str = "consumers") -> list[MessageExt]:
    """All that a group gets of a queue from its beginning on, as a stock client would."""
    found: list[MessageExt] = []
    queue_offset = 0
    while True:
        answer = await peer.pull(topic, queue_offset, queue_id=queue_id, consumer_group=group)
        header = answer.header(PullMessageResponseHeader)
        found += messages(answer) if answer.code == 0 else []
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return found
        queue_offset = header.next_begin_offset


def numbers(found: list[MessageExt]) -> list[int]:
    return [int(message.body) for message in found]


# -- reject ------------------------------------------------------------------------------------------


@KERNELS
async def test_reject_bounds_the_backlog_and_ends_at_nine_tenths(
    tmp_path: Path, kernel: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with limited(tmp_path, kernel, policy="reject", messages="200") as peer:
        for queue_id in range(2):
            await peer.send("T", queue_id=queue_id)
            commit(peer, 1, queue_id)
        stored = await send_many(peer, 1_000)
        # At most what comes in 10 ms and a commit cycle: here the sends in flight, some times over.
        assert 200 <= len(stored) < 200 + 10 * MANY
        answer = await peer.send("T")
        assert answer.code == ResponseCode.SYSTEM_BUSY
        over = OverLimit.parse(answer.remark or "")
        assert over is not None and over.wait_ms is not None
        assert (over.kind, over.name) == (Limited.TOPIC, "T")
        assert int((answer.ext_fields or {})[WAIT_FIELD]) == over.wait_ms
        assert f"{len(stored)} of 200 messages" in over.limit
        assert (await peer.send("Other")).code == 0, "no other topic is concerned"
        assert peer.controller.admission.sees_messages_of("T")
        assert not peer.controller.admission.sees_messages_of("Other")
        assert (await state(peer)).rejected == 1_000 - len(stored) + 1
        ends = [
            peer.controller.services.store.queues.get("T", queue_id).max_queue_offset for queue_id in (0, 1)
        ]
        commit(peer, ends[0] - 90)
        commit(peer, ends[1] - 91, 1)
        await asyncio.sleep(0.3)
        assert (await peer.send("T")).code == ResponseCode.SYSTEM_BUSY, "181 of 200 are not nine tenths"
        commit(peer, ends[1] - 90, 1)
        await until(lambda: not peer.controller.admission.sees_messages_of("T"))
        assert (await peer.send("T")).code == 0
    lines = [record.getMessage() for record in caplog.records if "topic T" in record.getMessage()]
    assert sum("is over its limit, sends are rejected" in line for line in lines) == 1
    assert sum("takes sends again" in line and "sends were rejected" in line for line in lines) == 1


async def test_a_restart_goes_on_rejecting(tmp_path: Path) -> None:
    async with limited(tmp_path, policy="reject", bytes="20k") as peer:
        await peer.send("T")
        commit(peer, 1)
        stored = await send_many(peer, 2_000, queues=1)
        assert len(stored) < 2_000
    async with running(tmp_path) as peer:
        assert (await peer.send("T")).code == ResponseCode.SYSTEM_BUSY
        found = await state(peer)
        assert found.size_bytes == sum(message.store_size for message in await consume(peer, 0)) - (
            (await consume(peer, 0))[0].store_size
        ), "exact: the sizes of the records"
        set_attributes(peer, age="1h")
        await until(lambda: service(peer).watches["T"].rule.age_ms is not None)
        peer.controller.services.topics.update(
            TopicConfig("T", 2, 2), "-overflow.policy,-overflow.bytes,-overflow.age"
        )
        assert (await peer.send("T")).code == 0, "without the policy nothing of it is left"
        assert not service(peer).watches


def service(peer: Peer) -> OverflowService:
    (part,) = [part for part in peer.controller.running.parts if isinstance(part, OverflowPart)]
    return part.service


async def test_groups_that_are_gone_do_not_block(tmp_path: Path) -> None:
    async with limited(tmp_path, policy="reject", messages="10") as peer:
        await send_many(peer, 50)
        assert backlog(peer, "nobody") > 10
        assert (await peer.send("T")).code == 0, "no group has consumed"
        commit(peer, 0, group="gone")
        await until(lambda: peer.controller.admission.sees_messages_of("T"))
        peer.controller.services.live_groups.look()
        live = peer.controller.services.live_groups
        live._seen = {key: (total, at - 73 * 3_600_000) for key, (total, at) in live._seen.items()}
        await until(lambda: not peer.controller.admission.sees_messages_of("T"))


async def test_an_old_message_rejects_by_its_age(tmp_path: Path) -> None:
    async with limited(tmp_path, policy="reject", age="1") as peer:
        await peer.send("T")
        commit(peer, 0)
        await until(lambda: peer.controller.admission.sees_messages_of("T"))
        commit(peer, 1)
        await until(lambda: not peer.controller.admission.sees_messages_of("T"))


@pytest.mark.parametrize("policy", ["reject", "drop-oldest"])
async def test_a_backlog_that_cannot_be_read_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    async def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async with limited(tmp_path, policy=policy, messages="10") as peer:
        with monkeypatch.context() as patch:
            patch.setattr(BacklogMeter, "measure", fail)
            commit(peer, 0)
            await until(lambda: "Input/output error" in service(peer).watches["T"].problem)
        await until(lambda: not service(peer).watches["T"].problem)


# -- drop-oldest -------------------------------------------------------------------------------------


@KERNELS
async def test_drop_oldest_keeps_the_newest_and_counts_the_others(tmp_path: Path, kernel: bool) -> None:
    async with limited(tmp_path, kernel, policy="drop-oldest", messages="200") as peer:
        commit(peer, 0)
        commit(peer, 0, 1)
        assert await send_many(peer, 1_500) == list(range(1_500)), "nothing is rejected"
        await until(lambda: 180 <= backlog(peer) <= 200)
        left = backlog(peer)
        found = await state(peer)
        assert found.rejected == 0
        assert [(count.group, count.dropped) for count in found.groups] == [("consumers", 1_500 - left)]
        got = [*(await consume(peer, 0)), *(await consume(peer, 1))]
        assert len(got) == left
        kept = {message.phy_offset for message in got}
        dropped = all_of(peer) - kept
        assert len(dropped) == 1_500 - left
        assert max(dropped) < min(kept), "the oldest of all queues"
        assert len(await consume(peer, 0, group="other")) == 750, "the records are there for other groups"
        before = floors(peer)
    async with running(tmp_path, compiled_kernel_enable=kernel) as peer:
        assert floors(peer) == before
        answer = await peer.pull("T", 0)
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert answer.header(PullMessageResponseHeader).next_begin_offset == before[0]
        assert (await state(peer)).groups[0].dropped == 1_500 - left
        assert len(await consume(peer, 0)) + len(await consume(peer, 1)) == left


def floors(peer: Peer) -> dict[int, int]:
    return dict(peer.controller.services.offsets.floors.table["T@consumers"].floors)


def all_of(peer: Peer) -> set[int]:
    """Where the messages of the topic lie."""
    found = set()
    for queue_id in range(2):
        queue = peer.controller.services.store.queues.get("T", queue_id)
        for queue_offset in range(queue.max_queue_offset):
            unit = queue.unit(queue_offset)
            assert unit is not None
            found.add(unit.phy_offset)
    return found


async def test_of_old_messages_those_that_are_too_old_are_dropped(tmp_path: Path) -> None:
    async with limited(tmp_path, policy="drop-oldest", age="2") as peer:
        commit(peer, 0)
        await peer.send("T", b"1")
        await asyncio.sleep(1.5)
        await peer.send("T", b"2")
        await until(lambda: peer.controller.services.offsets.query("consumers", "T", 0) == 1)
        assert numbers(await consume(peer, 0)) == [2]


async def test_the_lowest_priorities_are_dropped_first(tmp_path: Path) -> None:
    async with limited(
        tmp_path, queues=3, kind="PRIORITY", policy="drop-lowest-priority", messages="100"
    ) as peer:
        for queue_id in range(3):
            commit(peer, 0, queue_id)
        for queue_id in (2, 1, 0):
            for _ in range(40):
                assert (await peer.send("T", queue_id=queue_id)).code == 0
        await until(lambda: backlog(peer, queues=3) <= 100)
        got = [len(await consume(peer, queue_id)) for queue_id in range(3)]
        assert got[1:] == [40, 40] and 10 <= got[0] <= 20, got


@KERNELS
async def test_of_many_at_once_only_the_lowest_priorities_are_dropped_and_a_restart_keeps_it(
    tmp_path: Path, kernel: bool
) -> None:
    """One in twenty is high, two are between: all of them are fewer than the limit."""
    rule = {"kind": "PRIORITY", "policy": "drop-lowest-priority", "messages": "200"}

    def queue_of(number: int) -> int:
        return {0: 2, 1: 1, 2: 1}.get(number % 20, 0)

    async with limited(tmp_path, kernel, queues=3, **rule) as peer:
        for queue_id in range(3):
            commit(peer, 0, queue_id)
        assert len(await send_many(peer, 1_000, queue_of=queue_of)) == 1_000, "nothing is rejected"
        await until(lambda: 180 <= backlog(peer, queues=3) <= 200)
        left = backlog(peer, queues=3)
        got = [numbers(await consume(peer, queue_id)) for queue_id in range(3)]
        assert got[1:] == [[n for n in range(1_000) if queue_of(n) == queue_id] for queue_id in (1, 2)]
        assert got[0] == numbers(await consume(peer, 0, group="other"))[850 - len(got[0]) :], "the newest"
        (count,) = (await state(peer)).groups
        assert (count.group, count.dropped, sum(map(len, got))) == ("consumers", 1_000 - left, left)
    async with running(tmp_path, compiled_kernel_enable=kernel) as peer:
        assert [numbers(await consume(peer, queue_id)) for queue_id in range(3)] == got
        assert (await state(peer)).groups[0].dropped == 1_000 - left
        await send_many(peer, 300, first=1_000, queue_of=lambda _: 0)
        await until(lambda: backlog(peer, queues=3) <= 200)
        assert [numbers(await consume(peer, queue_id)) for queue_id in (1, 2)] == got[1:]
        assert (await state(peer)).groups[0].dropped == 1_300 - backlog(peer, queues=3)


# -- dead-letter -------------------------------------------------------------------------------------


@KERNELS
async def test_what_is_over_the_limit_is_found_in_the_dead_letters(tmp_path: Path, kernel: bool) -> None:
    async with limited(tmp_path, kernel, policy="dead-letter", messages="100") as peer:
        commit(peer, 0)
        commit(peer, 0, 1)
        assert len(await send_many(peer, 1_200)) == 1_200
        await until(lambda: backlog(peer) <= 100)
        left = numbers([*(await consume(peer, 0)), *(await consume(peer, 1))])
        dead = await consume(peer, 0, "%DLQ%consumers", "operators")
        assert sorted([*left, *numbers(dead)]) == list(range(1_200)), "each once: there or here"
        assert {message.properties["RETRY_TOPIC"] for message in dead} == {"T"}
        found = await state(peer)
        assert [(count.dropped, count.dead_lettered) for count in found.groups] == [(0, len(dead))]
        assert found.problem == ""
        events = peer.controller.services.stats.events
        assert events.dead_letters["T", "consumers"] == len(dead)


@pytest.mark.parametrize(
    ("expression_type", "expression"), [("TAG", "A"), ("SQL92", "TAGS = 'A'"), ("PLUGIN", "?")]
)
async def test_what_the_group_does_not_subscribe_to_is_not_copied(
    tmp_path: Path, expression_type: str, expression: str
) -> None:
    async with limited(tmp_path, policy="dead-letter", messages="10") as peer:
        groups = peer.controller.services.consumers
        subscription = SubscriptionData(topic="T", sub_string=expression, expression_type=expression_type)
        groups.find_subscription = lambda group, topic: subscription  # type: ignore[method-assign]
        for number in range(30):
            tags = "A" if number % 2 else "B"
            assert (await peer.send("T", b"%d" % number, f"TAGS\x01{tags}\x02")).code == 0
        commit(peer, 0)
        await until(lambda: backlog(peer, queues=1) <= 10)
        dead = numbers(await consume(peer, 0, "%DLQ%consumers", "operators"))
        # A filter that the broker cannot apply at once leaves nothing out.
        assert dead == (list(range(21)) if expression_type == "PLUGIN" else list(range(1, 21, 2)))


async def test_dead_letters_that_cannot_be_stored_move_no_floor(tmp_path: Path) -> None:
    async with limited(tmp_path, policy="dead-letter", messages="10") as peer:
        await send_many(peer, 50, queues=1)
        peer.controller.services.store.appender.refuse("test", StorageError("no room"))
        commit(peer, 0)
        await until(lambda: service(peer).watches["T"].problem != "")
        assert "no room" in (await state(peer)).problem
        assert peer.controller.services.offsets.query("consumers", "T", 0) == 0
        peer.controller.services.store.appender.refuse("test", None)
        await until(lambda: peer.controller.services.offsets.query("consumers", "T", 0) == 41)
        assert len(await consume(peer, 0, "%DLQ%consumers", "operators")) == 41


# -- without a policy --------------------------------------------------------------------------------


async def test_without_a_policy_nothing_runs(tmp_path: Path) -> None:
    async with running(tmp_path) as peer:
        hooks = list(peer.controller.services.store.dispatcher.on_publish)
        ruling = peer.controller.admission.ruling
        commit(peer, 0)
        await send_many(peer, 20)
        assert service(peer)._published not in hooks
        assert peer.controller.admission.ruling is ruling
        assert not (tmp_path / "store" / "config" / "overflowFloors.json").exists()


# -- POP, slaves -------------------------------------------------------------------------------------


async def test_pop_skips_what_was_dropped(tmp_path: Path) -> None:
    async with popping(tmp_path) as pops:
        peer = pops.peer
        set_attributes(peer, 1, policy="drop-oldest", messages="10")
        await send_many(peer, 50, queues=1)
        commit(peer, 0)
        await until(lambda: backlog(peer, queues=1) <= 10)
        popped = await pops.pop("T")
        assert numbers(popped.messages) == list(range(50))[-9:]


async def test_a_slave_follows_the_floors_and_keeps_them_as_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as (of_master, of_slave):
        set_attributes(of_master, 1, policy="drop-oldest", messages="10")
        await send_many(of_master, 50, queues=1)
        commit(of_master, 0)
        await until(lambda: backlog(of_master, queues=1) == 9)
        slave = of_slave.controller.running.slave
        assert slave is not None
        await slave.copy_tables()
        assert floors(of_slave) == {0: 41}
        assert (await of_slave.pull("T", 0)).code == ResponseCode.PULL_OFFSET_MOVED
        assert not service(of_slave).watches, "its master decides"
        stored = Path(of_slave.controller.config.store_path_root_dir) / "config" / "overflowFloors.json"
        await until(stored.exists)
    async with running(tmp_path / "slave-1") as promoted:
        assert floors(promoted) == {0: 41}
        assert numbers(await consume(promoted, 0)) == list(range(41, 50))
        assert (await state(promoted)).groups[0].dropped == 41


async def test_a_promoted_slave_with_a_shorter_log_has_no_floor_beyond_it(tmp_path: Path) -> None:
    """The next messages would get the offsets of those that were lost, and be skipped."""
    async with limited(tmp_path, queues=1, policy="drop-oldest", messages="1000") as peer:
        await send_many(peer, 10, queues=1)
        peer.controller.services.offsets.floors.follow({"T@consumers": GroupFloors({0: 25}, 25)})
    async with running(tmp_path) as peer:
        assert floors(peer) == {0: 10}
        await peer.send("T", b"new")
        assert len(await consume(peer, 0)) == 1


async def test_metrics_say_what_was_rejected_and_dropped(tmp_path: Path) -> None:
    async with running(tmp_path, http_port=0) as peer:
        set_attributes(peer, 1, policy="drop-oldest", messages="10")
        await send_many(peer, 30, queues=1)
        commit(peer, 0)
        await until(lambda: backlog(peer, queues=1) <= 10)
        set_attributes(peer, 1, policy="reject", messages="9")
        await until(lambda: peer.controller.admission.sees_messages_of("T"))
        assert (await peer.send("T")).code == ResponseCode.SYSTEM_BUSY
        found = await scrape(peer.controller)
        group = {"topic": "T", "consumer_group": "consumers"}
        assert found.value("kourou_overflow_dropped_total", **group) == 21
        assert found.value("kourou_overflow_dead_lettered_total", **group) == 0
        assert found.value("kourou_overflow_rejected_total", topic="T") == 1
        assert found.value("kourou_overflow_share", topic="T", policy="reject") == 1
        assert found.value("kourou_overflow_active", topic="T", policy="reject") == 1
