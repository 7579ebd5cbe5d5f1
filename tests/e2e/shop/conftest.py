"""The sample in examples/shop is not installed: its package `webshop` is found by the path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.testing import LocalCluster

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "shop"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[int]:
    """The port of a PostgreSQL; each test makes a database of its own."""
    from tests.e2e.client.kit.database_servers import postgresql

    with postgresql() as port:
        yield port


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    """A broker with the topics of the shop."""
    from tests.e2e.shop.shop_kit import create_topics, new_cluster

    with new_cluster() as cluster:
        create_topics(cluster)
        yield cluster
