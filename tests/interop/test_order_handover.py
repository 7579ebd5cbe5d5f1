"""Orderly POP in a store that changes hands: what one broker has handed out stays blocked at the other, and
acks count there."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from kourou.protocol.codes import RequestCode, ResponseCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pop import AckMessageRequestHeader
from kourou.protocol.headers.send import SendMessageRequestHeaderV2
from kourou.protocol.pop.receipt_handle import ReceiptHandle
from kourou.transport.client import RemotingClient
from tests.e2e.broker.pop_delivery_kit import GROUP, PopAnswer, pop_header
from tests.interop.kit.store_handover import with_apache, with_kourou

pytestmark = pytest.mark.interop

TOPIC = "Ordered"
_CALL_MS = 10_000


async def call(client: RemotingClient, address: str, command: RemotingCommand) -> RemotingCommand:
    return await client.call(address, command, _CALL_MS)


async def pop(client: RemotingClient, address: str, attempt_id: str) -> PopAnswer:
    header = pop_header(
        TOPIC,
        queue_id=0,
        max_msg_nums=2,
        order=True,
        attempt_id=attempt_id,
        invisible_time=300_000,
        exp_type="TAG",
        exp="*",
    )
    return PopAnswer.of(await call(client, address, RemotingCommand.request(RequestCode.POP_MESSAGE, header)))


async def ack(client: RemotingClient, address: str, handle: ReceiptHandle) -> None:
    header = AckMessageRequestHeader(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=0,
        extra_info=handle.encode(),
        queue_offset=handle.queue_offset,
    )
    answer = await call(client, address, RemotingCommand.request(RequestCode.ACK_MESSAGE, header))
    assert answer.code == 0, answer.remark


async def hand_out(handles: list[ReceiptHandle], client: RemotingClient, address: str) -> None:
    """Six messages; two are popped, and one of them is acknowledged."""
    for number in range(6):
        header = SendMessageRequestHeaderV2(
            producer_group="P",
            topic=TOPIC,
            default_topic="TBW102",
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp=1,
            flag=0,
            properties=f"UNIQ_KEY\x01ID{number}\x02",
        )
        command = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, b"%d" % number)
        assert (await call(client, address, command)).code == 0
    async with asyncio.timeout(30):
        while (first := await pop(client, address, "a")).code != 0:  # noqa: ASYNC110 (nothing tells us)
            await asyncio.sleep(0.1)
    assert first.bodies == [b"0", b"1"] and first.header is not None
    (queue,) = first.queues
    for offset in queue.offsets:
        handles.append(
            ReceiptHandle(
                queue.start_offset,
                first.header.pop_time,
                first.header.invisible_time,
                first.header.revive_qid,
                queue.kind,
                "broker-a",
                0,
                offset,
            )
        )
    await ack(client, address, handles[0])


async def go_on(handles: list[ReceiptHandle], client: RemotingClient, address: str) -> None:
    """The queue is blocked until the other message is acknowledged, too."""
    assert (await pop(client, address, "b")).code == ResponseCode.POLLING_TIMEOUT
    await ack(client, address, handles[1])
    assert (await pop(client, address, "b")).bodies == [b"2", b"3"]


def test_apache_goes_on_with_what_we_have_handed_out(tmp_path: Path) -> None:
    handles: list[ReceiptHandle] = []
    asyncio.run(with_kourou(tmp_path / "store", partial(hand_out, handles)))
    with_apache(tmp_path, tmp_path / "store", partial(go_on, handles))


def test_we_go_on_with_what_apache_has_handed_out(tmp_path: Path) -> None:
    handles: list[ReceiptHandle] = []
    with_apache(tmp_path, tmp_path / "store", partial(hand_out, handles))
    asyncio.run(with_kourou(tmp_path / "store", partial(go_on, handles)))
