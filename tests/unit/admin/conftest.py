"""Shared by the tests of mqadmin: the time zone in which Apache's tools were recorded."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is UTC, and nothing of the environment says where to connect."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        for name in ("NAMESRV_ADDR", "ROCKETMQ_HOME", "KOUROU_MQADMIN_FORMAT"):
            patch.delenv(name, raising=False)
        time.tzset()
        yield
    time.tzset()
