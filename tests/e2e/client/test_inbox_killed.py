"""Consumers with an inbox, killed between every two statements of their path: each effect is there once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kourou.testing import LocalCluster
from tests.crash.killed_broker import environment
from tests.e2e.client.kit.database_servers import mariadb, postgresql
from tests.e2e.client.kit.inbox_kit import Place
from tests.e2e.client.kit.inbox_process import LAST, TOPIC, first_orders

pytestmark = [pytest.mark.slow, pytest.mark.crash]


@contextmanager
def _database(name: str, folder: Path) -> Iterator[Place]:
    path = folder / "shop.db"
    if name == "sqlite":
        yield Place(name, path)
        return
    with (postgresql if name == "postgresql" else mariadb)() as port:
        yield Place(name, path, port)


@pytest.mark.parametrize(
    ("database", "variant"),
    [
        ("sqlite", "keys"),
        ("sqlite", "offsets"),
        pytest.param("postgresql", "batches", marks=pytest.mark.integration),
        pytest.param("mariadb", "offsets", marks=pytest.mark.integration),
    ],
)
def test_killed_between_every_two_statements(database: str, variant: str, tmp_path: Path) -> None:
    with _database(database, tmp_path) as place, LocalCluster() as cluster:
        cluster.create_topic(TOPIC, queues=1)
        arguments = [cluster.namesrv, database, str(place.path), str(place.port), variant]
        done = subprocess.run(
            [sys.executable, "-m", "tests.e2e.client.kit.inbox_process", *arguments],
            env=environment(tmp_path), capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        count, *points = done.stdout.splitlines()
        charges = place.query("SELECT consumer, order_id FROM charges ORDER BY consumer, order_id")
    first = first_orders(variant)
    groups = [f"killed-{number}" for number in range(1, int(count) + 1)]
    assert sorted(charges) == sorted(
        [(group, order) for group in groups for order in (*first, LAST)]
        + [("counting", order) for order in first]
    )
    # The path was the whole path.
    assert {"after SAVEPOINT kourou_handler", "before commit", "after commit", "after the handler"} <= set(
        points
    )
    assert ("after INSERT INTO inbox" in points) == (variant != "offsets")
    assert ("after an offset is stored" in points) == (variant != "keys")
