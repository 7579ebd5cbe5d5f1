"""The text of metrics: a parser that is not ours reads back what went in, within the limit of series."""

from __future__ import annotations

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kourou.metrics.exposition import exposition
from kourou.metrics.families import Distribution, Histogram, Kind, Metric
from kourou.metrics.merged_text import merged_text

TOPICS = Metric("app_messages_total", Kind.COUNTER, 'Messages\nof a "topic" \\.', ("topic",))
SIZES = Metric("app_sizes", Kind.HISTOGRAM, "Sizes.", ("topic",))
GAUGE = Metric("app_open", Kind.GAUGE, "Open.")


def parsed(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Value by labels, by the name of the sample."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_names_labels_and_values_come_back_whatever_is_in_them() -> None:
    ugly = 'a"b\\c\nd,e={}é%RETRY%g'
    families = [
        TOPICS.family([((ugly,), 3), (("plain",), 2**60)], (("cluster", "c"),)),
        GAUGE.value(math.nan),
        GAUGE.family([((), math.inf)], (("x", "y"),)),
    ]
    found = parsed("".join(exposition(families)))
    assert found["app_messages_total"] == {
        (("cluster", "c"), ("topic", ugly)): 3,
        (("cluster", "c"), ("topic", "plain")): 2**60,
    }
    assert math.isnan(found["app_open"][()])
    assert found["app_open"][("x", "y"),] == math.inf


def test_a_histogram_is_cumulative_and_a_bound_belongs_to_its_range() -> None:
    histogram = Histogram((1.0, 10.0))
    for value, times in ((1.0, 2), (1.1, 3), (11, 4)):
        histogram.add(value, times)
    found = parsed("".join(exposition([SIZES.family([(("t",), histogram.read())])])))
    counts = {dict(labels)["le"]: value for labels, value in found["app_sizes_bucket"].items()}
    assert counts == {"1.0": 2, "10.0": 5, "+Inf": 9}
    assert found["app_sizes_count"] == {(("topic", "t"),): 9}
    assert found["app_sizes_sum"] == {(("topic", "t"),): pytest.approx(2 + 3.3 + 44)}


def test_families_of_one_metric_have_one_head() -> None:
    text = "".join(exposition([GAUGE.value(1), TOPICS.family([]), GAUGE.family([((), 2)], (("n", "b"),))]))
    assert text.splitlines()[:4] == [
        "# HELP app_open Open.",
        "# TYPE app_open gauge",
        "app_open 1",
        'app_open{n="b"} 2',
    ]


def test_series_above_the_limit_are_left_out_and_counted() -> None:
    def endless() -> object:
        for number in range(1_000):
            yield (str(number),), number

    whole = Distribution((1.0,), (1, 1), 2.0)
    families = [GAUGE.value(1), SIZES.family([(("t",), whole)]), TOPICS.family(endless())]  # type: ignore[arg-type]
    pieces = list(exposition(families, max_series=100, scope=(("node", "n"),)))
    found = parsed("".join(pieces))
    # The gauge, two ranges, sum and count come first.
    assert len(found["app_messages_total"]) == 95
    assert found["kourou_metrics_dropped_series"] == {(("node", "n"),): 905}
    # A histogram is never cut in the middle.
    found = parsed("".join(exposition([SIZES.family([(("t",), whole)])], max_series=3)))
    assert "app_sizes_bucket" not in found
    assert found["kourou_metrics_dropped_series"] == {(): 4}


def test_a_large_text_comes_in_pieces_so_that_others_get_their_turn() -> None:
    samples = ((((str(number),), number)) for number in range(5_000))
    pieces = list(exposition([TOPICS.family(samples)]))
    assert len(pieces) > 10
    assert max(piece.count("\n") for piece in pieces) < 500
    assert len(parsed("".join(pieces))["app_messages_total"]) == 5_000


def test_the_texts_of_several_processes_become_one() -> None:
    texts = [
        "".join(exposition([GAUGE.value(1, (("n", "a"),)), TOPICS.family([(("t",), 1)], (("n", "a"),))])),
        "".join(exposition([GAUGE.value(2, (("n", "b"),))])).replace("Open.", "Other words."),
        "",
    ]
    text = "".join(merged_text(texts))
    assert text.count("# TYPE app_open gauge") == text.count("# HELP app_open ") == 1
    assert parsed(text)["app_open"] == {(("n", "a"),): 1, (("n", "b"),): 2}
