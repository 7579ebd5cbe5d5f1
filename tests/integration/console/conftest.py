"""Shared by the tests of the console's API: a cluster of two brokers, and a console without login."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kourou.testing.cluster import Cluster, cluster
from tests.integration.console.kit import Console, console_of


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path / "cluster", brokers=2) as started:
        yield started


@pytest.fixture
async def console(running: Cluster, tmp_path: Path) -> AsyncIterator[Console]:
    async with console_of(running.namesrv_addr, tmp_path) as started:
        yield started
