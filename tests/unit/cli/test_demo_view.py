"""The demo's numbers: rates from counts, a row a flow."""

from __future__ import annotations

import io

from rich.console import Console

from kourou.cli.demo_clients import Flow, Progress
from kourou.cli.demo_view import FlowRates, line, table

FLOW = Flow("orders", queues=4, messages_per_s=1_000, group="billing")


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


def test_a_line_and_a_table_say_the_same() -> None:
    rates = FlowRates(FLOW)
    rates.add(0.0, Progress(0, 0))
    row = rates.add(1.0, Progress(1_234, 1_000))
    assert line(row, 1.0) == " 1.0 s  orders      1234 messages, in  1234/s, billing out  1000/s, lag 234"
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(table([row], "now"))
    cells = [cell.strip() for cell in console.export_text().split("orders")[1].split("\n")[0].split("│")]
    assert cells[1:7] == ["4", "1,234", "1,234", "billing", "1,000", "234"]
