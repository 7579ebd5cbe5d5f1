"""A proxy between recorded calls and recorded brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.proxy.recorded import ProxyKit


@pytest.fixture
async def kit() -> AsyncIterator[ProxyKit]:
    made = ProxyKit()
    yield made
    await made.stop()
