"""`kourou pipeline archive` with real Spark: every message is in the archive once, whenever it is killed."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kourou.errors import KourouError
from kourou.testing import LocalCluster
from tests.needed import need_module
from tests.spark.conftest import need_spark
from tests.spark.kit.archive_kit import archived, archived_places, fill, places, run_child, sent_places

pq = need_module("pyarrow.parquet")
need_module("pyspark")
need_module("deltalake")
need_module("pyiceberg")

from kourou.spark.pipelines.archive.archive import ArchiveRequest, run_archive  # noqa: E402
from kourou.spark.pipelines.archive.archive_folder import open_archive  # noqa: E402
from kourou.spark.pipelines.lake.lake import compact, open_backend  # noqa: E402
from kourou.spark.pipelines.progress import ProgressOutput  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = ("parquet", "delta", "iceberg")
# When, and the how manieth time; test_lake_killed.py has all others.
MOMENTS = {
    "parquet": [("staged", "2"), ("committed", "2"), ("merged", "1"), ("replaced", "1")],
    "delta": [("staged", "1"), ("committed", "2"), ("merged", "1")],
    "iceberg": [("moved", "2"), ("committed", "1"), ("merged", "1")],
}


def quiet() -> ProgressOutput:
    return ProgressOutput(as_json=True, stream=io.StringIO(), is_terminal=False)


@pytest.mark.parametrize("format", FORMATS)
def test_messages_are_archived_whole_and_once(
    spark: SparkSession, rocketmq: LocalCluster, tmp_path: Path, format: str
) -> None:
    first, second = f"first-{format}", f"second-{format}"
    for topic in (first, second):
        rocketmq.create_topic(topic, queues=2)
    fill(rocketmq, first, range(90))
    folder = tmp_path / "archive"
    request = ArchiveRequest(
        to=str(folder), topics=(first,), namesrv=rocketmq.namesrv, format=format, batch_messages=20
    )
    output = quiet()
    assert run_archive(request, output).rows == 90
    lines = [json.loads(line) for line in output.stream.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert lines[-1]["type"] == "summary" and lines[-1]["rows"] == 90
    frame = archived(spark, folder)
    assert places(frame) == sent_places(rocketmq, first)
    check_columns(spark, rocketmq, folder, first)
    # Batches are those of this checkpoint: another one begins to count anew, and is not taken for this.
    query_id = json.loads((folder / "_kourou" / "checkpoint" / "metadata").read_text())["id"]
    assert open_backend(open_archive(folder).table).last_batch_id(f"kourou-archive:{query_id}") == 4
    # Later runs know the topics and the format, and go on; other topics may come.
    fill(rocketmq, first, range(90, 100))
    fill(rocketmq, second, range(30))
    again = ArchiveRequest(to=str(folder), topics=(second,), namesrv=rocketmq.namesrv)
    assert run_archive(again, quiet()).rows == 40
    assert open_archive(folder).topics == (first, second)
    assert places(archived(spark, folder)) == sent_places(rocketmq, first, second)
    # A batch that Spark does again, because it does not know that it was done.
    commits = folder / "_kourou" / "checkpoint" / "commits"
    last = max((path for path in commits.glob("[0-9]*")), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()
    run_archive(ArchiveRequest(to=str(folder), namesrv=rocketmq.namesrv), quiet())
    assert places(archived(spark, folder)) == sent_places(rocketmq, first, second)
    check_compaction(spark, folder)


def check_columns(spark: SparkSession, rocketmq: LocalCluster, folder: Path, topic: str) -> None:
    """Rows have all that their messages have."""
    messages = {(each.queue_id, each.queue_offset): each for each in rocketmq.messages(topic)}
    for row in archived(spark, folder).where(f"topic = '{topic}'").collect():
        message = messages[row["queue_id"], row["queue_offset"]]
        assert bytes(row["value"]) == message.body
        assert (row["key"], tuple(row["keys"])) == (" ".join(message.keys), message.keys)
        assert (row["tags"], row["flag"]) == (message.tags, 0)
        assert row["properties"] == dict(message.properties)
        assert (row["broker"], row["msg_id"]) == ("broker-a", message.msg_id)
        stored = row["store_timestamp"].astimezone(UTC)
        assert round(stored.timestamp() * 1000) == message.store_timestamp
        assert round(row["born_timestamp"].timestamp() * 1000) == message.born_timestamp
        assert row["date"] == stored.date()


def check_compaction(spark: SparkSession, folder: Path) -> None:
    """A reader that has begun before a compaction reads on."""
    table = open_archive(folder).table
    before = archived(spark, folder)
    expected = places(before)
    result = compact(table, min_files=2)
    assert result.files_before > result.files_after
    assert places(before) == expected
    assert places(archived(spark, folder)) == expected


def test_with_nothing_new_spark_is_not_started(
    spark: SparkSession,
    rocketmq: LocalCluster,
    rocketmq_topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "archive"
    request = ArchiveRequest(to=str(folder), topics=(rocketmq_topic,), namesrv=rocketmq.namesrv)
    fill(rocketmq, rocketmq_topic, range(6))
    first = run_archive(request, quiet())
    assert (first.rows, first.rows_written) == (6, 6)

    def no_session(*_words: object, **_options: object) -> None:
        raise AssertionError("Spark was started")

    with monkeypatch.context() as patched:
        patched.setattr("kourou.spark.pipelines.pipeline_session.pipeline_session", no_session)
        words = ProgressOutput(as_json=False, stream=io.StringIO(), is_terminal=False)
        summary = run_archive(request, words)
        with pytest.raises(KourouError, match=r"no route to topic 'nowhere'.* there are "):
            run_archive(replace(request, to=str(tmp_path / "other"), topics=("nowhere",)), quiet())
    assert (summary.rows, summary.ended, summary.lag_messages) == (0, "finished", 0)
    assert summary.rows_written == 0
    (line,) = words.stream.getvalue().splitlines()  # type: ignore[attr-defined]
    assert line.startswith("archive: 0 rows, ") and line.endswith(
        "no lag; nothing new; Spark was not started"
    )
    fill(rocketmq, rocketmq_topic, range(6, 8))
    assert run_archive(request, quiet()).rows_written == 2
    assert places(archived(spark, folder)) == sent_places(rocketmq, rocketmq_topic)


@pytest.mark.nightly
@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_killed_at_any_moment_every_message_is_there_once(tmp_path: Path, format: str) -> None:
    need_spark()
    folder = tmp_path / "archive"
    with LocalCluster() as mq:
        mq.create_topic("orders", queues=2)
        request = {
            "to": str(folder),
            "topics": ["orders"],
            "namesrv": mq.namesrv,
            "format": format,
            "batch_messages": 30,
        }
        sent = 0
        for moment, times in MOMENTS[format]:
            fill(mq, "orders", range(sent, sent + 100))
            sent += 100
            run_child("archive", request, moment, times)
        lines = run_child("archive", request)
        assert lines[-1]["type"] == "summary" and lines[-1]["lag_messages"] == 0
        expected = sent_places(mq, "orders")
        assert sum(expected.values()) == sent
        assert archived_places(folder) == expected
        if format == "parquet":
            # So it is for those who only know Parquet.
            assert pq.read_table(folder).num_rows == sent


def test_following_goes_on_with_what_comes(
    spark: SparkSession, rocketmq: LocalCluster, rocketmq_topic: str, tmp_path: Path
) -> None:
    import threading
    import time

    request = ArchiveRequest(
        to=str(tmp_path / "archive"),
        topics=(rocketmq_topic,),
        namesrv=rocketmq.namesrv,
        follow=True,
        every_ms=100,
    )
    errors: list[BaseException] = []

    def follow() -> None:
        try:
            run_archive(request, quiet())
        except KourouError as error:
            errors.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        deadline = time.monotonic() + 120
        for count in (10, 20):
            fill(rocketmq, rocketmq_topic, range(count - 10, count))
            while count != _rows(tmp_path / "archive"):
                assert time.monotonic() < deadline and thread.is_alive(), errors
                time.sleep(0.1)
    finally:
        for query in spark.streams.active:
            query.stop()
        thread.join(60)
    assert not thread.is_alive() and not errors


def _rows(folder: Path) -> int:
    try:
        snapshot = open_backend(open_archive(folder).table).snapshot()
    except KourouError:
        return 0
    return 0 if snapshot is None else sum(file.rows for file in snapshot.files)
