"""Shared by the tests of the store: queues that a test opened are closed at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from kourou.store.queue.consume_queues import ConsumeQueues


@pytest.fixture(autouse=True)
def closed_queues(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Thousands of descriptors were open at the end of the run, more than many machines allow."""
    opened: list[ConsumeQueues] = []
    init = ConsumeQueues.__init__

    def noted(queues: ConsumeQueues, *args: Any, **kwargs: Any) -> None:
        init(queues, *args, **kwargs)
        opened.append(queues)

    monkeypatch.setattr(ConsumeQueues, "__init__", noted)
    yield
    for queues in opened:
        with suppress(OSError):  # files of a disk that failed
            queues.close()
