"""Tables of the sink `console`."""

from __future__ import annotations

from kourou.spark.pipelines.sinks import draw_table


def test_a_table() -> None:
    lines = draw_table(["id", "amount"], [False, True], [("a", "1.5"), (None, "10")], 20)
    assert lines == [
        "+------+--------+",
        "| id   | amount |",
        "+------+--------+",
        "| a    |    1.5 |",
        "| NULL |     10 |",
        "+------+--------+",
    ]


def test_long_texts_are_cut() -> None:
    assert draw_table(["t"], [False], [("x" * 30,)], 20)[3] == f"| {'x' * 19}… |"
    assert draw_table(["t"], [False], [("x" * 30,)], None)[3] == f"| {'x' * 30} |"


def test_nothing_changes_the_terminal() -> None:
    assert draw_table(["t"], [False], [("\x1b[31m\n",)], None)[3] == "| \\x1b[31m\\n |"
