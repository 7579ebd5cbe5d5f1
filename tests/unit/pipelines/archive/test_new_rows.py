"""Whether a stream has anything to read, by its checkpoint and over a client that is played."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from kourou.errors import KourouError
from kourou.protocol.bodies import MessageQueue
from kourou.spark.source.offsets import Positions, QueueOffsets
from tests.needed import need_module

need_module("pyspark")

from kourou.spark.pipelines.archive.archive import committed_positions, has_new_rows, is_new  # noqa: E402

ROOT = Path(__file__).parents[4]
# As Spark has written it.
CHECKPOINT = ROOT / "tests" / "spark" / "checkpoint-v1"
FIRST, SECOND, THIRD = (MessageQueue("kept", "broker-a", number) for number in range(3))
OPTIONS = {"namesrv": "n:1", "subscribe": "kept", "startingOffsets": "earliest"}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return Path(shutil.copytree(CHECKPOINT, tmp_path / "checkpoint"))


class Client:
    """A topic whose queues end somewhere."""

    def __init__(self, ends: QueueOffsets, begins: QueueOffsets | None = None) -> None:
        self.ends = ends
        self.begins = begins or {}
        self.is_away = False
        self.slave_ends: set[MessageQueue] = set()
        self.published: list[QueueOffsets] = []

    def routes(self, topics: Iterable[str]) -> dict[str, list[MessageQueue]]:
        return {topic: [queue for queue in self.ends if queue.topic == topic] for topic in topics}

    def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | KourouError]:
        return {queue: KourouError("away") if self.is_away else self.ends[queue] for queue in queues}

    def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int | KourouError]:
        return {queue: self.begins.get(queue, 0) for queue in queues}

    def publish(self, offsets: QueueOffsets) -> QueueOffsets:
        self.published.append(offsets)
        return offsets


def news(monkeypatch: pytest.MonkeyPatch, checkpoint: Path, client: Client, **options: str) -> bool:
    monkeypatch.setattr("kourou.spark.source.source_client.shared_client", lambda _connection: client)
    return has_new_rows({**OPTIONS, **options}, checkpoint)


def test_what_spark_has_noted_is_read(checkpoint: Path) -> None:
    found = committed_positions(checkpoint)
    assert found is not None and found.offsets == {FIRST: 4, SECOND: 2}
    assert not is_new(checkpoint)
    assert is_new(checkpoint / "nowhere")


def test_a_batch_that_is_not_done_is_left_to_spark(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(checkpoint / "offsets" / "0", checkpoint / "offsets" / "1")
    assert committed_positions(checkpoint) is None
    assert news(monkeypatch, checkpoint, Client({FIRST: 4, SECOND: 2}))
    shutil.copy(checkpoint / "commits" / "0", checkpoint / "commits" / "1")
    assert committed_positions(checkpoint) is not None
    # Spark writes a file under another name before it is there.
    (checkpoint / "offsets" / ".2.0c1f.tmp").write_text("")
    assert committed_positions(checkpoint) is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "v1\n{}",
        "v2\n{}\n" + json.dumps(Positions({FIRST: 4}).to_json()),
        "v1\n{}\n{not json",
        'v1\n{}\n{"version": 99, "offsets": {}}',
        "v1\n{}\n17",
        # Of two sources.
        "v1\n{}\n" + "\n".join([json.dumps(Positions({FIRST: 4}).to_json())] * 2),
    ],
)
def test_what_is_not_understood_is_left_to_spark(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (checkpoint / "offsets" / "0").write_text(text)
    assert committed_positions(checkpoint) is None
    assert news(monkeypatch, checkpoint, Client({FIRST: 4, SECOND: 2}))


def test_nothing_is_new_where_queues_end_at_what_was_read(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not news(monkeypatch, checkpoint, Client({FIRST: 4, SECOND: 2}))
    # A queue that is new and has nothing, and one whose messages are gone already.
    assert not news(monkeypatch, checkpoint, Client({FIRST: 4, SECOND: 2, THIRD: 0}))
    assert not news(monkeypatch, checkpoint, Client({FIRST: 4, SECOND: 2, THIRD: 7}, {THIRD: 7}))


def test_messages_are_news(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert news(monkeypatch, checkpoint, Client({FIRST: 4, SECOND: 3}))
    assert news(monkeypatch, checkpoint, Client({FIRST: 4, SECOND: 2, THIRD: 1}))


def test_problems_are_news_so_that_the_run_reports_them(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Client({FIRST: 3, SECOND: 2})
    assert news(monkeypatch, checkpoint, lost)
    assert news(monkeypatch, checkpoint, lost, failOnDataLoss="false")
    away = Client({FIRST: 4, SECOND: 2})
    away.is_away = True
    assert news(monkeypatch, checkpoint, away)


def test_a_stream_that_was_never_run_begins_where_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert news(monkeypatch, tmp_path, Client({FIRST: 4}))
    assert not news(monkeypatch, tmp_path, Client({FIRST: 4}), startingOffsets="latest")
    assert not news(monkeypatch, tmp_path, Client({FIRST: 0}))


def test_a_groups_progress_is_published_as_in_a_run(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client({FIRST: 4, SECOND: 2})
    assert not news(monkeypatch, checkpoint, client, groupId="g")
    assert client.published == [{FIRST: 4, SECOND: 2}]
