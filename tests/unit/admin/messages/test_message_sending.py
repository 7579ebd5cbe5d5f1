"""A stream of sends: which outcomes are reported when one fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from kourou.admin.messages import message_sending
from kourou.admin.messages.message_sending import send_messages
from kourou.admin.session import Admin
from kourou.errors import KourouError
from kourou.protocol.message import Message


class ProducerDouble:
    """Its first send fails when no more can be begun; the others fail at once, which is enough here."""

    def __init__(self) -> None:
        self.sent: list[asyncio.Future[Any]] = []

    def send_nowait(self, message: Message, sharding_key: str | None) -> asyncio.Future[Any]:
        self.sent.append(asyncio.get_running_loop().create_future())
        if len(self.sent) > 1:
            self.sent[-1].set_exception(KourouError("away"))
        if len(self.sent) == message_sending.MAX_CONCURRENT_SENDS:
            self.sent[0].set_exception(KourouError("away"))
        return self.sent[-1]


async def test_after_a_failure_every_send_that_was_begun_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = ProducerDouble()

    @asynccontextmanager
    async def started(*_: object) -> AsyncIterator[ProducerDouble]:
        yield producer

    async def messages() -> AsyncIterator[Message]:
        for _ in range(100):
            yield Message("T", b"x")

    monkeypatch.setattr(message_sending, "started_producer", started)
    outcomes = [outcome async for outcome in send_messages(cast(Admin, None), messages())]
    assert len(outcomes) == len(producer.sent)
