"""Broadcasting push consumers: each gets everything, and keeps its offsets in a file of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kourou.client.push.consume_result import ConsumeResult
from kourou.client.push.consumer_offsets import LocalOffsets
from kourou.errors import StorageError
from kourou.protocol.bodies import MessageQueue
from kourou.testing.cluster import cluster
from tests.e2e.client.kit.push_kit import (
    GROUP,
    TOPIC,
    Notes,
    consumer_of,
    consuming,
    make_topic,
    send,
    spread,
    until,
)

pytestmark = pytest.mark.e2e

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


def broadcasting(tmp_path: Path, name: str = "one") -> dict[str, Any]:
    return {
        "model": "broadcasting",
        "offset_store_dir": tmp_path / "offsets",
        "instance_name": name,
        "client_ip": "127.0.0.1",
    }


async def test_every_consumer_gets_every_message(tmp_path: Path) -> None:
    one, two = Notes(), Notes()
    async with cluster(tmp_path) as running:
        await make_topic(running)
        bodies = sorted(await spread(running, 20))
        async with (
            consuming(running, one, **broadcasting(tmp_path, "one")) as first,
            consuming(running, two, **broadcasting(tmp_path, "two")),
        ):
            await until(lambda: len(one.messages) == len(two.messages) == 20)
            assert first.client_id == "127.0.0.1@one"
        assert sorted(one.bodies) == sorted(two.bodies) == bodies
        # Nothing of it is the broker's.
        assert running.broker.services.offsets.query(GROUP, TOPIC, 0) == -1


async def test_a_restart_goes_on_where_its_file_says(tmp_path: Path) -> None:
    one, two = Notes(), Notes()
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a", b"b"])
        async with consuming(running, one, **broadcasting(tmp_path)):
            await until(lambda: len(one.messages) == 2)
        file = LocalOffsets(tmp_path / "offsets", "127.0.0.1@one", GROUP)
        assert file.load() == {QUEUE: 2}
        await send(running, [b"c"])
        async with consuming(running, two, **broadcasting(tmp_path)):
            await until(lambda: two.bodies == [b"c"])
            # Every few seconds too, not only at the end.
            await until(lambda: file.load() == {QUEUE: 3})


async def test_a_message_that_failed_is_not_tried_again(tmp_path: Path) -> None:
    notes = Notes(ConsumeResult.LATER, ValueError("no"))
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a", b"b", b"c"])
        async with consuming(running, notes, **broadcasting(tmp_path)) as consumer:
            await until(lambda: consumer.stats().consumed == 1)
            assert [queue.topic for queue in consumer.queues] == [TOPIC]  # no retry topic
        assert notes.bodies == [b"a", b"b", b"c"]


async def test_orderly_broadcasting_keeps_the_order_without_locks(tmp_path: Path) -> None:
    notes = Notes(None, ConsumeResult.SUSPEND)
    async with cluster(tmp_path) as running:
        await make_topic(running, queues=1)
        await send(running, [b"a", b"b", b"c"])
        options = {**broadcasting(tmp_path), "orderly": True, "suspend_ms": 10}
        async with consuming(running, notes, **options) as consumer:
            await until(lambda: consumer.stats().consumed == 3)
        assert notes.bodies == [b"a", b"b", b"b", b"c"]


async def test_a_file_that_says_nothing_ends_the_start(tmp_path: Path) -> None:
    async with cluster(tmp_path) as running:
        await make_topic(running)
        path = LocalOffsets(tmp_path / "offsets", "127.0.0.1@one", GROUP).path
        path.parent.mkdir(parents=True)
        path.write_bytes(b"{no offsets")
        consumer = consumer_of(running, **broadcasting(tmp_path))
        await consumer.subscribe(TOPIC, Notes())
        with pytest.raises(StorageError, match="repair it"):
            await consumer.start()
