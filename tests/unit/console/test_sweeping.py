"""Expired logins and idle sessions of the console: closed again and again, whatever goes wrong once."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kourou.console import context


class FailingOnce:
    """A context whose sessions cannot be closed the first time."""

    def __init__(self) -> None:
        self.sessions = self.access = self
        self.rounds = 0
        self.closed = asyncio.Event()

    def drop_expired(self) -> None:
        self.rounds += 1

    async def close_idle(self) -> None:
        if self.rounds == 1:
            raise OSError("no descriptors")

    async def drop_logged_out(self) -> None:
        self.closed.set()


async def test_a_failure_is_logged_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(context, "_SWEEP_S", 0.0)
    failing: Any = FailingOnce()
    with caplog.at_level(logging.ERROR):
        sweep = asyncio.create_task(context._sweep(failing))
        await asyncio.wait_for(failing.closed.wait(), 10)
        sweep.cancel()
    assert failing.rounds >= 2
    assert "OSError: no descriptors" in caplog.text and "tried again" in caplog.text
