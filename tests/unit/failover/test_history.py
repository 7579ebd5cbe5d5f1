"""What is written to a history file is read again, also when its writer was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.failover.history import History, HistoryError, read_history


def test_an_operation_is_read_as_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with History(path) as history:
        send = history.begin("send", "producer", value="a", is_idempotent=True)
        send.queue, send.queue_offset = "Topic/broker-a/0", 7
        history.end(send)
        history.event("nemesis", "kill -9")
    read, event = read_history(path)
    assert read == send
    assert read.end_ns is not None and read.begin_ns <= read.end_ns <= event.begin_ns
    assert (event.kind, event.error) == ("event", "kill -9")


def test_what_never_ended_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with History(path) as history:
        history.begin("send", "producer", value="a")
        history.begin("read", "reader", value="b")  # has no effect, so it need not be known
        history.end(history.begin("send", "producer", value="c"))
    ended, begun = read_history(path)
    assert (ended.value, ended.outcome) == ("c", "ok")
    assert (begun.value, begun.outcome, begun.end_ns) == ("a", "unknown", None)


def test_a_torn_last_line_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with History(path) as history:
        for value in "ab":
            history.end(history.begin("send", "producer", value=value))
    path.write_bytes(path.read_bytes()[:-20])
    first, second = read_history(path)
    assert (first.value, first.outcome) == ("a", "ok")
    assert (second.value, second.outcome) == ("b", "unknown")


def test_a_line_that_is_no_operation_is_named(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text('{"process":"p","number":1,"kind":"event","begin_ns":1,"end_ns":1}\nnonsense\n')
    with pytest.raises(HistoryError, match=r"history\.jsonl:2: not an operation"):
        list(read_history(path))


def test_two_writers_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    with History(path) as first, History(path) as second:
        send = first.begin("send", "first", value="a")
        second.end(second.begin("send", "second", value="b"), "failed")
        first.end(send, "unknown")
    assert [(each.value, each.outcome) for each in read_history(path)] == [("b", "failed"), ("a", "unknown")]
