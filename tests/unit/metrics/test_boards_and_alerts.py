"""The boards and alerts of examples/: they query metrics that exist, and every alert has its runbook."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kourou.cli.metrics_reference import SECTIONS

PROJECT = Path(__file__).parents[3]
BOARDS = sorted((PROJECT / "examples" / "grafana").glob("*.json"))
ALERTS = PROJECT / "examples" / "prometheus" / "alerts.yml"
METRIC = re.compile(r"\b(?:rocketmq|kourou|process)_[a-z0-9_]+")


def known_names() -> set[str]:
    names = {metric.name for _, metrics in SECTIONS for metric in metrics}
    return names | {f"{name}_{part}" for name in names for part in ("bucket", "count", "sum")}


def expressions(board: dict[str, Any]) -> Iterator[str]:
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"]


@pytest.mark.parametrize("path", BOARDS, ids=lambda path: path.name)
def test_a_board_queries_what_there_is(path: Path) -> None:
    board = json.loads(path.read_text())
    asked = {name for text in expressions(board) for name in METRIC.findall(text)}
    assert len(asked) > 15
    assert asked - known_names() == set()
    variables = {variable["name"] for variable in board["templating"]["list"]}
    used = {name for text in expressions(board) for name in re.findall(r"\$([a-z]+)", text)}
    assert used - variables == set()
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))


def test_alerts_query_what_there_is_and_have_a_runbook() -> None:
    text = ALERTS.read_text()
    expressions_text = "\n".join(line for line in text.splitlines() if "summary:" not in line)
    assert set(METRIC.findall(expressions_text)) - known_names() == set()
    alerts = re.findall(r"alert: (\w+)", text)
    assert len(alerts) == len(set(alerts)) > 15
    assert re.findall(r"runbook: (.*)", text) == [f"docs/operations.md#{alert.lower()}" for alert in alerts]
    sections = re.findall(r"^### (Kourou\w+)$", (PROJECT / "docs" / "operations.md").read_text(), re.M)
    assert sections == alerts
