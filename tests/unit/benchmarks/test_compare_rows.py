"""Which rows `compare` has and takes, what they read from a load, and that each form fits into its time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import compare
from benchmarks._broker_loadgen import Interval, LoadgenError, Measured
from benchmarks._broker_peers import peer_names, python_of
from benchmarks._compare_alone import EACH_S, BacklogRow, SendsBeside, backlog_outcome
from benchmarks._compare_cores import together
from benchmarks._compare_rows import FULL, KINDS, QUICK, Scale, is_held, outcome
from benchmarks._official import reported

BROKERS = 3


def wanted(scale: Scale, *texts: str) -> list[str]:
    chosen = [compare.selected(group, scale, list(texts)) for group in compare.groups(scale)]
    return [row.name for group in chosen for row in (*group.rows, *group.alone)]


def measured(rate: float, **changes: Any) -> Measured:
    raw: dict[str, Any] = {
        "latency_us": {"p50": 100.0, "p90": 200.0, "p99": 1_000.0, "p999": 2_000.0, "max": 3_000.0},
        "codes": {"0": 10},
        "other_cores": 0.25,
        "steal_cores": 0.05,
        "msgs_per_s": rate,
        "messages": 50,
        **changes,
    }
    return Measured(rate, 12.5, 100.0, 1_000.0, raw)


@pytest.mark.parametrize("scale", [QUICK, FULL], ids=lambda scale: scale.form)
def test_every_row_of_a_form_fits_into_its_time(scale: Scale) -> None:
    groups = [compare.selected(group, scale, []) for group in compare.groups(scale)]
    assert compare.planned_s(groups, scale, BROKERS) <= scale.budget_s


def test_forms_stay_below_ten_minutes_and_an_hour() -> None:
    assert QUICK.budget_s < 600
    assert FULL.budget_s < 3_600


def test_full_form_has_all_of_quick_and_more() -> None:
    quick, full = wanted(QUICK), wanted(FULL)
    assert set(quick) < set(full)
    assert len(set(full)) == len(full)


@pytest.mark.parametrize(
    "part",
    [
        *(
            "send, async flush, 64×1",
            "send, sync flush, 16×64",
            "64 KiB",
            "128 B",
            "batches of 32",
            "one way",
        ),
        *(
            "pull of 32",
            "pull of 1,024",
            "tmpfs: send",
            "tmpfs: pull of 32, 4×8",
            "push consumption",
            "end to end at 20,000/s",
            "1,000 consumers waiting",
        ),
        *(
            "produce and consume",
            "backlog of 1 KiB",
            "backlog of 4 KiB",
            "ramp",
            "10,000 queues",
            "50,000 queues",
        ),
        *("2,000 producers", "start, recovery, memory", "official Producer", "with a Consumer"),
        *("official BatchProducer", "official TransactionProducer", "2 brokers of ours"),
    ],
)
def test_full_form_has_each_kind_of_load(part: str) -> None:
    assert any(part in name for name in wanted(FULL))


def test_rows_are_taken_by_any_part_of_their_name_whatever_the_form() -> None:
    assert wanted(QUICK, "50,000 queues", "pull of 1,024") == [
        "pull of 1,024, 4×2",
        "send, async flush, 50,000 queues, 8×32",
    ]


def test_a_text_that_no_row_holds_takes_none() -> None:
    assert wanted(FULL, "no such row") == []


def test_peers_are_named_as_maven_versions() -> None:
    assert peer_names(["apache-5.5.0", "apache-4.9.7", "apache-5.5.0"]) == [
        *("Kourou", "Apache 5.5.0", "Apache 4.9.7")
    ]
    assert peer_names(["python"]) == ["Kourou", "Kourou, Python alone"]
    with pytest.raises(ValueError, match=r"5\.5: a peer is written like apache-5\.5\.0"):
        peer_names(["apache-4.9.7", "5.5"])


def test_another_checkout_is_run_by_its_own_python(tmp_path: Path) -> None:
    word = f"checkout={tmp_path}"
    with pytest.raises(ValueError, match=r"make \.venv/\.ready"):
        peer_names([word])
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    ours, other = peer_names([word])
    assert (ours, other) == ("Kourou", f"Kourou in {tmp_path}")
    assert python_of(ours) == sys.executable
    assert python_of(other) == str(python)


def test_a_version_that_is_not_brought_by_maven_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main(["--peer", "apache-1.2.3", "--list"]) == 2
    assert "apache-1.2.3: there are apache-4.9.7, apache-5.5.0" in capsys.readouterr().err


def test_command_line_changes_the_scale_of_its_form() -> None:
    options = compare.parse(["--full", "--rounds", "1", "--backlog", "1000", "--minutes", "2"])
    scale = compare.scale_of(options)
    assert (scale.rounds, scale.backlog, scale.budget_s) == (1, 1000, 120.0)
    assert (scale.form, scale.seconds) == ("full", FULL.seconds)


def test_partial_and_quick_results_do_not_take_the_place_of_full_ones() -> None:
    assert compare.file_stem(QUICK, ["pull"]).endswith("-part")
    assert compare.file_stem(QUICK, []).endswith("-quick")
    assert compare.file_stem(FULL, []).endswith("c")


def test_outcome_of_a_load_has_rate_percentiles_and_cost() -> None:
    found = {
        reading.name: (reading.kind, reading.value)
        for reading in outcome("send", measured(50.0), is_latency=False).readings
    }
    assert found == {
        "send": ("rate", 50.0),
        "send, p50": ("latency", 0.1),
        "send, p99": ("latency", 1.0),
        "send, p99.9": ("latency", 2.0),
        "send, worst": ("latency", 3.0),
        "send: server CPU a message": ("cpu", 12.5),
    }
    assert all(kind in KINDS for kind, _ in found.values())


def test_a_load_at_a_given_rate_is_about_latency_alone() -> None:
    found = outcome("e2e", measured(1_000.0), is_latency=True)
    assert "e2e" not in {reading.name for reading in found.readings}
    assert found.other_cores == (0.3,)


def test_one_way_sends_have_no_latency() -> None:
    nothing = dict.fromkeys(("p50", "p90", "p99", "p999", "max"), 0.0)
    found = outcome("one way", measured(9.0, latency_us=nothing), is_latency=False)
    assert [reading.kind for reading in found.readings] == ["rate", "cpu"]


def test_of_one_way_sends_only_what_is_stored_counts() -> None:
    sent = measured(100.0, issued=1_000, stored=250)
    found = {reading.kind: reading.value for reading in outcome("one way", sent, is_latency=False).readings}
    assert (found["rate"], found["cpu"]) == (25.0, 50.0)


@pytest.mark.parametrize("changes", [{"messages": 0}, {"issued": 10, "stored": 0}])
def test_a_load_that_does_not_get_through_has_no_figures(changes: dict[str, Any]) -> None:
    with pytest.raises(LoadgenError):
        outcome("send", measured(0.0, **changes), is_latency=False)


@pytest.mark.parametrize(
    ("changes", "trouble"),
    [
        ({"codes": {"0": 9, "2": 1}}, "codes {'2': 1}"),
        ({"lost": 3}, "3 lost"),
        ({"issued": 10, "stored": 8}, "10 sent one way, 8 stored"),
    ],
)
def test_messages_that_did_not_get_through_are_reported(changes: dict[str, Any], trouble: str) -> None:
    assert measured(1.0, **changes).troubles == [trouble]
    assert measured(1.0).troubles == []


def test_a_step_of_the_ramp_holds_if_it_is_whole_and_in_time() -> None:
    assert is_held(10_000, 9_600, 20.0)
    assert not is_held(10_000, 9_400, 20.0)
    assert not is_held(10_000, 10_000, 51.0)


def test_backlog_compares_sends_beside_reading_with_sends_alone() -> None:
    counts = [7, 5_000, 6_000, 8, 1_000, 3_000, 9, 7_000]
    worst_ms = [99.0, 1.0, 1.0, 99.0, 4.0, 9.0, 99.0, 1.0]
    intervals = [Interval(n, *found, 0.0) for n, found in enumerate(zip(counts, worst_ms, strict=True), 1)]
    sends = SendsBeside(intervals, first=3, end=6)
    found = backlog_outcome("old", measured(1.0), measured(70_000.0), sends, 0.01)
    during = 4_000 / (2 * EACH_S)
    assert found.note == "50 messages read; 1.0% of the log was in the page cache at first"
    assert {reading.name: reading.value for reading in found.readings} == {
        "old": 70_000.0,
        "old: sends meanwhile, 1×32": during,
        "old: sends meanwhile, of those before and after": pytest.approx(100 * 2_000 / 6_000),
        "old: slowest send meanwhile": 9.0,
    }


def test_loads_at_once_add_up_and_do_not_count_each_other_as_noise() -> None:
    loads = [
        measured(30.0, server_cores=1.6, client_cores=0.4),
        measured(50.0, server_cores=1.4, client_cores=0.2),
    ]
    found = together("both", loads)
    assert [reading.value for reading in found.readings] == [80.0, pytest.approx(1.5e6 / 80)]
    assert list(found.other_cores) == pytest.approx([0.1, 0.0])


def test_a_backlog_that_is_over_at_once_says_so() -> None:
    with pytest.raises(LoadgenError, match="more messages are needed"):
        backlog_outcome("old", measured(1.0), measured(1.0), SendsBeside([], 0, 0), 0.0)


def test_larger_bodies_make_a_shorter_backlog_of_as_many_bytes() -> None:
    small, large = BacklogRow(1_024, "1 KiB", 1.0), BacklogRow(4_096, "4 KiB", 0.25)
    assert small.cost_s(FULL) == pytest.approx(large.cost_s(FULL))


def test_reports_of_official_programs_are_read_by_their_words() -> None:
    text = (
        "topic: X, threadCount: 64\n"
        "Current Time: 18:59:14,817 | Send TPS: 65432 | Max RT(ms): 213 | Average RT(ms):   0.977 | "
        "Send Failed: 0 | Response Failed: 0\n"
        "Current Time: 18:59:15,817 | Send TPS: 70000 | Max RT(ms): 213 | Average RT(ms):   0.9 | "
        "Send Failed: 0 | Response Failed: 0\n"
    )
    assert reported(text, "Send TPS") == [65432.0, 70000.0]
    assert reported(text, "Average RT(ms)") == [0.977, 0.9]
    assert reported(text, "Consume TPS") == []
