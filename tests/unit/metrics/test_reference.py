"""docs/metrics.md lists what the code declares."""

from __future__ import annotations

from pathlib import Path

from kourou.cli.metrics_reference import SECTIONS, page
from kourou.metrics.families import Kind

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text()
    assert text == page(text), "run make docs"


def test_each_metric_is_declared_once_and_says_what_it_is() -> None:
    metrics = [metric for _, section in SECTIONS for metric in section]
    names = [metric.name for metric in metrics]
    assert len(names) == len(set(names))
    for metric in metrics:
        assert metric.help.endswith("."), metric.name
        assert metric.kind is not Kind.COUNTER or metric.name.endswith("_total"), metric.name
