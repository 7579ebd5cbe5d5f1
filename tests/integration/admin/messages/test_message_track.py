"""What became of a message, in groups that take their messages in different ways."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kourou import AsyncLitePullConsumer, AsyncPushConsumer, Message, MessageExt
from kourou.admin.messages.message_track import MessageTrack, TrackType, track
from kourou.admin.messages.messages import view_message
from tests.integration.admin.group_kit import TOPIC, Traffic, traffic, until


async def _tracked(found: Traffic, offset_msg_id: str, groups: set[str]) -> dict[str, MessageTrack]:
    """The tracks, once the broker knows that these groups are there."""

    async def tracks() -> dict[str, MessageTrack] | None:
        message = await view_message(found.admin, offset_msg_id)
        known = {one.consumer_group: one for one in await track(found.admin, message)}
        return known if groups <= known.keys() else None

    return await until(tracks)


async def test_groups_that_are_broadcast_to_or_pull_have_no_offset_to_look_at(tmp_path: Path) -> None:
    async def consume(message: MessageExt) -> None:
        pass

    async with traffic(tmp_path) as found:
        sent = await found.producer.send(Message(TOPIC, b"x"))
        broadcast = AsyncPushConsumer(
            "everybody", namesrv=found.namesrv, model="broadcasting", offset_store_dir=tmp_path
        )
        await broadcast.subscribe(TOPIC, "*", consume)
        pulling = AsyncLitePullConsumer("pullers", namesrv=found.namesrv)
        await pulling.subscribe(TOPIC)
        async with broadcast, pulling:
            tracks = await _tracked(found, sent.offset_msg_id, {"everybody", "pullers"})
        assert tracks["everybody"].track_type is TrackType.CONSUME_BROADCASTING
        assert tracks["pullers"].track_type is TrackType.PULL


async def test_a_message_that_waits_behind_another(tmp_path: Path) -> None:
    async with traffic(tmp_path) as found:
        go_on, began = asyncio.Event(), asyncio.Event()

        async def consume(message: MessageExt) -> None:
            began.set()
            await go_on.wait()

        consumer = AsyncPushConsumer("slow", namesrv=found.namesrv, consume_from="first")
        await consumer.subscribe(TOPIC, "*", consume)
        sent = await found.producer.send(Message(TOPIC, b"last"))
        async with consumer:
            async with asyncio.timeout(10):
                await began.wait()
            tracks = await _tracked(found, sent.offset_msg_id, {"slow"})
            go_on.set()
        assert tracks["slow"].track_type is TrackType.NOT_CONSUME_YET
        assert tracks["slow"].consumer_offset in (None, 0)
