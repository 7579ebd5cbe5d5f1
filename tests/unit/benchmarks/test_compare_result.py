"""The report of `compare` as text and as data, and the README's table that is made from it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from benchmarks import readme
from benchmarks._broker_report import Figure
from benchmarks._compare_result import HEADLINES, Result, headline_table, markdown, write
from benchmarks._plots import drawn_latencies, drawn_rates

NAMES = ["Kourou", "Apache 5.5.0"]
SETTING = "2 cores. Kourou with its compiled kernel. Bodies of 1 KiB."
README = f"# Kourou\n\ntext\n\n{readme.BEGIN}\nold\n{readme.END}\n\nmore\n"


def result(form: str = "full", date: str = "2026-11-15T10:00:00+00:00") -> Result:
    made = Result(
        list(NAMES), form, f"python -m benchmarks compare --{form}", date, "xeon-2.50ghz-2c", SETTING
    )
    made.figures = [
        Figure(
            HEADLINES[0],
            "1/s",
            True,
            {"Kourou": [20_000.0, 22_000.0], "Apache 5.5.0": [10_000.0, 10_000.0]},
            "rate",
        ),
        *(
            Figure(
                f"{HEADLINES[0]}, {name}",
                "ms",
                False,
                {"Kourou": [value], "Apache 5.5.0": [2 * value]},
                "latency",
            )
            for name, value in (("p50", 1.0), ("p99", 3.0), ("p99.9", 4.0), ("worst", 5.0))
        ),
        Figure(
            "official Producer, average", "ms", False, {"Kourou": [2.0], "Apache 5.5.0": [4.0]}, "latency"
        ),
        Figure(
            "start to first accepted send", "s", False, {"Kourou": [0.5], "Apache 5.5.0": [math.nan]}, "time"
        ),
    ]
    made.other_cores = {HEADLINES[0]: [0.1, 0.3, 0.2]}
    made.left_out = ["ramp: would take 20 s, 3 s were left"]
    made.troubles = ["Apache 5.5.0, start: PeerError: no"]
    made.details = [
        {"row": "ramp", "name": "Kourou", "round": 0, "detail": {"curve": [[5_000, 5_000.0, 1.0, 2.0]]}},
        {"row": "ramp", "name": "Kourou", "round": 1, "detail": {}},
    ]
    return made


def test_report_has_a_section_for_each_kind_and_says_what_is_missing() -> None:
    text = markdown(result(), ["plot.png"])
    assert "| send, async flush, 1×1 | 1/s | 21,000 | 10,000 | 2.10 (2.00–2.20) |" in text
    assert "| send, async flush, 1×1 | 1.00 / 3.00 / 4.00 / 5.00 | 2.00 / 6.00 / 8.00 / 10.0 | 2.00 |" in text
    assert "| official Producer, average | ms | 2.00 | 4.00 | 2.00 |" in text
    assert "| start to first accepted send | s | 0.50 | – | – |" in text
    assert "used 0.20 cores meanwhile (median), at most 0.30" in text
    assert "| send, async flush, 1×1 | 0.20 | 0.30 |" in text
    assert "## Left out\n\n- ramp: would take 20 s, 3 s were left" in text
    assert "## Troubles\n\n- Apache 5.5.0, start: PeerError: no" in text
    assert "![plot.png](plot.png)" in text


def test_data_comes_back_as_it_was_with_failed_rounds() -> None:
    made = result()
    back = Result.from_json(made.to_json())
    assert back.to_json() == made.to_json()
    assert "NaN" not in made.to_json()
    assert math.isnan(back.figures[-1].rounds["Apache 5.5.0"][0])


def test_curve_of_a_broker_is_its_longest_ramp() -> None:
    assert result().curves() == {"Kourou": [[5_000, 5_000.0, 1.0, 2.0]]}


def test_plots_leave_out_what_one_broker_does_not_have() -> None:
    made = result()
    made.figures.append(Figure("half", "1/s", True, {"Kourou": [1.0]}, "rate"))
    assert [figure.row for figure in drawn_rates(made)] == [HEADLINES[0]]
    assert [figure.row for figure in drawn_latencies(made)] == [f"{HEADLINES[0]}, p99"]


def test_headlines_carry_their_units() -> None:
    assert headline_table(result()).splitlines() == [
        "|  | Kourou | Apache 5.5.0 | : 5.5.0 |",
        "|---|---|---|---|",
        "| send, async flush, 1×1 | 21,000/s | 10,000/s | 2.10 (2.00–2.20) |",
        "| start to first accepted send | 0.50 s | – | – |",
    ]


def test_readme_gets_the_table_between_its_markers(tmp_path: Path) -> None:
    results, page = tmp_path / "benchmarks" / "results", tmp_path / "README.md"
    write(result(), results, "2026-11-15-xeon-2.50ghz-2c", [])
    page.write_text(README)
    words = ["--results", str(results), "--readme", str(page)]
    assert readme.main([*words, "--check"]) == 1
    assert readme.main(words) == 0
    text = page.read_text()
    assert text.startswith(
        "# Kourou\n\ntext\n\n<!-- bench:begin -->\n\n"
        "Kourou with its compiled kernel, beside Apache 5.5.0, in one run on xeon-2.50ghz-2c"
    )
    assert "[all rows, and how they were measured](benchmarks/results/2026-11-15-xeon-2.50ghz-2c.md)" in text
    assert headline_table(result()) in text
    assert text.endswith("<!-- bench:end -->\n\nmore\n")
    assert "old" not in text
    assert readme.main([*words, "--check"]) == 0
    assert readme.main(words) == 0
    assert page.read_text() == text


def test_readme_shows_the_plot_if_there_is_one(tmp_path: Path) -> None:
    write(result(), tmp_path, "2026-11-15-m", [])
    (tmp_path / "2026-11-15-m.png").write_bytes(b"")
    page = tmp_path / "README.md"
    page.write_text(README)
    assert "![rates and latencies](2026-11-15-m.png)" in readme.updated(page, tmp_path / "2026-11-15-m.json")


def test_newest_full_run_counts_before_any_quick_one(tmp_path: Path) -> None:
    write(result("full", "2026-11-14T10:00:00+00:00"), tmp_path, "2026-11-14-m", [])
    write(result("full", "2026-11-13T10:00:00+00:00"), tmp_path, "2026-11-13-m", [])
    write(result("quick", "2026-11-15T10:00:00+00:00"), tmp_path, "2026-11-15-m-quick", [])
    write(result("full", "2026-11-16T10:00:00+00:00"), tmp_path, "2026-11-16-m-part", [])
    (tmp_path / "soak-broker-2026-11-17-m.json").write_text("{}")
    assert readme.newest(tmp_path).stem == "2026-11-14-m"


def test_without_results_or_markers_the_readme_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "README.md"
    page.write_text(README)
    words = ["--results", str(tmp_path), "--readme", str(page)]
    assert readme.main(words) == 2
    assert "holds no results" in capsys.readouterr().err
    write(result(), tmp_path, "2026-11-15-m", [])
    page.write_text("# Kourou\n")
    assert readme.main(words) == 2
    assert "needs <!-- bench:begin -->" in capsys.readouterr().err
    assert page.read_text() == "# Kourou\n"


@pytest.mark.parametrize("text", [readme.END + readme.BEGIN, readme.BEGIN * 2 + readme.END])
def test_markers_out_of_order_or_twice_are_refused(text: str) -> None:
    with pytest.raises(readme.ReadmeError):
        readme.replaced(text, "new")
