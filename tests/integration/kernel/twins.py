"""Two brokers that are fed the same requests, one of them with the kernel; and requests for them."""

from __future__ import annotations

import asyncio
import json
import random
import struct
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from kourou.protocol.header_binary import encode_binary_head
from tests.golden.frames import recorded_frames
from tests.integration.kernel.kernel_kit import FedBroker, fed_broker
from tests.interop.kit.ports import free_port

T = TypeVar("T")
HOSTS = ("127.0.0.1", "127.0.0.2")
ID = "AC110001A1B218B4AAC2000000003039"
ORDINARY: dict[str, Any] = {
    "a": "producers",
    "b": "TopicTest",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": f"KEYS\x01k1\x02UNIQ_KEY\x01{ID}\x02WAIT\x01true\x02TAGS\x01TagA\x02",
    "j": "0",
    "k": "false",
    "m": "false",
    "n": "broker-a",
}


def frame(header: bytes, body: bytes = b"hello", serialize_type: int = 0) -> bytes:
    mark = serialize_type << 24 | len(header)
    return struct.pack(">II", 4 + len(header) + len(body), mark) + header + body


def send(fields: dict[str, Any] | None = None, **head: Any) -> bytes:
    """The header of a send, with what is given instead of what is ordinary; None takes a field out."""
    ext = {name: value for name, value in {**ORDINARY, **(fields or {})}.items() if value is not None}
    whole = {
        "code": 310,
        "extFields": ext,
        "flag": 0,
        "language": "JAVA",
        "opaque": 7,
        "serializeTypeCurrentRPC": "JSON",
        "version": 501,
        **head,
    }
    return json.dumps(whole, separators=(",", ":")).encode()


def binary_send(
    fields: dict[str, str | None] | None = None,
    *,
    code: int = 310,
    language: int = 0,
    version: int = 501,
    opaque: int = 7,
    flag: int = 0,
    remark: str | None = None,
) -> bytes:
    """The same with a binary header."""
    ext = {name: value for name, value in {**ORDINARY, **(fields or {})}.items() if value is not None}
    return encode_binary_head(code, language, version, opaque, flag, remark, ext)


def recorded_requests(version: str, code: int, serialize_type: int = 0) -> list[bytes]:
    """Requests that Java clients sent to an Apache broker of this version; there are some."""
    found = [
        recorded.frame
        for recorded in recorded_frames(version)
        if recorded.type == "request" and recorded.code == code and recorded.frame[4] == serialize_type
    ]
    assert found
    return found


class Twins:
    """Two brokers that are fed the same, the first with the kernel."""

    def __init__(self, runner: asyncio.Runner, brokers: tuple[FedBroker, FedBroker]) -> None:
        self._runner = runner
        self.brokers = brokers

    @property
    def taken(self) -> int:
        return self.brokers[0].taken

    @property
    def calls(self) -> int:
        return self.brokers[0].calls

    def feed(self, data: bytes) -> bytes:
        """What both answer; that, and what they store, has to be the same."""
        return self.feed_together([data])[0]

    def feed_twice(self, reads: Sequence[bytes]) -> int:
        """Feed each by itself, so that topics are known, then all again: how many the kernel took then."""
        for data in reads:
            self.feed(data)
        before = self.taken
        for data in reads:
            self.feed(data)
        return self.taken - before

    def feed_together(self, reads: Sequence[bytes | Sequence[bytes]]) -> list[bytes]:
        """The same for what comes on several connections within one pass. Each of several has to begin with
        an ordinary send: one that begins with another request is served before those that came earlier."""
        answers, logs = [], []
        for broker in self.brokers:
            random.seed(1)  # for a queue that the broker chooses
            end = broker.services.store.log.max_phy_offset
            answers.append(self._runner.run(_fed(broker, reads)))
            logs.append(broker.log_bytes(end))
        assert answers[0] == answers[1]
        assert logs[0] == logs[1]
        first, second = self.brokers
        assert first.messages == second.messages
        return answers[0]

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the brokers' loop."""
        return self._runner.run(work)

    def assert_same(self) -> None:
        first, second = self.brokers
        assert first.units() == second.units()
        keys = ("k1", "k2", ID)
        for topic, key in ((topic, key) for topic in ("TopicTest", "Other") for key in keys):
            assert _indexed(first, topic, key) == _indexed(second, topic, key)


async def _fed(broker: FedBroker, reads: Sequence[bytes | Sequence[bytes]]) -> list[bytes]:
    answers = broker.feed(reads)
    await asyncio.sleep(0)
    return answers


def _indexed(broker: FedBroker, topic: str, key: str) -> list[int]:
    index = broker.services.store.index
    assert index is not None
    return index.query(topic, key, 64, 0, 1 << 60)


def started(runner: asyncio.Runner, stack: AsyncExitStack, root: Path, **keys: Any) -> Twins:
    port = free_port()

    async def start() -> list[FedBroker]:
        made = [
            fed_broker(root / host, host=host, port=port, kernel=host == HOSTS[0], **_own(keys))
            for host in HOSTS
        ]
        return [await stack.enter_async_context(one) for one in made]

    first, second = runner.run(start())
    assert first.has_kernel and not second.has_kernel
    return Twins(runner, (first, second))


def _own(keys: dict[str, Any]) -> dict[str, Any]:
    return {name: value() if name == "files" else value for name, value in keys.items()}
