"""LocalCluster: a cluster that an application's tests start, look into, disturb and leave without a trace."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kourou import (
    AsyncProducer,
    AsyncPushConsumer,
    ConsumeResult,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from kourou.embed import BrokerHooks, SendContext
from kourou.errors import ConfigError, KourouError, RequestError, SendFailedError
from kourou.testing import ClusterStateError, LocalCluster, NotConsumedError, UnknownTopicError

READY_S = 0.5
LEVELS = "1s 1s 1s 1s"


def open_files() -> set[str]:
    """What this process has open, by what it is."""
    found = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            found.add(os.readlink(f"/proc/self/fd/{number}"))
        except FileNotFoundError:
            continue
    return found


def send(mq: LocalCluster, topic: str, count: int) -> None:
    with Producer("test", namesrv=mq.namesrv) as producer:
        for number in range(count):
            producer.send(Message(topic, b"%d" % number))


# -- messages ----------------------------------------------------------------------------------------


def test_what_a_producer_sends_is_there_in_order() -> None:
    with LocalCluster() as mq:
        mq.create_topic("Orders", queues=3)
        send(mq, "Orders", 10)
        messages = mq.messages("Orders")
        assert [message.body for message in messages] == [b"%d" % number for number in range(10)]
        assert {message.queue_id for message in messages} == {0, 1, 2}
        assert {message.broker_name for message in messages} == {"broker-a"}
        for topic, hint in (("Ordres", "did you mean Orders?"), ("Nothing", "there are: Orders")):
            with pytest.raises(UnknownTopicError) as caught:
                mq.messages(topic)
            assert str(caught.value) == f"there is no topic '{topic}'; {hint}"


def test_two_brokers_share_a_topic_and_their_messages_come_in_the_order_of_storing() -> None:
    with LocalCluster(brokers=2) as mq, Producer("test", namesrv=mq.namesrv) as producer:
        mq.create_topic("Orders", queues=1)
        queues = producer.queues("Orders")
        assert [queue.broker_name for queue in queues] == ["broker-a", "broker-b"]
        for number in range(6):
            producer.send(Message("Orders", b"%d" % number), queue=queues[number % 2])
            time.sleep(0.002)  # times of storing have a millisecond
        assert [message.body for message in mq.messages("Orders")] == [b"%d" % n for n in range(6)]


def test_more_messages_than_one_read_gives() -> None:
    with LocalCluster() as mq, Producer("test", namesrv=mq.namesrv) as producer:
        mq.create_topic("Orders", queues=2)
        for future in [producer.send_nowait(Message("Orders", b"." * 100)) for _ in range(4_000)]:
            future.result()
        assert len({message.msg_id for message in mq.messages("Orders")}) == 4_000


def test_a_topic_that_was_made_is_found_at_once_and_can_grow() -> None:
    with LocalCluster(brokers=2) as mq, Producer("test", namesrv=mq.namesrv) as producer:
        mq.create_topic("Orders")
        assert len(producer.queues("Orders")) == 8
        mq.create_topic("Other", queues=1)
        mq.create_topic("Other", queues=2)
        assert len(producer.queues("Other")) == 4
        with pytest.raises(RequestError, match="bad name"):
            mq.create_topic("bad name")
        with pytest.raises(RequestError, match="queues"):
            mq.create_topic("Many", queues=10**9)
        with pytest.raises(ValueError, match="^queues is 0; it must be at least 1$"):
            mq.create_topic("None", queues=0)
        with pytest.raises(TypeError, match=r"^queues must be an int, not str \('4'\)$"):
            mq.create_topic("Text", queues="4")  # type: ignore[arg-type]


# -- groups ------------------------------------------------------------------------------------------


def test_a_group_that_consumes_is_waited_for() -> None:
    seen: list[bytes] = []
    with LocalCluster(brokers=2) as mq:
        mq.create_topic("Orders")
        send(mq, "Orders", 20)
        # Not only when the consumer stores its offsets, which this one does when it stops.
        consumer = PushConsumer(
            "billing", namesrv=mq.namesrv, consume_from="first", persist_interval_ms=600_000
        )
        with consumer:
            consumer.subscribe("Orders", lambda message: seen.append(message.body))
            mq.wait_consumed("billing")
            assert len(seen) == 20
            send(mq, "Orders", 20)
            mq.wait_consumed("billing", topic="Orders")
            assert len(seen) == 40
        mq.wait_consumed("billing")  # its members have left


@pytest.mark.parametrize(("orderly", "tags", "count"), [(True, "*", 20), (False, "other", 0)])
def test_orderly_and_filtering_consumers_are_waited_for_too(orderly: bool, tags: str, count: int) -> None:
    seen: list[bytes] = []
    with LocalCluster() as mq:
        mq.create_topic("Orders")
        send(mq, "Orders", 20)
        consumer = PushConsumer("billing", namesrv=mq.namesrv, consume_from="first", orderly=orderly)
        with consumer:
            consumer.subscribe("Orders", tags, lambda message: seen.append(message.body))
            mq.wait_consumed("billing")
            assert len(seen) == count


def test_a_consumer_that_polls_is_waited_for_too() -> None:
    with LocalCluster() as mq:
        mq.create_topic("Orders")
        send(mq, "Orders", 20)
        with LitePullConsumer("reports", namesrv=mq.namesrv, consume_from="first") as consumer:
            consumer.subscribe("Orders")
            polled = 0
            while polled < 20:
                polled += len(consumer.poll())
            consumer.poll(timeout_ms=1)  # what came before is done with
            mq.wait_consumed("reports")


def test_a_broker_that_has_restarted_does_not_hide_what_it_holds() -> None:
    """It knows nothing of the group until a member comes again, but the other one does."""
    seen: list[bytes] = []
    with LocalCluster(brokers=2) as mq, Producer("test", namesrv=mq.namesrv) as producer:
        mq.create_topic("Orders")
        consumer = PushConsumer(
            "billing", namesrv=mq.namesrv, consume_from="first", persist_interval_ms=600_000
        )
        with consumer:
            consumer.subscribe("Orders", lambda message: seen.append(message.body))
            send(mq, "Orders", 8)
            mq.wait_consumed("billing")
            mq.restart_broker(1)
            queue = [queue for queue in producer.queues("Orders") if queue.broker_name == "broker-b"][0]
            producer.send(Message("Orders", b"after"), queue=queue)
            mq.wait_consumed("billing")
            assert b"after" in seen


def test_a_wait_that_times_out_reports_what_lags() -> None:
    with LocalCluster() as mq:
        mq.create_topic("Orders", queues=1)
        send(mq, "Orders", 3)
        with pytest.raises(NotConsumedError) as caught:
            mq.wait_consumed("billing", topic="Orders", timeout_s=0.1)
        assert str(caught.value) == (
            "group 'billing' has not consumed everything within 0.1 s: "
            "Orders broker-a/0 not begun of 3; no member of the group is online"
        )
        with pytest.raises(NotConsumedError) as caught:
            mq.wait_consumed("noone", timeout_s=0.1)
        assert caught.value.left == (
            "no member of the group is online; group 'noone' has no subscriptions or offsets; pass topic="
        )
        with pytest.raises(NotConsumedError) as caught:
            mq.wait_consumed("billing", topic="Ordres", timeout_s=0.1)
        assert caught.value.left == (
            "no member of the group is online; there is no topic 'Ordres'; did you mean Orders?"
        )


def test_a_handler_that_hangs_is_reported() -> None:
    hangs, release = threading.Event(), threading.Event()

    def hang(message: MessageExt) -> None:
        if message.body == b"1":
            hangs.set()
            release.wait(30)

    with LocalCluster() as mq:
        mq.create_topic("Orders", queues=1)
        send(mq, "Orders", 2)
        consumer = PushConsumer("billing", namesrv=mq.namesrv, consume_from="first", concurrency=1)
        with consumer:
            consumer.subscribe("Orders", hang)
            assert hangs.wait(30)
            with pytest.raises(NotConsumedError, match="Orders broker-a/0 at 1 of 2$"):
                mq.wait_consumed("billing", timeout_s=0.1)
            release.set()
            mq.wait_consumed("billing")


def test_what_a_handler_refused_is_not_consumed_until_it_has_come_again() -> None:
    attempts: list[int] = []
    refused = threading.Event()

    def refuse_once(message: MessageExt) -> ConsumeResult:
        attempts.append(message.reconsume_times)
        if len(attempts) == 3:
            refused.set()
        return ConsumeResult.LATER if message.reconsume_times == 0 else ConsumeResult.SUCCESS

    with LocalCluster(message_delay_level=LEVELS) as mq:
        mq.create_topic("Orders")
        with PushConsumer("billing", namesrv=mq.namesrv, consume_from="first") as consumer:
            consumer.subscribe("Orders", refuse_once)
            send(mq, "Orders", 3)
            assert refused.wait(30)
            with pytest.raises(NotConsumedError):
                mq.wait_consumed("billing", timeout_s=0.01)
            mq.wait_consumed("billing")
            assert sorted(attempts) == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    "delay", [{"delay_time_level": 1}, pytest.param({"delay_time_ms": 1_000}, marks=pytest.mark.slow)]
)
def test_a_delayed_message_is_not_consumed_until_its_time_has_come(delay: dict[str, int]) -> None:
    seen: list[bytes] = []
    with LocalCluster(message_delay_level=LEVELS) as mq:
        mq.create_topic("Orders")
        with (
            Producer("test", namesrv=mq.namesrv) as producer,
            PushConsumer("billing", namesrv=mq.namesrv, consume_from="first") as consumer,
        ):
            consumer.subscribe("Orders", lambda message: seen.append(message.body))
            producer.send(Message("Orders", b"later", **delay))  # type: ignore[arg-type]
            with pytest.raises(NotConsumedError, match="Orders: 1 message waits for its delivery time"):
                mq.wait_consumed("billing", timeout_s=0.1)
            mq.wait_consumed("billing")
            assert seen == [b"later"]


def test_a_broadcast_is_consumed_when_every_member_has_it(tmp_path: Path) -> None:
    release = threading.Event()
    seen: list[str] = []

    with LocalCluster() as mq:
        mq.create_topic("News", queues=1)

        def member(name: str) -> PushConsumer:
            return PushConsumer(
                "screens",
                namesrv=mq.namesrv,
                model="broadcasting",
                consume_from="first",
                offset_store_dir=tmp_path / name,
            )

        def slow(message: MessageExt) -> None:
            release.wait(30)
            seen.append("slow")

        with member("one") as one, member("two") as two:
            one.subscribe("News", lambda message: seen.append("quick"))
            two.subscribe("News", slow)
            send(mq, "News", 1)
            with pytest.raises(NotConsumedError, match="News broker-a/0"):
                mq.wait_consumed("screens", timeout_s=1)
            release.set()
            mq.wait_consumed("screens")
            assert sorted(seen) == ["quick", "slow"]


# -- faults ------------------------------------------------------------------------------------------


def test_a_broker_that_restarts_has_its_address_and_its_messages() -> None:
    with LocalCluster() as mq, Producer("test", namesrv=mq.namesrv) as producer:
        mq.create_topic("Orders")
        producer.send(Message("Orders", b"before"))
        address = mq.broker_addresses
        mq.restart_broker()
        assert mq.broker_addresses == address
        assert producer.send(Message("Orders", b"after")).is_ok
        assert [message.body for message in mq.messages("Orders")] == [b"before", b"after"]


def test_a_broker_that_is_stopped_refuses_and_comes_again() -> None:
    with LocalCluster() as mq:
        mq.create_topic("Orders")
        producer = Producer("test", namesrv=mq.namesrv, send_timeout_ms=300)
        with producer:
            producer.send(Message("Orders", b"one"))
            mq.stop_broker()
            with pytest.raises(SendFailedError):
                producer.send(Message("Orders", b"two"))
            with pytest.raises(ClusterStateError, match=r"broker-a is stopped; start_broker\(\) it first"):
                mq.messages("Orders")
            mq.start_broker()
            with pytest.raises(ClusterStateError, match="broker-a is running already"):
                mq.start_broker()
            producer.send(Message("Orders", b"three"))
            assert [message.body for message in mq.messages("Orders")] == [b"one", b"three"]
        with pytest.raises(ClusterStateError, match="there is no broker 1: indexes are 0 to 0"):
            mq.stop_broker(1)


def test_a_paused_broker_answers_nothing_and_goes_on_where_it_was() -> None:
    with LocalCluster() as mq:
        mq.create_topic("Orders")
        producer = Producer("test", namesrv=mq.namesrv, send_timeout_ms=300)
        with producer:
            producer.send(Message("Orders", b"before"))
            with mq.pause():
                with pytest.raises(SendFailedError, match="no answer"):
                    producer.send(Message("Orders", b"meanwhile"))
                with pytest.raises(ClusterStateError, match=r"broker-a is paused; resume\(\) it first"):
                    mq.messages("Orders")
            producer.send(Message("Orders", b"after"))
            # Whoever sends again after a timeout sends twice: the broker had the request.
            assert [message.body for message in mq.messages("Orders")] == [b"before", b"meanwhile", b"after"]


def test_one_of_two_brokers_hangs_and_producers_go_on_with_the_other() -> None:
    with LocalCluster(brokers=2) as mq:
        mq.create_topic("Orders")
        producer = Producer("test", namesrv=mq.namesrv, send_timeout_ms=2_000, send_latency_fault=True)
        with producer:
            for _ in range(8):
                producer.send(Message("Orders", b"."))  # connected to both
            mq.pause(0)
            mq.pause(0)  # it is already
            pending = producer.send_nowait(Message("Orders", b"."), queue=producer.queues("Orders")[-1])
            assert pending.result(10).queue.broker_name == "broker-b"
            mq.resume(0)
            mq.resume()
            assert producer.send(Message("Orders", b".")).is_ok


def test_a_broker_that_is_stopped_cannot_be_paused_nor_a_paused_one_started() -> None:
    with LocalCluster(brokers=2) as mq:
        mq.stop_broker(1)
        with pytest.raises(ClusterStateError, match="broker-b is stopped"):
            mq.pause(1)
        with pytest.raises(ClusterStateError, match="broker-b is stopped"):
            mq.pause()
        mq.start_broker(1)
        mq.pause(1)
        mq.pause(1)
        mq.resume()


async def test_a_pause_is_a_block_of_either_kind() -> None:
    async with LocalCluster() as mq:
        await mq.create_topic("Orders")
        async with mq.pause():
            with pytest.raises(ClusterStateError, match="is paused"):
                await mq.messages("Orders")
        assert await mq.messages("Orders") == []


def test_a_cluster_that_is_paused_stops_all_the_same() -> None:
    others = set(threading.enumerate())
    with LocalCluster() as mq:
        mq.pause()
    assert not [thread for thread in set(threading.enumerate()) - others if thread.name.startswith("kourou")]


def test_what_a_broker_dies_of_is_raised() -> None:
    mq = LocalCluster().start()
    assert mq._running is not None
    place = mq._running.places[0]
    broker = place.running()

    async def break_it() -> None:
        broker.services.tasks.fail(RuntimeError("the part broke"))

    place.thread.submit(break_it).result()
    while place.failure is None:
        time.sleep(0.001)
    with pytest.raises(KourouError, match="broker-a has failed: RuntimeError.*the part broke"):
        mq.messages("Orders")
    with pytest.raises(KourouError, match="broker-a has failed"):
        mq.stop()
    assert not mq._folder.exists()


# -- slaves ------------------------------------------------------------------------------------------


def test_a_slave_has_every_message_that_was_acknowledged(tmp_path: Path) -> None:
    with LocalCluster(slaves=1, sync=True, store=tmp_path) as mq:
        mq.create_topic("Orders", queues=1)
        send(mq, "Orders", 10)
        master, slave = mq.broker_addresses
        assert master != slave
        mq.restart_broker(broker_id=1)
        with pytest.raises(
            ClusterStateError, match="broker-a has no broker_id 2: ids are 0, the master's, to 1"
        ):
            mq.stop_broker(broker_id=2)
    logs = [
        next((tmp_path / name / "commitlog").iterdir()).read_bytes() for name in ("broker-a", "broker-a-s1")
    ]
    assert logs[0].rstrip(b"\0") == logs[1].rstrip(b"\0") != b""


def test_sync_needs_a_slave() -> None:
    with pytest.raises(ConfigError, match="sync=True: .*add slaves=1"):
        LocalCluster(sync=True)
    with pytest.raises(ConfigError, match="slaves=5: must be from 0 to 4, for each broker"):
        LocalCluster(slaves=5)


# -- life --------------------------------------------------------------------------------------------


def test_it_is_ready_in_half_a_second() -> None:
    # Processor time: the machine may be shared.
    spent = []
    for _ in range(3):
        begun = time.process_time()
        with LocalCluster():
            spent.append(time.process_time() - begun)
    assert min(spent) < READY_S


def test_nothing_is_left_behind() -> None:
    def once() -> Path:
        with LocalCluster(brokers=2) as mq:
            mq.create_topic("Orders")
            send(mq, "Orders", 10)
            assert sum(thread.name.startswith("kourou-") for thread in threading.enumerate()) >= 3
            assert (mq.store / "broker-a" / "commitlog").exists()
            return mq.store

    assert not once().exists()
    before = threading.active_count(), open_files()
    assert not once().exists()
    assert (threading.active_count(), open_files()) == before


def test_a_program_that_ends_without_a_stop_leaves_nothing(tmp_path: Path) -> None:
    program = "from kourou.testing import LocalCluster\nmq = LocalCluster().start()\nprint(mq.store.exists())"
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, timeout=60
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "True\n", "")
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_that_cannot_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        before = threading.active_count()
        cluster = LocalCluster(listen_port=taken.getsockname()[1])
        with pytest.raises(ConfigError, match="listenPort"):
            cluster.start()
        assert threading.active_count() == before
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ClusterStateError, match="stopped; make a new one"):
        cluster.messages("Orders")


def test_a_folder_of_ones_own_is_gone_on_with(tmp_path: Path) -> None:
    with LocalCluster(store=tmp_path) as mq:
        assert mq.store == tmp_path
        send(mq, "Orders", 3)
    with LocalCluster(store=str(tmp_path)) as mq:
        assert len(mq.messages("Orders")) == 3


def test_it_is_used_in_order_or_says_what_is_wrong() -> None:
    mq = LocalCluster()
    with pytest.raises(ClusterStateError, match=r"not started: use `with LocalCluster\(\) as mq:`"):
        _ = mq.namesrv
    with pytest.raises(ClusterStateError, match="not started"):
        mq.create_topic("Orders")
    mq.stop()  # nothing to do
    with mq:
        pass
    mq.stop()
    with pytest.raises(ClusterStateError, match="started once; make a new one"):
        mq.start()
    with pytest.raises(ClusterStateError, match="stopped; make a new one"):
        mq.pause()


def test_arguments_are_checked_at_once() -> None:
    with pytest.raises(ConfigError, match="brokers=0: must be from 1 to 26"):
        LocalCluster(0)
    with pytest.raises(ConfigError, match="broker_name: set by LocalCluster itself"):
        LocalCluster(broker_name="mine")
    with pytest.raises(ConfigError, match="listen_port: brokers cannot share it"):
        LocalCluster(2, listen_port=10911)
    with pytest.raises(ConfigError, match=r"^LocalCluster has no option 'broker'; did you mean brokers\?$"):
        LocalCluster(broker=2)
    with pytest.raises(TypeError, match=r"^brokers must be an int, not str \('2'\)$"):
        LocalCluster("2")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="did you mean auto_create_topic_enable"):
        LocalCluster(auto_create_topic=False)


def test_settings_and_hooks_are_the_brokers() -> None:
    sent: list[str] = []

    def note(context: SendContext) -> None:
        sent.append(context.topic)

    with LocalCluster(auto_create_topic_enable=False, hooks=BrokerHooks(before_send=[note])) as mq:
        with pytest.raises(KourouError, match="Orders"):
            send(mq, "Orders", 1)
        mq.create_topic("Orders")
        send(mq, "Orders", 1)
    assert sent == ["Orders"]


def test_any_number_of_threads_may_use_it() -> None:
    with LocalCluster(brokers=2) as mq:

        def one(number: int) -> int:
            topic = f"Topic{number}"
            mq.create_topic(topic, queues=1)
            send(mq, topic, number)
            return len(mq.messages(topic))

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(one, range(16))) == list(range(16))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_gets_an_error_that_the_cluster_is_not_its_own() -> None:
    with LocalCluster() as mq:
        mq.create_topic("Orders")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                mq.messages("Orders")
            except ClusterStateError as error:
                os.write(writing, f"{mq.namesrv} {error}".encode())
            mq.stop()
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with open(reading) as pipe:
            words = pipe.read()
        assert words == (
            f"{mq.namesrv} this cluster runs in process {os.getpid()}, before a fork: in process {child} "
            "only its `namesrv` can be used, by clients that are created here"
        )
        send(mq, "Orders", 1)
        assert len(mq.messages("Orders")) == 1


# -- asyncio -----------------------------------------------------------------------------------------


async def test_the_same_for_asyncio() -> None:
    seen: list[bytes] = []

    async def on_order(message: MessageExt) -> None:
        seen.append(message.body)

    async with LocalCluster(brokers=2) as mq:
        await mq.create_topic("Orders")
        async with AsyncProducer("test", namesrv=mq.namesrv) as producer:
            for number in range(10):
                await producer.send(Message("Orders", b"%d" % number))
            assert len(await mq.messages("Orders")) == 10
            consumer = AsyncPushConsumer("billing", namesrv=mq.namesrv, consume_from="first")
            async with consumer:
                await consumer.subscribe("Orders", on_order)
                await mq.wait_consumed("billing", topic="Orders")
                assert len(seen) == 10
                with mq.pause():
                    pass
                await mq.restart_broker(1)
                await producer.send(Message("Orders", b"more"))
                await mq.wait_consumed("billing")
                assert len(seen) == 11
        assert len(mq.broker_addresses) == 2 and (mq.store / "broker-b").exists()


async def test_a_wait_that_would_block_the_loop_is_refused() -> None:
    with LocalCluster() as mq:
        with pytest.raises(ClusterStateError, match=r"await mq\.aio\.wait_consumed"):
            mq.wait_consumed("billing")
        with pytest.raises(NotConsumedError):
            await mq.aio.wait_consumed("billing", timeout_s=0.05)


async def test_a_wait_that_is_cancelled_ends() -> None:
    async with LocalCluster() as mq:
        waiting = asyncio.create_task(mq.wait_consumed("billing", timeout_s=600))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await mq.create_topic("Orders")


def test_with_accounts_only_they_may_do_something() -> None:
    with LocalCluster(auth=True, slaves=1) as mq:
        mq.create_topic("T", queues=1)
        with Producer("p", namesrv=mq.namesrv, credentials=mq.credentials) as producer:
            producer.send(Message("T", b"signed"))
        with Producer("p", namesrv=mq.namesrv) as producer, pytest.raises(KourouError):
            producer.send(Message("T", b"unsigned"))
        assert [message.body for message in mq.messages("T")] == [b"signed"]
        mq.stop_broker()
        with PushConsumer(
            "g", namesrv=mq.namesrv, credentials=mq.credentials, consume_from="first"
        ) as consumer:
            got: list[bytes] = []
            consumer.subscribe("T", "*", lambda message, _: got.append(message.body))
            deadline = time.monotonic() + 20
            while not got:
                assert time.monotonic() < deadline, "nothing came from the slave"
                time.sleep(0.01)
    with pytest.raises(ClusterStateError, match="auth=True"):
        _ = LocalCluster().credentials
