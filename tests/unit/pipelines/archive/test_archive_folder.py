"""What makes a folder an archive, and the error for one that is not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from tests.needed import need_module

need_module("pyspark")
need_module("pyarrow")

from kourou.spark.pipelines.archive.archive import ArchiveRequest  # noqa: E402
from kourou.spark.pipelines.archive.archive_folder import ensure_archive, open_archive  # noqa: E402
from kourou.spark.pipelines.replay.replay import ReplayRequest, wanted_topics  # noqa: E402
from kourou.spark.pipelines.replay.replay_state import ReplayState  # noqa: E402


def test_an_archive_is_what_it_was_made_as(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    made = ensure_archive(folder, topics=["b", "a"], format="delta")
    made.save()
    assert open_archive(folder) == made
    assert (made.format, made.topics, made.table.partition_by) == ("delta", ("a", "b"), ("topic", "date"))
    again = ensure_archive(folder, topics=["c"])
    assert (again.format, again.topics) == ("delta", ("a", "b", "c"))
    assert ensure_archive(folder).topics == ("a", "b")


def test_a_missing_folder_and_a_missing_archive_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing: no such folder"):
        open_archive(tmp_path / "missing")
    with pytest.raises(ConfigError, match=r"is not an archive: it has no _kourou/archive\.json"):
        open_archive(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot read it"),
        ("[]", "cannot read it"),
        ('{"version": 2}', "created by a later version of Kourou"),
        ('{"version": 1, "format": "delta"}', "cannot read it"),
        ('{"version": 1, "format": "orc", "topics": []}', "unknown format 'orc'"),
        ('{"version": 1, "format": "delta", "topics": [], "what": 1}', "cannot read it"),
    ],
)
def test_a_damaged_mark_is_reported(tmp_path: Path, content: str, words: str) -> None:
    mark = tmp_path / "_kourou" / "archive.json"
    mark.parent.mkdir()
    mark.write_text(content)
    with pytest.raises(ConfigError, match=words):
        open_archive(tmp_path)


def test_a_folder_that_is_something_else_stays_so(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="the folder is not empty, and is not an archive"):
        ensure_archive(tmp_path, topics=["a"])
    with pytest.raises(ConfigError, match="is a file; an archive is a folder"):
        ensure_archive(tmp_path / "letter.txt", topics=["a"])


def test_another_kind_of_archive_is_refused(tmp_path: Path) -> None:
    ensure_archive(tmp_path / "a", topics=["a"]).save()
    with pytest.raises(ConfigError, match="the archive's format is 'parquet', not 'delta'"):
        ensure_archive(tmp_path / "a", format="delta")
    ensure_archive(tmp_path / "b", pattern="a.*").save()
    with pytest.raises(ConfigError, match="has a pattern"):
        ensure_archive(tmp_path / "b", topics=["a"])


def test_mistakes_of_a_request_are_reported_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give the archive's folder with --to"):
        ArchiveRequest(to="").archive()
    with pytest.raises(ConfigError, match="nothing to archive"):
        ArchiveRequest(to=str(tmp_path / "a")).archive()
    with pytest.raises(ConfigError, match="topics and --pattern are mutually exclusive"):
        ArchiveRequest(to=str(tmp_path / "a"), topics=("a",), pattern="b").archive()
    with pytest.raises(ConfigError, match="unknown format 'parkett'; did you mean parquet"):
        ArchiveRequest(to=str(tmp_path / "a"), topics=("a",), format="parkett").archive()
    request = ArchiveRequest(
        to=str(tmp_path / "a"), topics=("a",), options={"startingOffsets": "latest", "subscribe": "b"}
    )
    with pytest.raises(ConfigError) as error:
        request.source_options(request.archive())
    assert error.value.problems == (
        "--option startingOffsets: use --from instead",
        "--option subscribe: use topics instead",
    )


def test_the_options_of_the_source(tmp_path: Path) -> None:
    request = ArchiveRequest(
        to=str(tmp_path / "a"),
        topics=("b", "a"),
        namesrv="n:1",
        start="2026-01-31T08:00:00+00:00",
        group="g",
        options={"failOnDataLoss": "false"},
    )
    assert request.source_options(request.archive()) == {
        "subscribe": "a,b",
        "startingTimestamp": "2026-01-31T08:00:00+00:00",
        "maxOffsetsPerTrigger": "1000000",
        "failOnDataLoss": "false",
        "namesrv": "n:1",
        "groupId": "g",
    }
    by_pattern = ArchiveRequest(to=str(tmp_path / "b"), pattern="a.*", start="latest")
    options = by_pattern.source_options(by_pattern.archive())
    assert (options["subscribePattern"], options["startingOffsets"]) == ("a.*", "latest")


def test_mistakes_of_a_replay_are_reported_together() -> None:
    request = ReplayRequest(archive="a", from_ms=5_000, until_ms=5_000, rate=0.0, options={"topic": "x"})
    with pytest.raises(ConfigError) as error:
        request.check()
    assert error.value.problems == (
        "--option topic: use --to instead",
        "no destination: give --to TOPIC, or --same-topics",
        "the range is empty: --from 1970-01-01T00:00:05.000+00:00 is not before "
        "--until 1970-01-01T00:00:05.000+00:00",
        "--rate 0: must be more than 0 messages per second",
    )
    with pytest.raises(ConfigError, match="--to and --same-topics are mutually exclusive"):
        ReplayRequest(archive="a", to="b", same_topics=True).check()


def test_an_archive_without_messages_is_reported(tmp_path: Path) -> None:
    archive = ensure_archive(tmp_path / "a", topics=["a"])
    archive.save()
    with pytest.raises(ConfigError, match="the archive has no messages yet"):
        wanted_topics(archive, ())


def test_the_same_replay_is_not_done_by_two_at_once(tmp_path: Path) -> None:
    archive = ensure_archive(tmp_path / "a", topics=["a"])
    what, other = {"to": "b"}, {"to": "c"}
    with ReplayState.locked(archive, what):
        with pytest.raises(ConfigError, match=f"process {os.getpid()} is running the same replay"):
            with ReplayState.locked(archive, what):
                pass
        with ReplayState.locked(archive, other):
            pass
    with ReplayState.locked(archive, what):
        pass


def test_the_mark_says_what_others_may_want_to_know(tmp_path: Path) -> None:
    ensure_archive(tmp_path, topics=["a"], format="iceberg", name="x.y").save()
    content = json.loads((tmp_path / "_kourou" / "archive.json").read_text())
    assert content == {
        "version": 1,
        "format": "iceberg",
        "topics": ["a"],
        "pattern": None,
        "name": "x.y",
        "catalog": "",
    }
