"""The cluster of all tests here: retries are delivered after one second, not ten."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest


@pytest.fixture(scope="session")
def rocketmq_settings() -> Mapping[str, Any]:
    return {"brokers": 2, "message_delay_level": "1s 1s 1s 1s"}
