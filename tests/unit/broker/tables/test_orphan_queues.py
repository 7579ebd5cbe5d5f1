"""Topics whose configuration got lost: made again from the queues that are there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kourou.broker.tables.part import adopt_orphans
from tests.unit.broker.tables_kit import Tables
from tests.unit.store.message_stores import StoreKit, put


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[StoreKit]:
    with StoreKit(tmp_path / "store") as made:
        yield made


def test_a_topic_with_messages_gets_its_queues_back(kit: StoreKit, tmp_path: Path) -> None:
    store, tables = kit.open(), Tables(tmp_path).load()
    put(store, b"x", "lost", 4)
    put(store, b"x", "SELF_TEST_TOPIC")
    assert adopt_orphans(store.queues, tables.topics) == ["lost"]
    made = tables.topics.table["lost"]
    assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (5, 5, 6)


def test_the_number_of_a_folder_does_not_make_a_billion_queues(kit: StoreKit, tmp_path: Path) -> None:
    store, tables = kit.open(), Tables(tmp_path).load()
    put(store, b"x", "lost", 2_000_000_000)
    adopt_orphans(store.queues, tables.topics)
    assert tables.topics.table["lost"].read_queue_nums == 65_536
