"""Messages that wait, in a store that changes hands: Apache goes on with ours, and we with Apache's.

Of each kind one message has come before the change and one is still to come; each comes once.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kourou.protocol.codes import PullSysFlag, RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.record import decode_records
from kourou.transport.client import RemotingClient
from tests.interop.kit.store_handover import with_apache, with_kourou

pytestmark = pytest.mark.interop

TOPIC = "TopicTest"
# A JVM has to stop or start meanwhile. Nightly suites share the machine with fault loops.
LATE_S = 40 if os.environ.get("KOUROU_NIGHTLY") == "1" else 20
LEVELS = f"1s {LATE_S}s"


async def send(client: RemotingClient, address: str, uniq_key: str, delay: str) -> None:
    header = SendMessageRequestHeaderV2(
        producer_group="P",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties=f"UNIQ_KEY\x01{uniq_key}\x02{delay}\x02",
    )
    command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, uniq_key.encode())
    answer = await client.call(address, command, 10_000)
    assert answer.code == 0, answer.remark


async def send_all(client: RemotingClient, address: str) -> None:
    """Two of each kind: one comes soon, one after the change."""
    await send(client, address, "level-soon", "DELAY\x011")
    await send(client, address, "timer-soon", "TIMER_DELAY_MS\x011000")
    await send(client, address, "level-late", "DELAY\x012")
    await send(client, address, "timer-late", f"TIMER_DELAY_SEC\x01{LATE_S}")


async def keys_after(client: RemotingClient, address: str, count: int, more_s: float = 0) -> list[str]:
    """What is in the topic, once there are so many, and some time later."""
    keys: list[str] = []
    async with asyncio.timeout(60 + LATE_S):
        while len(keys) < count:
            keys += await pull(client, address, len(keys))
            await asyncio.sleep(0.2)
    await asyncio.sleep(more_s)
    return keys + await pull(client, address, len(keys))


async def pull(client: RemotingClient, address: str, queue_offset: int) -> list[str]:
    header = PullMessageRequestHeader(
        consumer_group="C",
        topic=TOPIC,
        queue_id=0,
        queue_offset=queue_offset,
        max_msg_nums=32,
        sys_flag=int(PullSysFlag.SUBSCRIPTION),
        commit_offset=0,
        suspend_timeout_millis=1_000,
        subscription="*",
        sub_version=0,
    )
    answer = await client.call(address, RemotingCommand.request(RequestCode.PULL_MESSAGE, header), 10_000)
    records = decode_records(answer.body) if answer.code == 0 else []
    return [message.properties["UNIQ_KEY"] for message in records]


async def before(client: RemotingClient, address: str) -> None:
    await send_all(client, address)
    await keys_come(client, address)


async def keys_come(client: RemotingClient, address: str) -> None:
    assert sorted(await keys_after(client, address, 2)) == ["level-soon", "timer-soon"]


async def after(client: RemotingClient, address: str) -> None:
    keys = await keys_after(client, address, 4, more_s=3)
    assert sorted(keys) == ["level-late", "level-soon", "timer-late", "timer-soon"]


def test_apache_goes_on_with_what_waits_in_our_store(tmp_path: Path) -> None:
    root = tmp_path / "store"
    asyncio.run(with_kourou(root, before, message_delay_level=LEVELS))
    with_apache(tmp_path, root, after, messageDelayLevel=LEVELS)


def test_we_go_on_with_what_waits_in_apaches_store(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with_apache(tmp_path, root, before, messageDelayLevel=LEVELS)
    asyncio.run(with_kourou(root, after, message_delay_level=LEVELS))


def test_we_go_on_with_our_store_after_apache_has_delivered_from_it(tmp_path: Path) -> None:
    """Its deliveries do not say what they were made from, and our note in `timercheck` no longer fits."""
    root = tmp_path / "store"
    asyncio.run(with_kourou(root, send_all, message_delay_level=LEVELS))
    with_apache(tmp_path, root, keys_come, messageDelayLevel=LEVELS)
    asyncio.run(with_kourou(root, after, message_delay_level=LEVELS))
