"""The frame of `kourou bench`: lines, warm-up, Ctrl-C, the result as JSON. Clock and load are the test's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence

import pytest

from kourou.cli.bench.run import BenchRun, Limits, Span
from kourou.cli.bench.send_load import send_line
from kourou.cli.bench.tally import Tally
from kourou.errors import KourouError, SendFailedError


class ScriptedLoad:
    """Sends ten messages for every tenth of a second that it is waited for; each takes 2 ms."""

    options: Mapping[str, object] = {"command": "scripted"}

    def __init__(self, *, ends_after: int | None = None, on_wait: Callable[[], None] | None = None) -> None:
        self._tenths = 1_000
        self.is_open = False
        self.closed = 0
        self.last_error: KourouError | None = None
        self._tally = Tally()
        self._ends_after = ends_after
        self._on_wait = on_wait

    @property
    def now_s(self) -> float:
        return self._tenths / 10

    def head(self) -> Sequence[str]:
        return ["parameters"]

    def open(self) -> None:
        self.is_open = True

    def begin(self) -> None:
        assert self.is_open

    def wait(self, timeout_s: float) -> bool:
        for _ in range(max(1, round(timeout_s * 10))):
            self._tenths += 1
            for _ in range(10):
                self._tally.add(2_000)
            if self._ends_after is not None and self._tally.count >= self._ends_after:
                return True
        if self._on_wait is not None:
            self._on_wait()
        return False

    def close(self) -> None:
        self.closed += 1

    def counts(self) -> Mapping[str, int]:
        return {"messages": self._tally.count, "send_failed": 0, "response_failed": 0}

    def tallies(self) -> Mapping[str, Sequence[Tally]]:
        return {"rt": [self._tally]}

    def line(self, span: Span) -> str:
        return send_line(span)

    def last_line(self, total: Span) -> str:
        return f"Send Total: {total.counts['messages']} | {send_line(total)}"


def run(load: ScriptedLoad, **limits: object) -> None:
    limits_given = Limits(**limits)  # type: ignore[arg-type]
    BenchRun(load, limits_given, clock=lambda: load.now_s, cpu_clock=lambda: load.now_s / 100).run()


def test_a_line_each_second_in_apaches_words_and_the_sum(capsys: pytest.CaptureFixture[str]) -> None:
    load = ScriptedLoad()
    run(load, seconds=3.0)
    head, *lines, last = capsys.readouterr().out.splitlines()
    assert head == "parameters" and len(lines) == 3 and load.closed == 1
    apache = (
        r"Current Time: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} \| Send TPS: 100 \| Max RT\(ms\): 2 "
        r"\| Average RT\(ms\):   2.000 \| Send Failed: 0 \| Response Failed: 0 \| P50\(ms\): 2.000 .*"
    )
    assert all(re.fullmatch(apache, line) for line in lines), lines
    assert last.startswith("[Complete] Send Total: 300 | Send TPS: 100 | Max RT(ms): 2 | Average RT(ms): ")


def test_a_load_that_ends_by_itself_is_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    run(ScriptedLoad(ends_after=150))
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith("[Complete] Send Total: 150 | Send TPS: 100 | ")


def test_what_was_done_while_warming_up_does_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    run(ScriptedLoad(), seconds=1.0, warm_up_s=2.0)
    assert "[Complete] Send Total: 100 | " in capsys.readouterr().out


def test_ctrl_c_sums_up(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    load = ScriptedLoad(on_wait=interrupt)
    run(load)
    assert "[Complete] Send Total: 100 | " in capsys.readouterr().out
    assert load.closed == 1


def test_what_fails_at_the_end_comes_after_the_sum(capsys: pytest.CaptureFixture[str]) -> None:
    class FailingLoad(ScriptedLoad):
        def close(self) -> None:
            raise KourouError("a worker failed")

    with pytest.raises(KourouError, match="a worker failed"):
        run(FailingLoad(ends_after=20))
    assert "[Complete] Send Total: 20 | " in capsys.readouterr().out


def test_what_cannot_be_opened_has_no_sum(capsys: pytest.CaptureFixture[str]) -> None:
    class ClosedLoad(ScriptedLoad):
        def open(self) -> None:
            raise KourouError("nobody there")

    load = ClosedLoad()
    with pytest.raises(KourouError, match="nobody there"):
        run(load)
    assert capsys.readouterr().out == "parameters\n"
    assert load.closed == 1


def test_json_is_alone_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    load = ScriptedLoad()
    load.last_error = SendFailedError("T", ["cut"], 3_000)
    run(load, seconds=2.0, as_json=True)
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert result["options"] == {"command": "scripted"}
    assert (result["counts"]["messages"], result["messages_per_s"]) == (200, 100.0)
    assert result["cpu_us_per_message"] == pytest.approx(100.0)
    assert result["times_ms"]["rt"] == {
        "average": 2.0,
        "p50": pytest.approx(2.0, rel=0.02),
        "p95": pytest.approx(2.0, rel=0.02),
        "p99": pytest.approx(2.0, rel=0.02),
        "p99.9": pytest.approx(2.0, rel=0.02),
        "max": 2.0,
    }
    assert [span["counts"]["messages"] for span in result["intervals"]] == [100, 100]
    assert "Send TPS: 100" in err and "last failure: topic 'T': not sent" in err
