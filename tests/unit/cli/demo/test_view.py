"""The demo's numbers: rates from counts, a row a topic; its steps, as lines and as a table."""

from __future__ import annotations

import io
import re

from rich.console import Console

from kourou.cli.demo.progress import Flow, FlowRates, Progress
from kourou.cli.demo.view import DemoView, describe_row, topics_table

FLOW = Flow("Orders", queues=4, group="billing")


def test_rates_are_those_of_the_last_second() -> None:
    rates = FlowRates(FLOW)
    rates.add(0.0, Progress(0, 0))
    rates.add(0.5, Progress(5_000, 0))
    rates.add(1.0, Progress(5_100, 10))
    row = rates.add(1.5, Progress(5_200, 60))
    assert (row.in_per_s, row.out_per_s) == (200.0, 60.0)
    assert row.progress.lag == 5_140


def test_the_first_sample_has_no_rate() -> None:
    row = FlowRates(FLOW).add(7.0, Progress(10, 4))
    assert (row.in_per_s, row.out_per_s, row.progress.lag) == (0.0, 0.0, 6)


def test_a_group_that_goes_back_has_no_rate_below_nothing() -> None:
    rates = FlowRates(FLOW)
    rates.add(0.0, Progress(100, 100))
    assert rates.add(1.0, Progress(100, 60)).out_per_s == 0.0


def test_a_line_and_a_table_say_the_same() -> None:
    rates = FlowRates(FLOW)
    rates.add(0.0, Progress(0, 0))
    row = rates.add(1.0, Progress(1_234, 1_000, retries=3, dead=2))
    assert (
        describe_row(row) == "topic Orders: 1234 messages, group billing: lag 234, retries 3, dead letters 2"
    )
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(topics_table([row], brokers=2))
    heads, cells = (line.split() for line in console.export_text().splitlines())
    shown = dict(zip(heads, cells, strict=True))
    assert shown == {
        "Topic": "Orders",
        "Queues": "8",
        "Messages": "1,234",
        "In/s": "1,234",
        "Group": "billing",
        "Out/s": "1,000",
        "Lag": "234",
        "Retries": "3",
        "Dead": "2",
    }


def test_steps_into_a_file_are_lines() -> None:
    out = io.StringIO()
    with DemoView(Console(width=80, file=out), brokers=2) as view:
        assert not view.is_live
        view.say("Order", "begins")
        view.done("Order", "all [came] in order")
        view.show([])
    lines = [line.split(" s  ")[1] for line in out.getvalue().splitlines()]
    assert lines == ["Order: begins", "Order: all [came] in order"]


def test_steps_on_a_terminal_are_a_table_with_those_to_come() -> None:
    out = io.StringIO()
    with DemoView(Console(width=80, file=out, force_terminal=True, color_system=None), brokers=2) as view:
        view.titles = ["Order", "Delay"]
        view.done("Order", "all came in order")
        view.show([FlowRates(FLOW).add(0.0, Progress(5, 5))])
    lines = [re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", line).split() for line in out.getvalue().splitlines()]
    assert ["done", "Order", "all", "came", "in", "order"] in lines
    assert ["Delay"] in lines, "one that is to come"
    assert any("billing" in words for words in lines)
