"""A whole broker on a free port, and a client that speaks the plain protocol to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kourou.broker.admission import AdmissionCheck
from kourou.broker.controller import BrokerController
from kourou.broker.hooks import BrokerHooks
from kourou.config.broker import BrokerConfig
from kourou.protocol.batch import BatchEntry, encode_batch_entries
from kourou.protocol.codes import PullSysFlag, RequestCode
from kourou.protocol.command import RemotingCommand
from kourou.protocol.headers.pull import PullMessageRequestHeader
from kourou.protocol.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from kourou.protocol.headers.topics import CreateTopicRequestHeader
from kourou.protocol.message import MessageExt
from kourou.protocol.record import decode_records
from kourou.store.disk.files import Files
from kourou.testing.store_check import assert_store_ok
from kourou.transport.client import RemotingClient

SUSPEND = PullSysFlag.SUSPEND.value
SUBSCRIPTION = PullSysFlag.SUBSCRIPTION.value
COMMIT_OFFSET = PullSysFlag.COMMIT_OFFSET.value


def config(root: Path, **keys: Any) -> BrokerConfig:
    """Small files, this machine only."""
    small = {
        "broker_name": "broker-a",
        "broker_ip1": "127.0.0.1",
        "bind_address": "127.0.0.1",
        "listen_port": 0,
        "store_path_root_dir": str(root / "store"),
        "mapped_file_size_commit_log": 1024 * 1024,
        "max_hash_slot_num": 1000,
        "max_index_num": 4000,
        "max_message_size": 64 * 1024,
    }
    return BrokerConfig(**{**small, **keys})


class Peer:
    """A client of one broker."""

    def __init__(self, controller: BrokerController) -> None:
        self.controller = controller
        self.client = RemotingClient()

    async def call(
        self, code: int, header: msgspec.Struct | None = None, body: bytes = b"", timeout_ms: int = 5_000
    ) -> RemotingCommand:
        command = RemotingCommand.request(code, header, body)
        return await self.client.call(self.controller.address, command, timeout_ms)

    async def oneway(self, code: int, header: msgspec.Struct, body: bytes = b"") -> None:
        await self.client.send_oneway(self.controller.address, RemotingCommand.request(code, header, body))

    async def send(
        self, topic: str = "TopicTest", body: bytes = b"hello", properties: str = "", **fields: Any
    ) -> RemotingCommand:
        return await self.call(RequestCode.SEND_MESSAGE_V2, send_header(topic, properties, **fields), body)

    async def send_batch(self, topic: str, bodies: list[bytes], **fields: Any) -> RemotingCommand:
        entries = [BatchEntry(0, body, f"UNIQ_KEY\x01ID{n}\x02".encode()) for n, body in enumerate(bodies)]
        header = send_header(topic, "", batch=True, **fields)
        return await self.call(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch_entries(entries))

    async def pull(self, topic: str = "TopicTest", queue_offset: int = 0, **fields: Any) -> RemotingCommand:
        return await self.call(RequestCode.PULL_MESSAGE, pull_header(topic, queue_offset, **fields))

    async def until_held(self, count: int) -> None:
        """Wait until so many pulls wait at the broker."""
        async with asyncio.timeout(5):
            while len(self.controller.services.holds) < count:  # noqa: ASYNC110 (nothing tells us)
                await asyncio.sleep(0.005)


def send_header(topic: str, properties: str = "", **fields: Any) -> SendMessageRequestHeaderV2:
    return SendMessageRequestHeaderV2(**_send_fields(topic, properties, fields))


def send_header_v1(topic: str, properties: str = "", **fields: Any) -> SendMessageRequestHeader:
    return SendMessageRequestHeader(**_send_fields(topic, properties, fields))


def _send_fields(topic: str, properties: str, fields: dict[str, Any]) -> dict[str, Any]:
    return {
        "producer_group": "producers",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "flag": 0,
        "properties": properties,
        **fields,
    }


def topic_header(topic: str, queues: int, attributes: str | None = None) -> CreateTopicRequestHeader:
    """A topic that may be read and written."""
    return CreateTopicRequestHeader(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
        attributes=attributes,
    )


def pull_header(topic: str, queue_offset: int, **fields: Any) -> PullMessageRequestHeader:
    default = {
        "consumer_group": "consumers",
        "topic": topic,
        "queue_id": 0,
        "queue_offset": queue_offset,
        "max_msg_nums": 32,
        "sys_flag": SUBSCRIPTION,
        "commit_offset": 0,
        "suspend_timeout_millis": 5_000,
        "subscription": "*",
        "sub_version": 0,
    }
    return PullMessageRequestHeader(**{**default, **fields})


def messages(answer: RemotingCommand) -> list[MessageExt]:
    """What a pull brought."""
    return list(decode_records(answer.body))


@contextlib.asynccontextmanager
async def running(
    root: Path,
    *,
    files: Files | None = None,
    hooks: BrokerHooks | None = None,
    checks: Sequence[AdmissionCheck] = (),
    **keys: Any,
) -> AsyncIterator[Peer]:
    """A broker for one test; at its end it stops in order and its store has to be sound."""
    controller = BrokerController(config(root, **keys), files=files, hooks=hooks, checks=checks)
    await controller.start()
    peer = Peer(controller)
    failed = asyncio.ensure_future(controller.wait_failed())
    try:
        yield peer
        assert not failed.done() or failed.exception() is None, failed
    finally:
        await peer.client.stop()
        await controller.stop()
        await asyncio.wait([failed])
    if files is None:
        assert_store_ok(root / "store")
