"""`kourou pipeline archive` and `replay` with wrong input: a clear message, exit code 1, no traceback."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kourou.errors import ConfigError
from tests.needed import need_module

need_module("pyspark")
need_module("deltalake")

from kourou.cli.main import main  # noqa: E402
from kourou.cli.option_types import parse_duration_ms  # noqa: E402
from kourou.cli.pairs import parse_pairs  # noqa: E402
from kourou.cli.pipeline.options import parse_size_bytes  # noqa: E402

# Nobody listens there.
NOWHERE = "127.0.0.1:1"


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command says of itself; it must end with 1."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setattr(sys, "argv", ["kourou", "pipeline", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (1, 2)  # 2: the command line
    captured = capsys.readouterr()
    assert captured.out == ""
    for sign in ("Traceback", "\tat ", "java."):
        assert sign not in captured.err
    return captured.err


def test_archive(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(tmp_path / "archive")

    def said(*words: str) -> str:
        return run(monkeypatch, capsys, "archive", *words)

    assert said("orders") == (
        "kourou pipeline archive: no destination: give the archive's folder with --to\n"
    )
    assert "nothing to archive: give topics, or --pattern" in said("--to", folder)
    assert "unknown format 'detla'; did you mean delta?" in said("a", "--to", folder, "--format", "detla")
    assert "--every soon: must be a time such as 30s" in said("a", "--to", folder, "--every", "soon")
    assert "--file-size 0: must be a size such as 64m" in said("a", "--to", folder, "--file-size", "0")
    assert "--option oops: must be KEY=VALUE" in said("a", "--to", folder, "--option", "oops")
    assert "the option namesrv is missing" in said("a", "--to", folder)
    assert "no name server can be reached" in said("a", "--to", folder, "-n", NOWHERE)
    bad_option = said("a", "--to", folder, "-n", NOWHERE, "--option", "failOnDataLos=false")
    assert "did you mean failOnDataLoss" in bad_option
    bad_time = said("a", "--to", folder, "-n", NOWHERE, "--from", "yesterday")
    assert bad_time == (
        "kourou pipeline archive: --from yesterday: must be earliest, latest, a time such as "
        "2026-01-31T08:00:00+00:00 (without a zone: UTC), or milliseconds since 1970 such as 1769846400000\n"
    )
    # Nothing was made of all this.
    assert not Path(folder).exists()


def test_replay(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def said(*words: str) -> str:
        return run(monkeypatch, capsys, "replay", *words)

    missing, plain = str(tmp_path / "missing"), str(tmp_path)
    assert said(missing, "--to", "t") == f"kourou pipeline replay: {missing}: no such folder\n"
    assert "is not an archive" in said(plain, "--to", "t")
    assert "no destination" in said(plain)
    assert "--from noon: must be a time such as" in said(plain, "--to", "t", "--from", "noon")
    assert "--until noon: must be a time such as" in said(plain, "--to", "t", "--until", "noon")
    times = ("--from", "2026-02-01", "--until", "2026-01-31T10:00:00+02:00")
    assert "the range is empty: --from 2026-02-01T00:00:00.000+00:00 is not before" in said(
        plain, "--to", "t", *times
    )
    assert "--rate -3: must be more than 0" in said(plain, "--to", "t", "--rate", "-3")


def test_times_sizes_and_pairs() -> None:
    assert [parse_duration_ms("-x", text) for text in ("500ms", "30s", "1.5m", "2h", "1d")] == [
        500,
        30_000,
        90_000,
        7_200_000,
        86_400_000,
    ]
    assert [parse_size_bytes("-x", text) for text in ("12", "64k", "128M", "1gb")] == [
        12,
        65_536,
        128 << 20,
        1 << 30,
    ]
    assert parse_pairs("-x", ["a=1", "b=c=d", "e="]) == {"a": "1", "b": "c=d", "e": ""}
    for text in ("5", "s", "-3s"):
        with pytest.raises(ConfigError):
            parse_duration_ms("-x", text)
