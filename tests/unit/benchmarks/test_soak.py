"""What `soak` concludes from its samples."""

from __future__ import annotations

import json

import pytest
from benchmarks.soak import Sample, SoakResult, growth, needed_bytes, report, to_json


def result(memory_mb: list[float], worst_ms: list[float], descriptors: int = 20) -> SoakResult:
    samples = [Sample(float(at), mb, 100.0, descriptors) for at, mb in enumerate(memory_mb)]
    return SoakResult("command", "machine", 1.0, 3_000, samples, worst_ms, 180_000.0, [], 0.5)


def test_growth_leaves_the_warm_up_out() -> None:
    assert growth([10.0, 60.0, *[100.0] * 8]) == 0.0


def test_growth_is_from_the_first_fifth_to_the_last() -> None:
    steady = [100.0] * 4 + [102.0] * 12 + [104.0] * 4
    assert growth([50.0] * 5 + steady) == pytest.approx(0.04)


def test_one_outlier_is_no_growth() -> None:
    steady = [100.0] * 19 + [500.0]
    assert growth([100.0] * 5 + steady) == 0.0


def test_too_few_samples_say_nothing() -> None:
    with pytest.raises(ValueError, match="too few samples"):
        growth([1.0])


def test_memory_that_grows_past_the_limit_is_not_flat() -> None:
    assert result([100.0] * 10, [1.0]).is_flat
    assert not result([100.0] * 8 + [106.0] * 2, [1.0]).is_flat


def test_report_shows_the_worst_pauses_by_second() -> None:
    text = report(result([100.0] * 10, [5.0, 80.0, 2.0, 120.0]))
    assert "the slowest send took 120.0 ms" in text
    assert "2 of 4 seconds had one above 50 ms" in text
    assert text.index("- second 4: 120.0 ms") < text.index("- second 2: 80.0 ms")
    assert "| anonymous memory | 100.0 MB | 100.0 MB | +0.0% |" in text
    assert "Growth stays under 5%." in text


def test_data_has_the_samples_and_the_verdict() -> None:
    raw = json.loads(to_json(result([100.0] * 8 + [110.0] * 2, [1.0])))
    assert raw["is_flat"] is False
    assert raw["growth"]["anonymous memory"] == pytest.approx(0.1)
    assert len(raw["samples"]) == 10


def test_longer_and_faster_runs_need_more_disk() -> None:
    assert needed_bytes(10, 1_000) < needed_bytes(20, 1_000) < needed_bytes(20, 2_000)
